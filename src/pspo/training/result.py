"""The end of a run: the policy file, the final evaluation, result.json."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pspo.core.files import write_arrays
from pspo.data.batches import DeviceDataset
from pspo.evaluation.dataset_return import dataset_return
from pspo.evaluation.problem import EvaluatedReturn
from pspo.evaluation.simulator import actor_by_mode, evaluate_network
from pspo.policies.policy import FILE_NAME, from_network
from pspo.training.loop import Clock, Session

FINAL_SEED = 20_000  # of the final evaluation: fresh episodes


def final_evaluation(session: Session, state: Any, clock: Clock) -> None:
    """Save and evaluate the final policy, never the best of several."""
    run, config, setup, diagnostics = session.run, session.config, session.setup, session.diagnostics
    description = run.read("config")
    origin = {name: description[name] for name in ("algo", "dataset", "task", "preset", "seed")}
    network = session.algorithm.policies(state)["policy"]
    data, metadata = session.data, origin | {"step": config.steps}
    names = data.raw_obs_names, data.action_names
    policy = from_network(network, setup.norm, metadata, *names, data.encoder)
    replace(policy, action_labels=data.action_labels).save(run.path / FILE_NAME)
    numbers = {}
    if diagnostics and isinstance(session.device_data, DeviceDataset):  # algorithms with models train in memory
        arrays, numbers = diagnostics.diagnose(config, setup, session.device_data, state)
        write_arrays(run.path / "diagnostics.safetensors", arrays, numbers)
        episodes, steps = diagnostics.model_episode_size(session.data)
        logged = dataset_return(session.data, EvaluatedReturn(1.0, steps, True)).value
        numbers |= {"model_episodes": episodes, "model_steps": steps, "dataset_return": logged}
    evaluated: dict[str, Any] = {}
    if session.task:
        actor = actor_by_mode(setup.norm)
        evaluated = evaluate_network(session.task, actor, network, description["episodes"], FINAL_SEED).as_dict()
    clock.tick()
    last = run.metrics()[-1]
    result = {name: description[name] for name in ("algo", "dataset", "task", "seed", "preset")}
    result |= {name: what for name, what in run.read("models").items() if name in ("termination", "reward")}
    result |= {"steps": config.steps, "seconds": round(clock.total(), 1), **evaluated, **numbers}
    others = [f"{name}_score" for name in session.algorithm.policies(state) if name != "policy"]
    kept = ("model_return", *others, *session.algorithm.HEADLINE[:1])
    run.write_metrics_table()
    run.write("result", result | {name: last[name] for name in kept if name in last})
