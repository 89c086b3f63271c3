"""Where values run away in model-based algorithms: `python -m benchmarks.runaway DATA/hopper-medium.hdf5 1r2r`.

Two causes are possible: rewards that models extrapolate, and bootstraps at states that no rollout continues from, at
which Q is never trained (Sims et al. 2024, "The edge-of-reach problem in offline model-based reinforcement learning").
Each variant is one run:

- preset: rewards stay inside the dataset's range, rollouts have the preset's few steps
- free-rewards: the same, but rewards are what the models predict
- long-rollouts: as many transitions, but in rollouts of 250 steps: 1 state in 250 is the last one, and not 1 in 5

What is kept, in benchmarks/results/runaway-DATASET-ALGO.json: the mean reward of rollouts (`rollout_reward`) and mean Q
on batches every 1,000 steps, and at the end the score, and Q by the step of a rollout at which a state was reached.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.claims import RESULTS
from pspo.algorithms import get_algorithm, preset
from pspo.algorithms.common.losses import q_values
from pspo.algorithms.common.model_based import model_env
from pspo.core.config import build, parse_settings
from pspo.core.files import write_json
from pspo.core.progress import silent
from pspo.data import load_dataset
from pspo.data.batches import device_dataset
from pspo.data.dataset import Dataset
from pspo.dynamics.model_env import elite_step
from pspo.envs.task import get_task
from pspo.evaluation.simulator import actor_by_mode, evaluate_network
from pspo.training.loop import compile_chunk

LONG = 250
EVERY = 1000
STARTS, FOLLOWED = 5000, 10  # states of the dataset, and steps from there, along which Q is followed
EPISODES = 10
VARIANTS: dict[str, dict[str, Any]] = {"preset": {}, "free-rewards": {}, "long-rollouts": {"rollout_horizon": LONG}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="TASK-LEVEL.hdf5")
    parser.add_argument("algo", choices=("1r2r", "rambo", "mopo"))
    parser.add_argument("variants", nargs="*", default=list(VARIANTS), choices=VARIANTS, metavar="VARIANT")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    name = options.data.stem
    data = load_dataset(options.data, task=name.split("-")[0])
    path = options.results / f"runaway-{name}-{options.algo}.json"
    result: dict[str, Any] = {"dataset": name, "transitions": data.size, "algo": options.algo, "variants": {}}
    result |= {"seed": options.seed, "settings": options.settings}
    if path.exists() and all((kept := json.loads(path.read_text()))[key] == result[key] for key in list(result)[:3]):
        result["variants"] = kept["variants"]
    for variant in options.variants:
        measured = measure(data, options.algo, variant, options.seed, parse_settings(options.settings))
        result["variants"][variant] = measured
        write_json(path, result)
        print(table(variant, measured), flush=True)


def configuration(algo: str, variant: str, name: str, settings: dict[str, str]) -> Any:
    """The preset; long rollouts start from fewer states, so that a chunk has as many transitions."""
    task = name.split("-")[0]
    config = build(get_algorithm(algo).Config, preset(algo, "laptop", task, name), settings)
    longer = VARIANTS[variant].get("rollout_horizon", config.rollout_horizon)
    starts = max(1, config.starts * config.rollout_horizon // longer)
    return dataclasses.replace(config, rollout_horizon=longer, starts=starts)


def measure(data: Dataset, algo: str, variant: str, seed: int, settings: dict[str, str]) -> dict[str, Any]:
    """One run, and Q along rollouts at its end."""
    algorithm, config = get_algorithm(algo), configuration(algo, variant, data.name, settings)
    setup: Any = algorithm.prepare(config, data, seed, silent)[0]
    highest = float(setup.range.reward_high)
    if variant == "free-rewards":
        free = setup.range._replace(reward_low=np.float32(-np.inf), reward_high=np.float32(np.inf))
        setup = setup._replace(range=free)
    device_data = device_dataset(data, setup.norm, config.gamma)
    state = jax.jit(lambda data, key: algorithm.init(config, setup, data, key))(device_data, jax.random.PRNGKey(seed))
    chunk, curve, step = compile_chunk(algorithm, config, setup), [], 0
    while step < config.steps:
        state, metrics = chunk(state, setup.arrays, device_data, length=config.chunk)
        step += config.chunk
        if step % EVERY == 0:
            names = ("q_mean", "q_max", "rollout_reward", "rollout_alive", "entropy")
            curve.append({"step": step} | {name: round(float(metrics[name]), 3) for name in names})
            print(variant, curve[-1], flush=True)
    score = evaluate_network(
        get_task(data.task or ""), actor_by_mode(setup.norm), algorithm.policies(state)["policy"], EPISODES, seed
    ).score
    reward_unit = float(setup.model_norm.reward_scale / setup.norm.reward_scale)
    return {
        "steps": config.steps,
        "rollout_horizon": config.rollout_horizon,
        "largest_value": round(highest * reward_unit / (1.0 - config.gamma), 1),
        "score": round(score, 2),
        "curve": curve,
        "q_by_step": along_rollouts(config, setup, data, state),
    }


def along_rollouts(config: Any, setup: Any, data: Dataset, state: Any) -> list[dict[str, float]]:
    """Mean Q, and reward, at the states that rollouts of the final policy reach."""
    params, key = state.agent.params, jax.random.PRNGKey(1)
    env = model_env(setup)
    obs = jnp.asarray(data.obs[np.linspace(0, data.size - 1, STARTS).astype(int)])
    alive, rows = np.ones(STARTS, bool), []
    forward = jax.jit(lambda obs, key: elite_step(env, setup.arrays.elite, params.actor, obs, key))
    value = jax.jit(lambda f: q_values(params.critic, f, params.actor.unit_action(f)).min(0))
    for number in range(FOLLOWED + 1):
        q = np.asarray(value(setup.norm.encode(obs)))[alive]
        key, now = jax.random.split(key)
        obs, made = forward(obs, now)
        reward = float(np.asarray(made.reward)[alive].mean())
        row = {"alive": alive.mean(), "q_mean": q.mean(), "q_95": np.quantile(q, 0.95), "reward": reward}
        rows.append({"step": number} | {name: round(float(value), 3) for name, value in row.items()})
        alive &= ~np.asarray(made.terminal)
        if not alive.any():
            break
    return rows


def table(variant: str, measured: dict[str, Any]) -> str:
    lines = [f"{variant}: {measured['steps']:,} steps, rollouts of {measured['rollout_horizon']}, "]
    lines[0] += f"score {measured['score']}; no value above {measured['largest_value']} is possible"
    lines += ["| step of a rollout | alive | mean Q | its 95 % quantile | reward |", "|---|---|---|---|---|"]
    for row in measured["q_by_step"]:
        lines.append(
            f"| {row['step']} | {row['alive']:.2f} | {row['q_mean']:.0f} | {row['q_95']:.0f} | {row['reward']:.2f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
