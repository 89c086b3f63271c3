"""The one training loop: compiled chunks of an algorithm's pure update, with everything around them.

    prepare (cached) -> init or checkpoint -> [chunk -> log -> evaluate -> checkpoint] ... -> judge -> report

The state is all that changes, keys are derived from it, and evaluation never feeds back: a run that
is killed and resumed goes through the same bits as one that was not.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import jax

from pspo import checkpoint
from pspo.algorithms import get_algorithm, get_diagnostics, outside
from pspo.algorithms.sharing import about_pool
from pspo.compute import keep_compiled_programs
from pspo.config import build, flatten
from pspo.config import preset as load_preset
from pspo.data.batches import Log, device_log
from pspo.data.check import require_trainable
from pspo.data.columns import Columns, as_columns
from pspo.data.dataset import Dataset
from pspo.data.sources import load_dataset
from pspo.display import Progress, silent
from pspo.envs.task import Task, get_task, require_episodes
from pspo.errors import Diverged, UserError
from pspo.evaluation import actor_by_mode, evaluate_network
from pspo.files import write_arrays
from pspo.manifest import describe_machine
from pspo.policy import FILE_NAME, from_network
from pspo.runs import Run, create, free_path, open_run, writing
from pspo.trackers import Tracker, no_tracker

EVALUATION_SEED = 10_000  # of the looks during training
JUDGEMENT_SEED = 20_000  # of the final judgement: fresh episodes
NEEDED = ("algo", "dataset", "task", "preset", "seed", "episodes", "settings")
"""What config.json must say for a run to be gone on with."""


def train(
    dataset: Any,
    algo: str = "pspo",
    preset: str = "laptop",
    seed: int = 0,
    out: str | Path | None = None,
    settings: dict[str, Any] | None = None,
    episodes: int | None = None,
    progress: Progress = silent,
    say: Callable[[str], None] = print,
    tracker: Callable[[Path], Tracker] = no_tracker,
    columns: Columns | Mapping[str, Any] | None = None,
    task: str | None = None,
) -> Run:
    """Learn a policy from a dataset; returns the finished run. Everything is checked before anything is written.

    `dataset` is whatever `load_dataset` takes, which also gets `columns` and `task`. `algo` and `preset` are names that
    `pspo list` shows; `settings` change single keys of the preset, as in {"alpha": 0.01}. `out` is the run directory,
    by default a new one under runs/. `episodes` of the final judgement default to the task's own number. `progress` is
    called as the work goes on, `say` with what a person should know, and `tracker` with the run's folder: it returns
    what receives every row of metrics. Raises `UserError` for bad input, and `Diverged` where a number is not finite.
    """
    module = get_algorithm(algo)
    if not 0 <= seed < 2**31:
        raise UserError(f"seed={seed} is out of range: it must be a whole number from 0 to {2**31 - 1}.")
    if episodes is not None:
        require_episodes(episodes)
    data = load_dataset(dataset, columns, task, progress)
    config = build(module.Config, load_preset(algo, preset, data.task, data.name), settings or {})
    require_trainable(data)
    source = str(dataset) if isinstance(dataset, (str, Path)) else data.name
    if data.task:
        get_task(data.task).require_fit(f"the dataset '{source}'", data)
        get_task(data.task).require()
    facts = {
        "algo": algo,
        "dataset": source,
        "name": data.name,
        "columns": columns and as_columns(columns).given(),
        "names": {"obs": [*data.obs_names], "action": [*data.action_names]},
        "task": data.task,
        "preset": preset,
        "seed": seed,
        "episodes": episodes or (get_task(data.task).default_episodes if data.task else 0),
    }
    manifest = describe_machine() | {"data_hash": data.hash, "seed": seed, "timings": {}}
    if origin := outside().get(algo):
        manifest["algorithm"] = origin  # to be read by people: what it names is never imported
    place = out or free_path(f"{data.name}-{algo}-{preset}-seed{seed}")
    run = create(place, {"config": facts | {"settings": flatten(config)}, "manifest": manifest})
    with writing(run):
        return _work(run, module, config, data, progress, say, tracker)


def resume(
    path: str | Path,
    dataset: Any = None,
    progress: Progress = silent,
    say: Callable[[str], None] = print,
    tracker: Callable[[Path], Tracker] = no_tracker,
) -> Run:
    """Go on with a run that was stopped, to the same bits; one that is finished is returned as it is.

    `dataset` is needed only where the data came from memory. Data that have changed since are refused.
    """
    run = open_run(path)
    if run.finished:
        return run
    facts, manifest = run.read("config", *NEEDED), run.read("manifest", "data_hash", "timings")
    checkpoint.require_inside(run.checkpoints)
    module = get_algorithm(facts["algo"], manifest.get("algorithm"))
    columns = None if isinstance(dataset, Dataset) else facts.get("columns")
    data = load_dataset(dataset if dataset is not None else facts["dataset"], columns, facts.get("task"), progress)
    if data.hash != manifest["data_hash"]:
        raise UserError(f"the data of {run.path} have changed since it was started: restore them or train anew.")
    with writing(run):
        return _work(run, module, build(module.Config, facts["settings"]), data, progress, say, tracker)


def _work(
    run: Run,
    module: ModuleType,
    config: Any,
    data: Dataset,
    progress: Progress,
    say: Callable[[str], None],
    tracker: Callable[[Path], Tracker],
) -> Run:
    facts = run.read("config")
    clock = _Clock(run)
    keep_compiled_programs()
    with clock("prepare"):
        parts, models = module.prepare(config, data, facts["seed"], progress)
        run.write("models", models)
        if "pool" in models:
            say(about_pool(facts["algo"], config, facts["preset"], data, models["pool"]))
        _same_models_as_before(run, models)
    session = Session(run, module, config, parts, data, device_log(data, parts.norm, config.gamma))
    with clock("train"), tracker(run.path) as track:
        state = _loop(session, clock, progress, say, track)
    with clock("judge"):
        _judge(session, state, clock)
    _report(run, say)
    return run


@dataclass(frozen=True)
class Session:
    """What the loop holds on to."""

    run: Run
    module: ModuleType
    config: Any
    parts: Any
    data: Dataset
    log: Log

    @property
    def task(self) -> Task | None:
        return get_task(self.data.task) if self.data.task else None

    @property
    def diagnostics(self) -> ModuleType | None:
        return get_diagnostics(self.run.read("config")["algo"])


def compile_chunk(module: ModuleType, config: Any, parts: Any) -> Callable[..., tuple[Any, dict[str, jax.Array]]]:
    """`length` iterations as one program. Fixed arrays and data are arguments, so that they are not baked in."""

    @partial(jax.jit, static_argnames="length")
    def chunk(state: Any, arrays: Any, log: Log, length: int) -> tuple[Any, dict[str, jax.Array]]:
        fixed = parts._replace(arrays=arrays)
        state, context = module.imagine(config, fixed, log, state) if hasattr(module, "imagine") else (state, None)

        def body(state: Any, _: None) -> tuple[Any, dict[str, jax.Array]]:
            k_draw, k_update = jax.random.split(jax.random.fold_in(state.key, state.step))
            batch = module.draw(config, log, k_draw)
            return module.update(config, fixed, context, state, batch, k_update)

        state, metrics = jax.lax.scan(body, state, None, length=length)
        return state, {name: _summary(name)(values) for name, values in metrics.items()}

    return chunk


def _summary(name: str) -> Callable[[jax.Array], jax.Array]:
    """Means over a chunk, but the extremes of extremes."""
    return jax.numpy.min if name.endswith("_min") else jax.numpy.max if name.endswith("_max") else jax.numpy.mean


def _loop(session: Session, clock: _Clock, progress: Progress, say: Callable[[str], None], track: Tracker) -> Any:
    run, config, module, parts = session.run, session.config, session.module, session.parts
    step, state = _begin(session, say)
    saved, pause = time.monotonic(), checkpoint.pause_after(0.0)
    run.rewind_metrics(step)
    chunk, look = compile_chunk(module, config, parts), _looker(session)
    while step < config.steps:
        length = min(config.chunk, config.steps - step)
        state, metrics = chunk(state, parts.arrays, session.log, length=length)
        before, step = step, step + length
        row = {"step": step} | {name: float(value) for name, value in metrics.items()}
        if step // config.evaluate_every > before // config.evaluate_every or step == config.steps:
            row |= look(state)
        _refuse_nan(row)
        run.append_metrics(row)
        track.log(row)
        if step == config.steps or time.monotonic() - saved > pause:
            begun = time.monotonic()
            checkpoint.save(run.checkpoints, step, state)
            clock.tick()
            saved = time.monotonic()
            pause = checkpoint.pause_after(saved - begun)
        progress("training", step, config.steps, _headline(row))
    return state


def _begin(session: Session, say: Callable[[str], None]) -> tuple[int, Any]:
    """The newest checkpoint, or a new state where there is none: to begin may take thousands of steps by itself."""
    config, module, parts = session.config, session.module, session.parts
    init = jax.jit(lambda log, key: module.init(config, parts, log, key))
    start = session.log, jax.random.PRNGKey(session.run.read("config")["seed"])
    shapes = jax.eval_shape(init, *start)  # all that reading a state takes
    if found := checkpoint.load_newest(session.run.checkpoints, shapes, say):
        say(f"resuming at iteration {found[0]}")
        return found
    return 0, init(*start)


def _looker(session: Session) -> Callable[[Any], dict[str, float]]:
    """Evaluation during training: the true score where there is a simulator, and what the models promise."""
    config, module, parts, task = session.config, session.module, session.parts, session.task
    actor = actor_by_mode(parts.norm)
    diagnostics = session.diagnostics
    imagined = diagnostics.make_imagined_return(config, parts, session.data) if diagnostics else None

    def look(state: Any) -> dict[str, float]:
        row = {"imagined_return": float(imagined(state, parts.arrays))} if imagined else {}
        if task:
            for name, policy in module.policies(state).items():
                prefix = "" if name == "policy" else f"{name}_"
                found = evaluate_network(task, actor, policy, config.evaluate_episodes, EVALUATION_SEED)
                row |= {f"{prefix}score": found.score, f"{prefix}return_mean": found.return_mean}
                if found.score_by_regret is not None:
                    row[f"{prefix}score_by_regret"] = found.score_by_regret
        return row

    return look


def _headline(row: dict[str, float]) -> dict[str, float]:
    wanted = ("score", "posterior_entropy", "kl_mu", "critic_loss")
    return {name.replace("_", " "): row[name] for name in wanted if name in row}


def _refuse_nan(row: dict[str, float]) -> None:
    for name, value in row.items():
        if not math.isfinite(value):
            raise Diverged(f"training diverged by step {row['step']}: {name} is {value}; lower the learning rates.")


def _same_models_as_before(run: Run, models: dict[str, Any]) -> None:
    """A resumed run must stand on the very models it was started with, also when the cache was emptied."""
    manifest = run.read("manifest")
    digest = {name: facts["digest"] for name, facts in models.items() if isinstance(facts, dict)}
    if manifest.setdefault("models", digest) != digest:
        raise UserError(f"the models of {run.path} cannot be rebuilt exactly on this machine: train anew.")
    run.write("manifest", manifest)


def _judge(session: Session, state: Any, clock: _Clock) -> None:
    """Save the policy, and judge the final one: never the best of several."""
    run, config, module, parts = session.run, session.config, session.module, session.parts
    facts = run.read("config")
    origin = {name: facts[name] for name in ("algo", "dataset", "task", "preset", "seed")} | {"step": config.steps}
    network = module.policies(state)["policy"]
    from_network(network, parts.norm, origin).save(run.path / FILE_NAME)
    numbers = {}
    if session.diagnostics:
        arrays, numbers = session.diagnostics.diagnose(config, parts, session.log, state)
        write_arrays(run.path / "diagnostics.safetensors", arrays, numbers)
        numbers |= {"imagined_episodes": session.diagnostics.imagined_size(session.data)[0]}
    judged: dict[str, Any] = {}
    if session.task:
        actor = actor_by_mode(parts.norm)
        judged = evaluate_network(session.task, actor, network, facts["episodes"], JUDGEMENT_SEED).as_dict()
    clock.tick()
    last = run.metrics()[-1]
    result = {name: facts[name] for name in ("algo", "dataset", "task", "seed", "preset")}
    result |= {name: what for name, what in run.read("models").items() if name in ("termination", "reward")}
    result |= {"steps": config.steps, "seconds": round(clock.total(), 1), **judged, **numbers}
    result |= {name: last[name] for name in ("imagined_return", "centre_score", "posterior_entropy") if name in last}
    run.write_metrics_table()
    run.write("result", result)


def _report(run: Run, say: Callable[[str], None]) -> None:
    from pspo.report.page import write_report

    say(f"report: {write_report(run.path)}")


class _Clock:
    """Seconds per phase, added up over interruptions, kept in the manifest."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def __call__(self, phase: str) -> _Clock:
        self.phase = phase
        return self

    def __enter__(self) -> None:
        self.started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self.tick()

    def tick(self) -> None:
        """Add what has passed since the last tick; a kill loses no more than that."""
        manifest = self.run.read("manifest")
        now = time.monotonic()
        manifest["timings"][self.phase] = round(manifest["timings"].get(self.phase, 0.0) + now - self.started, 2)
        self.started = now
        self.run.write("manifest", manifest)

    def total(self) -> float:
        return sum(self.run.read("manifest")["timings"].values())
