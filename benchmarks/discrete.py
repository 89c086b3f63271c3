"""Algorithms on CartPole-v1, from the log of a noisy controller: `python -m benchmarks.discrete`.

The log is a table of columns as a company would have it: no simulator, no task, no settings, the laptop preset. Final
policies are evaluated by the NumPy policy in gymnasium. Writes benchmarks/results/discrete-cartpole-ALGORITHM.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import pspo
from pspo.training.monitor import SILENT

RESULTS = Path("benchmarks/results")
OBSERVATION = ("position", "velocity", "angle", "angular_velocity")
LABELS = np.array(["left", "right"])
TRANSITIONS, RANDOM = 20_000, 0.3
EPISODES, FIRST_EVALUATION_SEED = 20, 1_000_000
ALGORITHMS = ("pspo", "bc", "iql", "cql", "mopo")
SEEDS = (0, 1, 2, 3)

Act = Callable[[np.ndarray], str]


def controller(obs: np.ndarray) -> str:
    """Pushes towards the side to which the pole falls, but leans to one side: the cart runs off the track."""
    return LABELS[int(obs[2] + 0.2 * obs[3] + 0.03 > 0)]


def collect(seed: int, transitions: int = TRANSITIONS) -> dict[str, np.ndarray]:
    """The log as columns: whole episodes of the controller, a fraction `RANDOM` of whose actions are random."""
    rng, rows = np.random.default_rng(seed), []
    with gymnasium.make("CartPole-v1") as env:
        while len(rows) < transitions:
            obs, _ = env.reset(seed=int(rng.integers(2**31)))
            ended = False
            while not ended:
                label = str(rng.choice(LABELS)) if rng.random() < RANDOM else controller(obs)
                after, reward, terminal, cut, _ = env.step(int(label == "right"))
                rows.append((*obs, label, float(reward), terminal, cut and not terminal))
                obs, ended = after, terminal or cut
    names = (*(f"obs_{name}" for name in OBSERVATION), "action", "reward", "terminal", "timeout")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=True)}


def episode_returns(log: dict[str, np.ndarray]) -> np.ndarray:
    """Returns of the log's episodes."""
    ends = np.flatnonzero(log["terminal"] | log["timeout"])
    return np.diff(np.cumsum(log["reward"])[ends], prepend=0.0)


def returns_of(act: Act, episodes: int = EPISODES) -> np.ndarray:
    """Returns of a policy in CartPole-v1, always from the same initial states."""
    returns = np.zeros(episodes)
    with gymnasium.make("CartPole-v1") as env:
        for number in range(episodes):
            obs, _ = env.reset(seed=FIRST_EVALUATION_SEED + number)
            ended = False
            while not ended:
                obs, reward, terminal, cut, _ = env.step(int(act(obs) == "right"))
                returns[number] += float(reward)
                ended = terminal or cut
    return returns


def train(algo: str, seed: int, out: Path, **settings: Any) -> pspo.Policy:
    """The final policy from the log of this seed."""
    return pspo.train(collect(seed), algo, seed=seed, out=out, settings=settings, columns={}, monitor=SILENT).policy


def measure(algo: str, seed: int, settings: dict[str, Any]) -> dict[str, float]:
    """Mean return of the final policy, and seconds of training."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        policy = train(algo, seed, Path(folder) / "run", **settings)
    return {"seconds": round(time.perf_counter() - started, 1), "return": float(returns_of(policy).mean())}


def summary(values: list[float]) -> dict[str, float]:
    """Mean, and standard deviation over seeds."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values, ddof=1)) if len(values) > 1 else 0.0}


def result(algo: str, seeds: list[int], steps: int | None = None) -> dict[str, Any]:
    """Returns of the log, of its controller without noise, and of the algorithm's final policies."""
    logged = [float(episode_returns(collect(seed)).mean()) for seed in seeds]
    runs = [measure(algo, seed, {"steps": steps} if steps else {}) for seed in seeds]
    return {
        "command": f"python -m benchmarks.discrete {algo}" + (f" --steps {steps}" if steps else ""),
        "transitions": TRANSITIONS,
        "random": RANDOM,
        "episodes": EPISODES,
        "seeds": seeds,
        "dataset": summary(logged) | {"returns": logged},
        "controller": float(returns_of(controller).mean()),
        **summary([run["return"] for run in runs]),
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("algos", nargs="*", help=f"of {', '.join(ALGORITHMS)}; all by default")
    parser.add_argument("--seeds", nargs="+", type=int, default=[*SEEDS])
    parser.add_argument("--steps", type=int, help="iterations; by default those of the preset")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    options = parser.parse_args()
    if unknown := set(options.algos) - set(ALGORITHMS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    for algo in options.algos or ALGORITHMS:
        measured = result(algo, options.seeds)
        (options.out / f"discrete-cartpole-{algo}.json").write_text(json.dumps(measured, indent=2) + "\n")
        print(f"{algo:5} {measured['mean']:6.1f} +- {measured['std']:5.1f}", flush=True)


if __name__ == "__main__":
    main()
