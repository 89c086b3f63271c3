"""The gymnasium environment and the NumPy step behind it."""

from __future__ import annotations

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from pspo.core.errors import UserError
from pspo.envs.liquidation import LiquidationEnv, behaviour_action, reset_arrays, step_arrays


def one_step_by_hand(t: float, m: float, p: float, a: float, z: float) -> tuple[list[float], float, bool]:
    """The rules written once more, in plain Python and double precision."""
    sold = m * min(max(a, 0.0), 1.0)
    price = min(max(0.95 * p + 0.075 + 0.2 * z, 0.0), 5.0)
    return [t + 1, m - sold, price], sold * p, t + 1 == 20 or m - sold < 0.1


@given(
    t=st.integers(0, 19),
    m=st.floats(0.125, 100, width=32),
    p=st.floats(0, 5, width=32),
    a=st.floats(-1, 1, width=32),
    z=st.floats(-6, 6, width=32),
)
def test_numpy_step_follows_the_rules(t: int, m: float, p: float, a: float, z: float) -> None:
    next_obs, reward, terminal = step_arrays([t, m, p], [a], z)
    by_hand, reward_by_hand, terminal_by_hand = one_step_by_hand(t, m, p, a, z)
    assert next_obs.dtype == np.float32
    np.testing.assert_allclose(next_obs, by_hand, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(reward, reward_by_hand, rtol=1e-5, atol=1e-4)
    if abs(by_hand[1] - 0.1) > 1e-4:  # closer than that, single precision may fall on either side
        assert bool(terminal) == terminal_by_hand


def test_numpy_step_is_the_same_alone_and_in_a_batch() -> None:
    rng = np.random.default_rng(0)
    obs, action, noise = reset_arrays(rng, 12), behaviour_action(rng, 12), rng.standard_normal(12)
    whole = step_arrays(obs.reshape(3, 4, 3), action.reshape(3, 4, 1), noise.reshape(3, 4))
    for index in range(12):
        alone = step_arrays(obs[index], action[index], noise[index])
        for batched, single in zip(whole, alone, strict=True):
            np.testing.assert_array_equal(batched[index // 4, index % 4], single)


@pytest.mark.parametrize(
    ("t", "inventory", "action", "ends"),
    [
        (18, 100, -1.0, False),
        (19, 100, -1.0, True),
        (0, 100, 1.0, True),
        (0, 100, 0.9995, True),
        (0, 100, 0.9985, False),
    ],
)
def test_an_episode_ends_at_the_horizon_or_when_sold_out(t: int, inventory: float, action: float, ends: bool) -> None:
    assert bool(step_arrays([t, inventory, 1.0], [action], 0.0)[2]) is ends


def test_a_sale_is_paid_at_the_price_before_it_moves_and_the_price_is_clipped() -> None:
    next_obs, reward, _ = step_arrays([[0, 100, 2.0], [0, 100, 2.0]], [[0.5], [0.5]], [1000.0, -1000.0])
    np.testing.assert_array_equal(reward, [100.0, 100.0])
    np.testing.assert_array_equal(next_obs[:, 2], [5.0, 0.0])


def test_the_environment_passes_gymnasiums_checker() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make("pspo/Liquidation-v0", disable_env_checker=True).unwrapped)


def test_seeded_resets_are_equal_and_start_prices_have_the_stated_std() -> None:
    env = LiquidationEnv()
    first, _ = env.reset(seed=3)
    again, _ = env.reset(seed=3)
    np.testing.assert_array_equal(first, again)
    starts = reset_arrays(np.random.default_rng(0), 100_000)
    assert np.all(starts[:, :2] == [0, 100])
    assert starts[:, 2].mean() == pytest.approx(1.0, abs=4 * 0.05 / 100_000**0.5)
    assert starts[:, 2].std() == pytest.approx(0.05, rel=0.01)


def test_holding_lasts_twenty_steps_and_ends_as_a_terminal() -> None:
    env = LiquidationEnv()
    env.reset(seed=0)
    ends = [env.step(np.array([-1.0], np.float32))[1:4] for _ in range(20)]
    assert ends == [(0.0, False, False)] * 19 + [(0.0, True, False)]


def test_step_needs_a_running_episode() -> None:
    env = LiquidationEnv()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(1, np.float32))
    env.reset(seed=0)
    env.step(np.ones(1, np.float32))  # sells everything: the episode is over
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(1, np.float32))


@pytest.mark.parametrize("action", [np.array([np.nan]), np.zeros(2), np.float32(0.0)])
def test_step_refuses_an_invalid_action(action: np.ndarray) -> None:
    env = LiquidationEnv()
    env.reset(seed=0)
    with pytest.raises(UserError, match="finite number"):
        env.step(action)


def test_the_environment_does_not_import_jax() -> None:
    code = "import sys, gymnasium, pspo.envs; gymnasium.make('pspo/Liquidation-v0'); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
