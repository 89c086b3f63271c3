"""Looking tasks up by name."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from pspo.core.errors import UserError
from pspo.envs.liquidation import LiquidationEnv
from pspo.envs.mujoco import borrow_env
from pspo.envs.task import get_task


def test_scores_are_normalised_between_random_and_expert() -> None:
    task = get_task("liquidation")
    assert (task.normalised(0.0), task.normalised(135.0)) == (0.0, 100.0)
    np.testing.assert_allclose(task.normalised(np.array([67.5, 137.476])), [50.0, 101.8341], atol=1e-4)
    assert task.normalised(task.optimal_return) == pytest.approx(101.83, abs=0.01)


def test_an_unknown_task_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match="unknown task 'liquidaton': did you mean 'liquidation'"):
        get_task("liquidaton")


@pytest.mark.parametrize("name", ["liquidation", "hopper", "walker2d", "halfcheetah"])
def test_sizes_are_those_of_the_simulator(name: str) -> None:
    if name == "liquidation":
        env = LiquidationEnv()
    else:
        pytest.importorskip("mujoco", reason="needs the extra pspo[mujoco]")
        env = borrow_env(name)
    task = get_task(name)
    assert env.observation_space.shape == (task.obs_dim,)
    assert env.action_space.shape == (task.action_dim,)


def test_the_module_alone_does_not_import_jax() -> None:
    code = "import sys, pspo.envs.task; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
