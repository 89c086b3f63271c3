"""1R2R: what a step of its rollouts draws, how it values and chooses outcomes, against NumPy; and how it starts."""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from pspo.algorithms import one_risk, rambo
from pspo.algorithms.common.model_based import Arrays, Setup, fresh_params
from pspo.algorithms.common.sac import Params
from pspo.algorithms.one_risk import Config
from pspo.algorithms.registry import preset
from pspo.core.config import build
from pspo.data.batches import Transitions
from pspo.dynamics.model_env import ModelEnv
from pspo.dynamics.termination import KnownTermination
from pspo.nets.actors import TanhGaussian
from pspo.nets.mlp import MLP
from tests.algorithms.baseline_cases import critics_by_hand, made_config, made_data, made_setup, net_by_hand
from tests.arrays import equal_bits, f32
from tests.dynamics.dynamics_cases import made_ensemble, plain_norm, predict_by_hand, unlimited

STATES, END, ELITE, KEY = 60, -0.5, jnp.array([2, 0]), jax.random.PRNGKey(5)
MODELS, MODEL_NORM = made_ensemble(), plain_norm()
# The critics' units are not the models': other states, and rewards that are four times as large.
NORM = plain_norm()._replace(
    obs_mean=np.array([0.3, -0.1], np.float32),
    obs_std=np.array([2.0, 0.7], np.float32),
    reward_scale=np.asarray(0.5, np.float32),
)
ENV = ModelEnv(
    MODELS, KnownTermination(lambda obs, action, next_obs: next_obs[..., 0] > END), MODEL_NORM, NORM, unlimited()
)
RNG = np.random.default_rng(0)
OBS = RNG.normal(size=(STATES, 2))


def made_net(*sizes: int, members: tuple[int, ...] = ()) -> MLP:
    weights = [f32(RNG.normal(scale=0.7, size=(*members, *shape))) for shape in pairwise(sizes)]
    return MLP(weights, [f32(RNG.normal(scale=0.3, size=(*members, size))) for size in sizes[1:]], "relu")


PARAMS = Params(TanhGaussian(made_net(2, 5, 2), -20.0, 2.0), made_net(3, 6, 1, members=(2,)), jnp.float32(0.0))


def config_of(**changes: Any) -> Config:
    return Config(**({"gamma": 0.9, "candidates": 10} | changes))


@cache
def stepped(config: Config) -> Transitions:
    step = jax.jit(partial(one_risk.risky_step, config, ENV, ELITE, PARAMS))
    after, rows = step(f32(OBS), KEY)
    np.testing.assert_array_equal(after, rows.next_obs)
    return Transitions(*(np.asarray(part) for part in rows))


def act_by_hand(obs: np.ndarray, key: Any) -> np.ndarray:
    """The policy's own draw: tanh(mean + std noise) of the encoded observation."""
    mean, log_std = np.split(net_by_hand(PARAMS.actor.net, (obs - NORM.obs_mean) / NORM.obs_std), 2, axis=-1)
    noise = np.asarray(jax.random.normal(key, mean.shape), np.float64)
    return np.tanh(mean + np.exp(np.clip(log_std, -20.0, 2.0)) * noise)


class ByHand(NamedTuple):
    action: np.ndarray
    reward: np.ndarray  # (candidates, states), as the next three
    next_obs: np.ndarray
    terminal: np.ndarray
    value: np.ndarray


def candidates_by_hand(count: int = 10) -> ByHand:
    """Every successor from its own member, with its value by the smaller critic at a drawn a'."""
    k_action, k_outcome, k_value, _ = jax.random.split(KEY, 4)
    k_member, k_noise = jax.random.split(k_outcome)
    action = act_by_hand(OBS, k_action)
    x = np.concatenate([(OBS - MODEL_NORM.obs_mean) / MODEL_NORM.obs_std, action], axis=1)
    mean, std = (np.stack(part) for part in zip(*(predict_by_hand(MODELS, m, x) for m in range(3)), strict=True))
    member = np.asarray(ELITE)[np.asarray(jax.random.randint(k_member, (count, STATES), 0, 2))]
    noise = np.asarray(jax.random.normal(k_noise, (count, STATES, 3)), np.float64)
    target = mean[member, np.arange(STATES)] + std[member, np.arange(STATES)] * noise
    next_obs, reward = OBS + target[..., :2], target[..., 2] * 2.0 / 0.5
    terminal = next_obs[..., 0] > END
    features = (next_obs - NORM.obs_mean) / NORM.obs_std
    after = critics_by_hand(PARAMS.critic, features, act_by_hand(next_obs, k_value)).min(axis=0)
    return ByHand(action, reward, next_obs, terminal, reward + 0.9 * np.where(terminal, 0.0, after))


def assert_taken(rows: Transitions, by_hand: ByHand, chosen: np.ndarray) -> None:
    pick = chosen, np.arange(STATES)
    np.testing.assert_allclose(rows.obs, OBS, rtol=1e-6)
    np.testing.assert_allclose(rows.action, by_hand.action, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rows.next_obs, by_hand.next_obs[pick], rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(rows.reward, by_hand.reward[pick], rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(rows.terminal, by_hand.terminal[pick])


def test_the_strictest_cvar_takes_the_worst_of_ten_and_values_nothing_after_an_end() -> None:
    by_hand = candidates_by_hand()
    assert 0.1 < by_hand.terminal.mean() < 0.9
    assert_taken(stepped(config_of(cvar_alpha=0.1)), by_hand, by_hand.value.argmin(axis=0))


def chosen_ranks(rows: Transitions, by_hand: ByHand) -> np.ndarray:
    """Which of a state's own candidates it got, found by its next observation, in the order of values."""
    chosen = np.abs(by_hand.next_obs - rows.next_obs).max(axis=-1).argmin(axis=0)
    assert_taken(rows, by_hand, chosen)
    return scipy.stats.rankdata(by_hand.value, axis=0)[chosen, np.arange(STATES)].astype(int)


def test_cvar_takes_any_of_the_lower_ones_for_every_state() -> None:
    ranks = chosen_ranks(stepped(config_of(cvar_alpha=0.5)), candidates_by_hand())
    assert set(ranks) == {1, 2, 3, 4, 5}
    assert max(np.bincount(ranks)) < 0.5 * STATES


def test_wang_prefers_the_worse_and_rules_out_none() -> None:
    afraid = chosen_ranks(stepped(config_of(risk="wang", wang_eta=1.0)), candidates_by_hand())
    hopeful = chosen_ranks(stepped(config_of(risk="wang", wang_eta=-1.0)), candidates_by_hand())
    assert afraid.mean() < 4.0 < 7.0 < hopeful.mean()
    assert afraid.max() > 5


def test_the_neutral_one_draws_a_single_successor_and_keeps_it() -> None:
    assert_taken(stepped(config_of(risk="neutral")), candidates_by_hand(1), np.zeros(STATES, int))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"risk": "neutral"}, [1.0]),
        ({"candidates": 4, "cvar_alpha": 0.5}, [0.5, 0.5, 0.0, 0.0]),
        ({"candidates": 2, "risk": "wang", "wang_eta": 0.5}, [0.691462, 0.308538]),
    ],
)
def test_probabilities_are_those_of_the_risk_measure(changes: dict[str, Any], expected: list[float]) -> None:
    np.testing.assert_allclose(one_risk.rank_weights(config_of(**changes)), expected, atol=1e-6)


def test_rollouts_are_valued_by_the_online_critics_and_not_by_the_target() -> None:
    config = made_config(one_risk, starts=30, rollout_horizon=2, retain=1, cloning_steps=0, cvar_alpha=0.1)
    norm = plain_norm(action_dim=2)
    models = made_ensemble(inputs=4)
    setup = Setup(Arrays(models, jnp.arange(3), ENV.terminated), norm, norm, unlimited(norm.obs_mean.size))
    data = made_data()
    state = one_risk.init(config, setup, data, jax.random.PRNGKey(0))
    begin_chunk = jax.jit(lambda state: one_risk.begin_chunk(config, setup, data, state)[0])
    other = jax.tree.map(lambda leaf: -leaf, state.agent.params.critic)
    agent = state.agent
    online = agent._replace(params=agent.params._replace(critic=other))
    usual, by_target, by_online = (
        begin_chunk(state._replace(agent=one)) for one in (agent, agent._replace(target_critic=other), online)
    )
    assert 30 <= int(usual.buffer.size) <= 60
    assert equal_bits(usual.buffer, by_target.buffer)
    assert not equal_bits(usual.buffer.transitions.next_obs, by_online.buffer.transitions.next_obs)
    np.testing.assert_array_equal(
        usual.buffer.transitions.obs[:30], by_online.buffer.transitions.obs[:30]
    )  # the same starts
    assert not equal_bits(usual.key, state.key)


def test_it_starts_from_behaviour_cloning_with_new_critics() -> None:
    """Actions at their bounds, of which the dataset has some, are imitated too."""
    data, start = made_data(), {}
    for steps in (0, 150):
        config = made_config(one_risk, starts=5, cloning_steps=steps, cloning_lr=0.01)
        start[steps] = jax.jit(partial(one_risk.init, config, made_setup()))(data, KEY)  # pyright: ignore
    fresh = fresh_params(made_config(one_risk), made_setup().norm, 2, jax.random.split(KEY, 3)[1])
    assert equal_bits(jax.tree.leaves(start[0].agent.params.critic), jax.tree.leaves(start[150].agent.params.critic))
    for found, expected in zip(jax.tree.leaves(start[0].agent.params), jax.tree.leaves(fresh), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    features = made_setup().norm.encode(data.transitions.obs)
    before, after = (
        float(s.agent.params.actor.log_prob(features, data.transitions.action).mean()) for s in start.values()
    )
    assert np.isfinite(after)
    assert after > before + 0.5
    assert equal_bits(start[150].agent.target_critic, start[150].agent.params.critic)
    assert int(start[150].step) == int(start[150].buffer.size) == 0


def test_the_defaults_are_the_authors() -> None:
    config = Config()
    assert (config.risk, config.cvar_alpha, config.wang_eta, config.candidates) == ("cvar", 0.9, 0.1, 10)
    assert (config.real_ratio, config.starts, config.retain, config.elites) == (0.5, 50_000, 5, 5)
    assert (config.critic_lr, config.actor_lr, config.cloning_lr) == (3e-4, 1e-4, 1e-4)


@pytest.mark.parametrize("name", ["laptop", "paper"])
@pytest.mark.parametrize("task", ["liquidation", "hopper", "walker2d", "halfcheetah", None])
def test_it_shares_the_models_of_rambo(name: str, task: str | None) -> None:
    """The same model settings and discount, which the cache knows a pool by."""
    here, there = build(Config, preset("1r2r", name, task)), build(rambo.Config, preset("rambo", name, task))
    assert (here.model, here.gamma) == (there.model, there.gamma)


@pytest.mark.parametrize("name", ["laptop", "paper"])
def test_risk_and_horizon_follow_the_dataset(name: str) -> None:
    found = build(Config, preset("1r2r", name, "hopper", "hopper-medium-replay-v2"))
    assert (found.cvar_alpha, found.wang_eta, found.rollout_horizon) == (0.5, 0.75, 1)
    found = build(Config, preset("1r2r", name, "liquidation"))
    assert (found.cvar_alpha, found.rollout_horizon, found.elites) == (0.5, 1, 1)
