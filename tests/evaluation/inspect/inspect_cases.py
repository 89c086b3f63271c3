"""A table to learn from, and the inspection of a row with the networks behind it, to compute it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pspo.data import Dataset, load_dataset
from pspo.evaluation.config import evaluation_config
from pspo.evaluation.inspect.coverage import compared_transitions
from pspo.evaluation.inspect.inspection import Inspection
from pspo.evaluation.inspect.networks import Networks
from pspo.evaluation.problem import make_problem, return_without_limit
from pspo.policies.heads import Net
from pspo.policies.policy import load_policy
from pspo.runs.directory import open_run

ROW = 7
COLUMNS = {"obs": "speed,load,heat", "action": "valve,fan", "reward": "gain", "timeout": "cut"}


def write_table(path: Path, rows: int = 600, seed: int = 0) -> None:
    """Episodes of ten rows, cut off (the last row is dropped), in which heat counts up and speed may be negative."""
    rng = np.random.default_rng(seed)
    lines = ["speed,load,heat,valve,fan,gain,cut"]
    for i in range(rows):
        speed, load = rng.normal(-1.0, 2.0), rng.uniform(0.0, 5.0)
        valve, fan = rng.uniform(-1.0, 1.0), rng.uniform(2.0, 4.0)
        gain = speed * valve - 0.3 * (fan - 3.0) ** 2 + 0.1 * rng.normal()
        lines.append(f"{speed:.4f},{load:.4f},{i % 10},{valve:.4f},{fan:.4f},{gain:.4f},{int(i % 10 == 9)}")
    path.write_text("\n".join(lines) + "\n")


class InspectedRun:
    def __init__(self, path: Path, found: Inspection, networks: Networks) -> None:
        self.found, self.networks, self.run = found, networks, open_run(path)
        run_config = self.run.read("config")
        self.data: Dataset = load_dataset(run_config["dataset"], run_config["columns"], run_config["task"])
        config = evaluation_config(self.data, "smoke")
        self.policy = load_policy(path)
        evaluated = return_without_limit(self.data, run_config["settings"]["gamma"])
        self.problem = make_problem(self.policy, self.data, evaluated, config.pspo.gamma)
        self.compared = self.data.obs[compared_transitions(self.data)]
        self.obs = self.data.obs[ROW]

    def features(self, obs: Any = None) -> np.ndarray:
        return self.networks.norm.encode(np.asarray(self.obs if obs is None else obs))

    def unit(self, action: Any) -> np.ndarray:
        return np.asarray(self.networks.norm.unit_action(np.asarray(action, np.float32)))

    def q(self, obs: np.ndarray, unit: np.ndarray) -> np.ndarray:
        """(critics, rows) by NumPy, in the dataset's units."""
        x, critic = np.concatenate([self.features(obs), unit], axis=-1), self.networks.evaluators.critic
        each = [member_net(critic, i)(x)[..., 0] for i in range(critic.biases[0].shape[0])]
        return float(self.networks.norm.reward_scale) * np.stack(each)


def plain_net(net: Any) -> Net:
    """In double precision."""
    weights, biases = (tuple(np.asarray(layer, np.float64) for layer in part) for part in (net.weights, net.biases))
    return Net(weights, biases, net.activation)


def member_net(stack: Any, i: int) -> Net:
    parts = (stack.weights, stack.biases)
    weights, biases = (tuple(np.asarray(layer[i], np.float64) for layer in part) for part in parts)
    return Net(weights, biases, stack.activation)
