"""The JAX simulator agrees with the environment, and its scores and regrets with the exact optimum."""

from __future__ import annotations

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.core.errors import UserError
from pspo.envs import liquidation_jax as simulator
from pspo.envs import liquidation_optimum
from pspo.envs.liquidation import LiquidationEnv, step_arrays
from pspo.envs.task import Simulation

EPISODES = 100_000


def hold_to_the_end(obs):
    return jnp.where(obs[:, :1] >= 19, 1.0, -1.0)


def sell_evenly(obs):
    return 1 / (20 - obs[:, :1])


def sell_at_once(obs):
    return jnp.ones_like(obs[:, :1])


@pytest.fixture(scope="module")
def played() -> dict[str, Simulation]:
    key = jax.random.key(7)
    policies = {"hold": hold_to_the_end, "twap": sell_evenly, "now": sell_at_once, "optimal": simulator.optimal}
    result = {name: simulator.simulate(act, key, EPISODES) for name, act in policies.items()}
    result["behaviour"] = simulator.simulate(simulator.behaviour, key, EPISODES, stochastic=True)
    return result


def standard_error(values: np.ndarray) -> float:
    return float(values.std() / len(values) ** 0.5)


def random_steps(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    obs = np.stack([rng.integers(0, 20, n), rng.uniform(0.1, 100, n), rng.uniform(0, 5, n)], axis=-1)
    return (
        obs.astype(np.float32),
        rng.uniform(-1.2, 1.2, (n, 1)).astype(np.float32),
        rng.standard_normal(n).astype(np.float32),
    )


def test_step_agrees_with_numpy() -> None:
    obs, action, noise = random_steps(20_000)
    ours, theirs = simulator.step(*map(jnp.asarray, (obs, action, noise))), step_arrays(obs, action, noise)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, atol=1e-4)
    clear = np.abs(theirs[0][:, 1] - 0.1) > 1e-5
    np.testing.assert_array_equal(np.asarray(ours[2])[clear], theirs[2][clear])


def test_a_whole_episode_agrees_with_the_environment() -> None:
    env = LiquidationEnv()
    for seed in range(5):
        env_obs, _ = env.reset(seed=seed)
        noise = copy.deepcopy(env.np_random).standard_normal(20)
        actions = np.random.default_rng(seed).uniform(-1, 0.5, (20, 1)).astype(np.float32)
        obs, over = jnp.asarray(env_obs), False
        for action, shock in zip(actions, noise, strict=True):
            env_obs, env_reward, over, _, _ = env.step(action)
            obs, reward, terminal = simulator.step(obs, jnp.asarray(action), jnp.float32(shock))
            np.testing.assert_allclose(obs, env_obs, rtol=1e-5, atol=1e-5)
            assert float(reward) == pytest.approx(env_reward, rel=1e-5, abs=1e-4)
            assert bool(terminal) is over
            if over:
                break
        assert over


def test_termination_is_known_for_predicted_states_of_any_batch_shape() -> None:
    predicted = jnp.array([[19.6, 50, 1], [19.4, 50, 1], [3.1, 0.09, 1], [3.1, 0.11, 1]]).reshape(2, 1, 2, 3)
    ends = simulator.terminated(jnp.zeros((2, 1, 2, 3)), jnp.zeros((2, 1, 2, 1)), predicted)
    np.testing.assert_array_equal(ends, np.array([True, False, True, False]).reshape(2, 1, 2))


@pytest.mark.parametrize(
    ("policy", "mean", "rounding"),
    [("hold", 131.9, 0.1), ("twap", 118.3, 0.1), ("now", 100.0, 0.0), ("behaviour", 98.9, 0.05)],
)
def test_known_policies_have_their_known_scores(played, policy: str, mean: float, rounding: float) -> None:
    returns = played[policy].returns
    assert returns.shape == (EPISODES,)
    assert returns.mean() == pytest.approx(mean, abs=rounding + 3 * standard_error(returns))


def test_the_optimal_policy_earns_the_optimum_without_regret(played) -> None:
    best = played["optimal"]
    exact = liquidation_optimum.solve().mean_return
    assert best.returns.mean() == pytest.approx(exact, abs=3 * standard_error(best.returns))
    assert best.regret.max() < 1e-4


@pytest.mark.parametrize("policy", ["hold", "twap", "now", "behaviour"])
def test_regret_is_the_distance_to_the_optimum_with_less_noise(played, policy: str) -> None:
    result = played[policy]
    shortfall = liquidation_optimum.solve().mean_return - result.returns.mean()
    noise = standard_error(result.returns) + standard_error(result.regret)
    assert result.regret.mean() == pytest.approx(shortfall, abs=3 * noise)
    assert standard_error(result.regret) < standard_error(result.returns)
    assert result.regret.min() >= 0


def test_the_regret_of_holding_matches_its_exact_value(played) -> None:
    # Holding earns 100 E[p_19]: the expected price, carried back through its transitions.
    prices, transition = liquidation_optimum._price_transitions(2001)
    expected_price = prices
    for _ in range(19):
        expected_price = transition @ expected_price
    holding = 100 * liquidation_optimum._start_mean(prices, expected_price)
    assert holding == pytest.approx(131.9, abs=0.1)
    regret = played["hold"].regret
    exact = liquidation_optimum.solve().mean_return - holding
    assert regret.mean() == pytest.approx(exact, abs=3 * standard_error(regret))


def test_step_regret_is_v_minus_q() -> None:
    obs, action, _ = random_steps(20_000)
    by_tables = liquidation_optimum.v_value(obs) - liquidation_optimum.q_value(obs, action)
    ours = np.asarray(simulator.step_regret(jnp.asarray(obs), jnp.asarray(action)))
    np.testing.assert_allclose(ours, by_tables, rtol=1e-4, atol=1e-3)


def test_the_optimal_policy_is_the_same_in_numpy() -> None:
    obs, _, _ = random_steps(20_000)
    agree = np.asarray(simulator.optimal(jnp.asarray(obs))) == liquidation_optimum.optimal_action(obs)
    assert agree.mean() > 0.999  # single precision may differ on the threshold itself


def test_lengths_and_trajectory_agree() -> None:
    result = simulator.simulate(simulator.behaviour, jax.random.key(1), 400, stochastic=True, trajectory=True)
    path = result.trajectory
    assert path is not None
    assert path.shape == (400, 20, 4)
    lived = ~np.isnan(path[..., 0])
    np.testing.assert_array_equal(lived.sum(axis=1), result.lengths)
    for episode in range(400):
        steps = path[episode, lived[episode]]
        np.testing.assert_array_equal(steps[:, 0], np.arange(len(steps)))
        sold = steps[:, 1] * np.clip(steps[:, 3], 0, 1)
        assert (sold * steps[:, 2]).sum() == pytest.approx(result.returns[episode], rel=1e-4)
        np.testing.assert_allclose(steps[1:, 1], (steps[:, 1] - sold)[:-1], atol=1e-3)


def test_the_key_decides_the_prices_and_policies_share_them() -> None:
    key = jax.random.key(3)
    first = simulator.simulate(sell_at_once, key, 50, trajectory=True)
    again = simulator.simulate(sell_at_once, key, 50)
    held = simulator.simulate(hold_to_the_end, key, 50, trajectory=True)
    other = simulator.simulate(sell_at_once, jax.random.key(4), 50)
    np.testing.assert_array_equal(first.returns, again.returns)
    np.testing.assert_array_equal(first.trajectory[:, 0, :3], held.trajectory[:, 0, :3])
    assert not np.array_equal(first.returns, other.returns)
    assert again.trajectory is None


def test_batches_are_joined_and_distinct(monkeypatch) -> None:
    monkeypatch.setattr(simulator, "_BATCH", 40)
    result = simulator.simulate(sell_at_once, jax.random.key(0), 101)
    assert result.returns.shape == result.regret.shape == result.lengths.shape == (101,)
    assert len(np.unique(result.returns)) > 90


def test_parameters_of_a_partial_do_not_compile_again() -> None:
    traces = []

    def sell_above(level, obs):
        traces.append(level)
        return jnp.where(obs[:, 2:] > level, 1.0, -1.0)

    for level in (1.0, 1.2, 1.4):
        simulator.simulate(jax.tree_util.Partial(sell_above, jnp.float32(level)), jax.random.key(0), 10)
    assert len(traces) == 1


@pytest.mark.parametrize("episodes", [0, -3, 2.5, True])
def test_a_bad_number_of_episodes_is_refused(episodes) -> None:
    with pytest.raises(UserError, match=f"episodes={episodes} is out of range"):
        simulator.simulate(sell_at_once, jax.random.key(0), episodes)
