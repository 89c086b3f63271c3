"""CartPole-v1 from the log of a noisy controller that runs off the track: the learned policy stays on it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.discrete import LABELS, RANDOM, collect, controller, episode_returns, returns_of, train

SEED = 11  # neither one of the benchmark's nor one that settings were chosen on


def test_the_log_is_that_of_a_noisy_controller_that_fails() -> None:
    log = collect(SEED, transitions=3000)
    obs = np.stack([log[name] for name in log if name.startswith("obs_")], axis=1)
    agreed = np.mean([controller(row) == label for row, label in zip(obs, log["action"], strict=True)])
    assert agreed == pytest.approx(1.0 - RANDOM / 2, abs=0.03)  # half of the random ones agree too
    assert episode_returns(log).sum() == len(obs)
    assert (log["terminal"] | log["timeout"])[-1]
    assert 100 < episode_returns(log).mean() < 300
    assert 200 < returns_of(controller, episodes=5).mean() < 300  # imitating it is not enough
    assert returns_of(lambda obs: LABELS[0], episodes=5).mean() < 15


@pytest.mark.slow
def test_pspo_balances_the_pole_with_the_default_preset(tmp_path: Path) -> None:
    assert returns_of(train("pspo", SEED, tmp_path / "run")).mean() >= 450
