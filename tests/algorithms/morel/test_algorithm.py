"""MOReL: where rollouts halt and what a halt pays, and both thresholds, against NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms.common import model_based
from pspo.algorithms.morel import algorithm as morel
from pspo.algorithms.morel import npg as morel_npg
from pspo.core.config import build
from pspo.core.errors import UserError
from pspo.core.renamed import new_settings
from pspo.data.normalise import fit_normaliser
from pspo.dynamics.ensemble import Ensemble
from pspo.dynamics.pool import Pool
from pspo.nets.actors import LinearGaussian
from pspo.nets.mlp import MLP
from tests.algorithms.baseline_cases import made_data
from tests.algorithms.tiny_task import tiny_dataset
from tests.arrays import f32
from tests.dynamics.dynamics_cases import made_ensemble, plain_norm, predict_by_hand, unlimited

KEY = jax.random.PRNGKey(7)


def test_the_defaults_are_the_authors() -> None:
    config = morel.Config()
    assert (config.pessimism, config.caution, config.halt_penalty) == ("max", 3.0, 0.0)
    assert (config.paths, config.rollout_horizon, config.elites, config.gae) == (50, 700, 4, 0.97)
    assert (config.step_size, config.cg_steps, config.damping, config.fisher_batch) == (0.02, 20, 1e-3, 0)
    assert (config.log_std, config.log_std_min, config.log_std_max) == (-0.25, -1.0, 1.0)
    assert (config.baseline_width, config.baseline_lr, config.baseline_decay) == (128, 1e-3, 1e-3)


# Two members that agree on everything but what an action does to the first column

HORIZON, PENALTY, THRESHOLD = 6, 0.7, 0.2
MODEL_NORM = plain_norm()._replace(obs_mean=np.zeros(2, np.float32), obs_std=np.array([2.0, 1.0], np.float32))
NORM = MODEL_NORM._replace(reward_scale=np.asarray(0.5, np.float32))
STARTS = [[0.0, 0.15], [3.0, -0.5], [1.0, 1.5], [2.0, -0.35]]


def two_members() -> Ensemble:
    """One does not move the first column, the other by the action; both add 0.1 to the second. Rewards 1 and 2."""
    weights, biases = np.zeros((2, 3, 6)), np.zeros((2, 6))
    weights[1, 2, 0] = 1.0
    biases[:, 1], biases[:, 2] = 0.1, [1.0, 2.0]
    net = MLP([f32(weights)], [f32(biases)], "silu")
    return Ensemble(net, f32(np.full((2, 3), -5.0)), f32(np.full((2, 3), 0.5)), f32(np.zeros(3)), f32(np.ones(3)))


def near(norm: Any, obs: Any, action: Any, next_obs: Any) -> Any:
    """A task that is over where the second column gets to -0.15."""
    return jnp.abs(next_obs[..., 1] + 0.15) < 0.01


def two_member_setup() -> morel.Setup:
    arrays = morel.Arrays(two_members(), near, f32(STARTS), jnp.float32(THRESHOLD))  # pyright: ignore[reportArgumentType]
    return morel.Setup(arrays, NORM, MODEL_NORM, unlimited())


def path_by_hand(start: np.ndarray, member: int) -> list[tuple[Any, ...]]:
    """(obs, drawn action, reward, next_obs, terminal, halted) of every step that happens."""
    obs, steps = np.asarray(start, np.float64), []
    for _ in range(HORIZON):
        drawn = obs[1]  # the policy: its mean is the second column, and its noise is nothing
        action = np.clip(drawn, -1.0, 1.0)
        after = obs + np.array([action * member, 0.1])
        halted = abs(action) / 2.0 > THRESHOLD  # in units of the column's standard deviation
        reward = (2.0 * (1 + member) - PENALTY * halted) / 0.5  # models' unit 2, critics' 0.5, penalty raw
        ended = abs(after[1] + 0.15) < 0.01
        steps.append((obs, drawn, reward, after, halted or ended, halted))
        if halted or ended:
            break
        obs = after
    return steps


def test_rollouts_halt_where_two_models_disagree() -> None:
    """By construction: where the action exceeds 0.4 in size. Every path is in one member, and pays for a halt only."""
    config = morel.Config(paths=12, rollout_horizon=HORIZON, halt_penalty=PENALTY)
    policy = LinearGaussian(MLP([f32([[0.0], [1.0]])], [f32([0.0])], "tanh"), f32([-30.0]))
    disc = jnp.zeros((24, 2))
    roll = jax.jit(lambda key: morel.roll(config, two_member_setup(), policy, disc, key))
    paths, alive = jax.tree.map(np.asarray, roll(KEY))
    assert alive.shape == (HORIZON, 24)
    kinds = set()
    for p in range(24):
        expected = path_by_hand(paths.obs[0, p], member=int(p >= 12))
        steps = len(expected)
        np.testing.assert_array_equal(alive[:, p], np.arange(HORIZON) < steps)
        for name, column in zip(morel_npg.Paths._fields, zip(*expected, strict=True), strict=True):
            found = getattr(paths, name)[:steps, p]
            np.testing.assert_allclose(found, np.reshape(column, found.shape), atol=1e-5, err_msg=name)
        kinds.add((steps, expected[-1][4], expected[-1][5]))
    assert kinds == {(4, True, True), (1, True, True), (2, True, False)}  # later halts, at once, and true ends
    assert set(paths.obs[0, :, 1].round(2)) == {np.float32(start[1]) for start in STARTS}


def test_paths_start_where_episodes_do_or_anywhere() -> None:
    first, disc = f32([[0.0], [1.0]]), f32(np.full((400, 1), 7.0))
    shares = {}
    for share in (0.0, 0.3, 1.0):
        starts = np.asarray(morel.start_states(morel.Config(start_anywhere=share), first, disc, KEY))[:, 0]
        shares[share] = [(starts == value).mean() for value in (0.0, 1.0, 7.0)]
    np.testing.assert_allclose(shares[0.0], [0.5, 0.5, 0.0], atol=0.1)
    np.testing.assert_allclose(shares[0.3], [0.35, 0.35, 0.3], atol=0.1)
    assert shares[1.0] == [0.0, 0.0, 1.0]


# The threshold


def test_the_threshold_comes_from_the_disagreement_over_the_dataset(monkeypatch) -> None:
    """Both forms in NumPy, from the elite's two members; computed in blocks."""
    monkeypatch.setattr(morel, "BLOCK", 150)
    data = tiny_dataset(400)
    config = morel.Config(caution=1.5, elites=2, termination="none")
    made = made_ensemble(members=3, inputs=fit_normaliser(data, config.gamma).features + 2, targets=4)
    monkeypatch.setattr(model_based, "load_or_fit_pool", lambda *_: (Pool(made, jnp.zeros(3)), {}))
    setup, info = morel.prepare(config, data, 0, lambda *_: None)
    models, norm = setup.arrays.pool, setup.model_norm
    assert models.size == len(info["pool"]["elites"]) == 2
    x = np.concatenate([np.asarray(norm.encode(data.obs)), norm.unit_action(data.action)], axis=1).astype(np.float64)
    one, other = (predict_by_hand(models, m, x)[0][:, :-1] for m in range(2))
    by_hand = np.sqrt((((one - other) / norm.obs_std) ** 2).sum(1))
    disc = morel.dataset_disagreement(data, norm, models)
    np.testing.assert_allclose(disc, by_hand, rtol=1e-3, atol=1e-5)
    expected = by_hand.max() / 1.5
    assert float(setup.arrays.threshold) == pytest.approx(expected, rel=1e-4)
    assert info["halt_threshold"] == pytest.approx(expected, rel=1e-4)
    assert info["halt_logged_share"] == pytest.approx((by_hand > expected).mean(), abs=0.005)
    assert 0.0 < info["halt_logged_share"] < 1.0
    by_std = morel.Config(pessimism="std", beta=2.5)
    assert morel.halting_threshold(by_std, disc) == pytest.approx(by_hand.mean() + 2.5 * by_hand.std(), rel=1e-4)
    np.testing.assert_array_equal(setup.arrays.starts, data.obs[::10])  # the first state of every episode


def test_one_transition_is_drawn_for_each_path() -> None:
    config = build(morel.Config, {"batch": 8, "model.pool": 3})  # four elites are asked for, three exist
    assert jax.eval_shape(lambda key: morel.draw(config, made_data(), key), KEY).reward.shape == (3 * 50,)


# Old settings


def test_the_form_of_old_runs_is_dropped_with_what_it_did_not_use() -> None:
    unused = {"tau": 0.1, "actor_lr": 0.2, "starts": 7}
    assert new_settings({"form": "npg", "caution": 2.0} | unused, "morel") == {"caution": 2.0}
    assert build(morel.Config, {"form": "npg"}, algo="morel") == build(morel.Config)
    old = {"form": "sac"} | unused
    assert new_settings(old, "morel") == old
    with pytest.raises(UserError, match=r"^the setting 'form' is gone: it is always npg now, and not sac; "):
        build(morel.Config, unused | old, algo="morel")
    with pytest.raises(UserError, match=r"^the setting 'tau' is gone: it had no effect on morel; leave it out\.$"):
        build(morel.Config, {"tau": 0.1}, algo="morel")
