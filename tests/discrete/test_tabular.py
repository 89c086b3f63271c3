"""A small MDP whose optimum is known by value iteration: what every algorithm learns from a dataset that covers it.

The dataset's actions are random and lose money. Of random policies 95 % stay below 0.78 of the optimum. What greedy
policies get: 0.55 with respect to the reward alone, 0.71 with respect to the value of the dataset's behaviour (both are
tested here). An algorithm whose backup, expectile or improvement is broken ends near one of the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pspo
from pspo.data.discrete import label_array
from pspo.training.monitor import SILENT
from tests.discrete import wear

STATES = np.arange(wear.STATES, dtype=np.float32)[:, None]
RULE = ["run"] * 3 + ["repair"] * 4 + ["replace"] * 3


def share_of_optimum(labels: list[str]) -> float:
    """Value of these labels, exactly and averaged over states, as a share of the optimal one."""
    return float(wear.values_of(labels).mean() / wear.optimal_values().mean())


def greedy(value: np.ndarray) -> list[str]:
    rewards, probabilities = wear.arrays()
    return label_array(wear.LABELS)[(rewards + wear.GAMMA * probabilities @ value).argmax(1)].tolist()


def test_the_optimum_is_a_fixed_point_and_shortcuts_miss_it() -> None:
    assert share_of_optimum(greedy(wear.optimal_values())) == pytest.approx(1.0)
    np.testing.assert_allclose(wear.values_of(greedy(wear.optimal_values())), wear.optimal_values(), rtol=1e-9)
    rewards, probabilities = wear.arrays()
    behaviour = np.linalg.solve(np.eye(wear.STATES) - wear.GAMMA * probabilities.mean(1), rewards.mean(1))
    assert behaviour.mean() < 0.0
    assert share_of_optimum(greedy(np.zeros(wear.STATES))) == pytest.approx(0.55, abs=0.01)
    assert share_of_optimum(greedy(behaviour)) == pytest.approx(0.71, abs=0.01)
    rng = np.random.default_rng(0)
    shares = [share_of_optimum(rng.choice(wear.LABELS, wear.STATES).tolist()) for _ in range(500)]
    assert np.quantile(shares, 0.95) < 0.8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algo", "settings", "least"),
    [
        ("pspo", {}, 0.98),
        ("mopo", {}, 0.98),
        ("iql", {"expectile": 0.9}, 0.95),  # in the tabular case 0.9 gives the optimum, the default 0.7 gives 0.71
        ("cql", {}, 0.85),
    ],
)
def test_learned_policies_come_close_to_the_optimum(
    algo: str, settings: dict[str, Any], least: float, tmp_path: Path
) -> None:
    run = pspo.train(
        wear.dataset(), algo, settings={"gamma": wear.GAMMA} | settings, out=tmp_path / "run", monitor=SILENT
    )
    assert share_of_optimum(run.policy(STATES).tolist()) >= least


@pytest.mark.slow
def test_bc_has_the_frequencies_of_the_dataset(tmp_path: Path) -> None:
    """They are its exact answer; state 9 has few rows, so that they differ from the behaviour's probabilities."""
    dataset = wear.dataset(rule=RULE)
    run = pspo.train(dataset, "bc", out=tmp_path / "run", monitor=SILENT)
    assert run.policy(STATES).tolist() == RULE
    frequencies = [dataset.action[dataset.obs[:, 0] == state].mean(axis=0) for state in range(wear.STATES)]
    np.testing.assert_allclose(run.policy.probabilities(STATES), frequencies, atol=0.05)
