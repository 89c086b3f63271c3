"""ADM: histories of rollouts, the penalised step, starts, ends and lags of rollouts, against NumPy."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.algorithms.adm import algorithm as adm
from pspo.algorithms.adm.algorithm import Arrays, History, Setup
from pspo.algorithms.adm.model import any_step
from pspo.algorithms.registry import preset
from pspo.core.progress import silent
from pspo.data.batches import device_dataset
from pspo.data.normalise import fit_normaliser, normaliser_in
from pspo.dynamics.model_env import rollout
from pspo.dynamics.termination import KnownTermination, NeverTerminates
from pspo.dynamics.uncertainty import lag_std
from pspo.training.dry_run import describe
from tests.algorithms.contract_cases import make_case, trained, usual
from tests.algorithms.tiny_task import ACTIONS, EPISODE, OBS, tiny_dataset
from tests.arrays import equal_bits, f32
from tests.dynamics.dynamics_cases import unlimited

RNG = np.random.default_rng(0)
LAGS, BATCH = 3, 6
TINY: dict[str, Any] = {
    **{"model.max_lag": LAGS, "model.width": 4, "model.blocks": 0, "model.steps": 4, "model.evaluate_every": 4},
    **{"model.batch": 12, "starts": 40, "rollout_horizon": 4, "width": 8, "alpha": 0.3, "penalty": 1.5},
    "termination": "none",
}


# The penalty


def test_uncertainty_is_the_standard_deviation_over_the_valid_lags() -> None:
    means, length = RNG.normal(size=(4, 5, 3)), np.array([1, 2, 3, 4, 4])
    valid = np.arange(4)[:, None] < length
    wild = np.where(valid[..., None], means, 1e3)  # invalid lags must not count
    found = jax.jit(lag_std)(f32(wild), jnp.asarray(valid))
    expected = [np.sqrt(means[:n, row].var(axis=0).mean()) for row, n in enumerate(length)]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert float(found[0]) == 0.0


# The step


def made_setup(terminated: Any = NeverTerminates(), seed: int = 0) -> Setup:  # noqa: B008
    """A random model of three lags and no fit; the critics' unit of reward is not the model's."""
    data = tiny_dataset(200)
    model_norm, norm = fit_normaliser(data), normaliser_in(data, "raw", "raw", 0.9)
    rng = np.random.default_rng(seed)
    scale = f32(rng.normal(scale=0.3, size=OBS + 1)), f32(rng.uniform(0.3, 0.6, size=OBS + 1))
    sizes = {"inputs": model_norm.features + ACTIONS, "width": 8, "depth": 2, "blocks": 1, "dropout": 0.2}
    model = any_step(jax.random.PRNGKey(seed), **sizes, target_mean=scale[0], target_std=scale[1])
    arrays = Arrays(model, jnp.asarray(data.ages(), jnp.int32), terminated)
    return Setup(
        arrays,
        norm._replace(reward_scale=np.asarray(0.5, np.float32)),
        model_norm,
        LAGS,
        unlimited(OBS),
    )


def made_history(seed: int = 1) -> History:
    rng = np.random.default_rng(seed)
    obs = rng.uniform(-0.5, 0.5, (LAGS, BATCH, OBS))
    obs[..., 2] = np.arange(2, 2 + LAGS)[:, None]
    length = jnp.array([1, 2, 3, 3, 2, 1], jnp.int32)
    return History(f32(obs), f32(rng.uniform(-1, 1, (LAGS - 1, BATCH, ACTIONS))), length)


class Actor:
    """Takes given actions, whatever it sees."""

    def __init__(self, action: np.ndarray) -> None:
        self.action = f32(action)

    def unit_action(self, features: Any, key: Any) -> Any:
        return self.action


ACTION = RNG.uniform(-1, 1, (BATCH, ACTIONS))
ACTOR: Any = Actor(ACTION)
NOISE = RNG.normal(size=(BATCH, OBS + 1))
PICK = np.array([0, 1, 2, 0, 0, 0])  # lags less one, each within the history's length


def test_a_step_is_drawn_by_its_lag_and_pays_less_where_lags_disagree(monkeypatch: Any) -> None:
    monkeypatch.setattr(adm, "outcome_noise", lambda *_: f32(NOISE))
    monkeypatch.setattr(adm, "random_lag", lambda *_: jnp.asarray(PICK))
    setup, history = (
        made_setup(KnownTermination(lambda obs, action, next_obs: next_obs[..., 0] > obs[..., 0])),
        made_history(),
    )
    config = adm.Config(penalty=0.7, dropout_in_rollouts=False)
    step = jax.jit(lambda history, key: adm.penalised_step(config, setup, ACTOR, history, key))
    after, rows = step(history, jax.random.PRNGKey(0))
    one_lag = jax.jit(lambda f, a: setup.arrays.model.predict(f, a))
    norm, scale = setup.model_norm, float(setup.model_norm.reward_scale)
    past = np.concatenate([np.asarray(history.action), ACTION[None]])
    for row in range(BATCH):
        by_lag = []
        for k in range(1, int(history.length[row]) + 1):
            old = np.asarray(history.obs[LAGS - k, row])
            features = np.repeat(norm.encode(old)[None, None], LAGS, axis=0)  # only lag k of the result is used
            change = one_lag(f32(features), f32(np.broadcast_to(past[:, row], (LAGS, 1, *past[:, row].shape))))
            mean, std = np.asarray(change.mean, np.float64)[k - 1, 0], np.asarray(change.std, np.float64)[k - 1, 0]
            by_lag.append((mean + np.append(old, 0.0), std))
        disagreement = np.sqrt(np.var([mean[:-1] for mean, _ in by_lag], axis=0).mean())
        drawn = by_lag[PICK[row]][0] + by_lag[PICK[row]][1] * NOISE[row]
        expected = norm.snap(drawn[:-1].astype(np.float32))
        np.testing.assert_allclose(rows.next_obs[row], expected, rtol=1e-4, atol=1e-5)
        assert float(rows.reward[row]) == pytest.approx(
            (drawn[-1] * scale - 0.7 * disagreement) / 0.5, rel=1e-3, abs=1e-4
        )
        assert bool(rows.terminal[row]) == (expected[0] > history.obs[-1, row, 0])
    np.testing.assert_array_equal(rows.obs, history.obs[-1])
    np.testing.assert_allclose(rows.action, ACTION, rtol=1e-6)
    np.testing.assert_array_equal(after.obs, np.concatenate([history.obs[1:], rows.next_obs[None]]))
    np.testing.assert_array_equal(after.action, np.concatenate([history.action[1:], rows.action[None]]))
    np.testing.assert_array_equal(after.length, [2, 3, 3, 3, 3, 2])

    wild = np.arange(LAGS)[:, None] < LAGS - np.asarray(history.length)  # before the start of a rollout
    other = history._replace(
        obs=jnp.where(wild[..., None], 0.9, history.obs), action=jnp.where(wild[1:][..., None], -0.9, history.action)
    )
    assert not equal_bits(other, history)
    assert equal_bits(step(other, jax.random.PRNGKey(0))[1], rows)


def test_dropout_in_rollouts_is_a_choice(monkeypatch: Any) -> None:
    """Everything else that is random is held still."""
    monkeypatch.setattr(adm, "outcome_noise", lambda *_: f32(NOISE))
    monkeypatch.setattr(adm, "random_lag", lambda *_: jnp.asarray(PICK))
    setup, history, rewards = made_setup(), made_history(), {}
    for on in (True, False):
        config = adm.Config(dropout_in_rollouts=on)
        step = jax.jit(lambda k, config=config: adm.penalised_step(config, setup, ACTOR, history, k)[1])
        rewards[on] = [np.asarray(step(jax.random.PRNGKey(seed)).reward) for seed in (0, 1)]
    np.testing.assert_array_equal(*rewards[False])
    assert not np.allclose(*rewards[True])


# Rollouts


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.integers(1, 5), min_size=8, max_size=8), seed=st.integers(0, 10_000))
def test_a_lag_is_never_longer_than_the_past(lengths: list[int], seed: int) -> None:
    found = np.asarray(adm.random_lag(jax.random.PRNGKey(seed), jnp.array(lengths, jnp.int32)))
    assert np.all(found >= 0)
    assert np.all(found < lengths)


def test_all_lags_that_the_past_allows_are_drawn_alike() -> None:
    length = np.repeat([1, 2, 3], 3000)
    found = np.asarray(adm.random_lag(jax.random.PRNGKey(0), jnp.asarray(length)))
    for n in (1, 2, 3):
        share = np.bincount(found[length == n], minlength=3) / 3000
        np.testing.assert_allclose(share, np.where(np.arange(3) < n, 1.0 / n, 0.0), atol=0.04)


def test_rollouts_start_with_the_past_of_their_episode() -> None:
    data = tiny_dataset(40)
    device_data = device_dataset(data, fit_normaliser(data), 0.9)
    row = jnp.array([0, 1, 7, 10, 11, 25])
    history = adm.starts(device_data, jnp.asarray(data.ages(), jnp.int32), LAGS, row)
    np.testing.assert_array_equal(history.length, [1, 2, 3, 1, 2, 3])  # episodes of ten steps
    for i, r in enumerate(row.tolist()):
        n = int(history.length[i])
        np.testing.assert_array_equal(history.obs[LAGS - n :, i], data.obs[r - n + 1 : r + 1])
        np.testing.assert_allclose(history.action[LAGS - n :, i], data.action[r - n + 1 : r], rtol=1e-6)


def test_a_rollout_stops_at_its_end_and_keeps_its_own_history() -> None:
    setup = made_setup(KnownTermination(lambda obs, action, next_obs: next_obs[..., 0] > 0.5))
    config = adm.Config(penalty=0.5)
    seen: list[Any] = []

    def step(history: History, key: Any) -> Any:
        after, rows = adm.penalised_step(config, setup, ACTOR, history, key)
        jax.debug.callback(lambda *past: seen.append(past), history.obs, history.length, ordered=True)
        return after, rows

    run = jax.jit(lambda history, key: rollout(step, history, BATCH, 8, key))
    rows, happened = jax.tree.map(np.asarray, run(made_history(), jax.random.PRNGKey(3)))
    jax.effects_barrier()
    assert rows.terminal.any()
    ended = np.cumsum(rows.terminal, axis=0) - rows.terminal > 0  # a terminal came before
    np.testing.assert_array_equal(happened, ~ended)
    np.testing.assert_array_equal(rows.terminal, rows.next_obs[..., 0] > 0.5)
    np.testing.assert_array_equal(rows.obs[1:], rows.next_obs[:-1])
    for t in (3, 7):
        np.testing.assert_array_equal(seen[t][0], rows.obs[t - LAGS + 1 : t + 1])
        assert np.all(seen[t][1] == LAGS)


def test_a_chunk_begins_with_rollouts_from_states_of_the_dataset() -> None:
    case, (before, after) = usual("adm"), trained("adm")[:2]  # one program with the contract suite
    assert int(before.buffer.size) == 0
    assert before.buffer.capacity == 200 * case.config.retain
    size = int(after.buffer.size)
    assert size == 200
    rows = [np.asarray(part)[:size] for part in after.buffer.transitions]
    states = np.asarray(case.device_data.transitions.obs)
    assert all((np.abs(states - first).max(1) < 1e-6).any() for first in rows[0])
    assert np.abs(rows[1]).max() <= 1.0
    assert np.isfinite(rows[2]).all()
    assert np.isin(rows[3][:, 2], np.arange(EPISODE + 1)).all()  # counters stay on their values
    assert not equal_bits(after.key, before.key)


def test_the_temperature_stays_and_everything_else_learns() -> None:
    before, after = trained("adm")[:2]
    assert float(np.exp(after.agent.params.log_alpha)) == pytest.approx(0.1)
    assert equal_bits(before.agent.params.log_alpha, after.agent.params.log_alpha)
    for part in ("actor", "critic"):
        assert not equal_bits(getattr(before.agent.params, part), getattr(after.agent.params, part))
    actor = before.agent.params.actor
    assert (actor.log_std_min, actor.log_std_max) == (-5.0, 2.0)
    assert equal_bits(before.agent.target_critic, before.agent.params.critic)


# Data of other kinds


def single_steps() -> Any:
    """Every transition is a truncated episode."""
    return tiny_dataset(60, terminal=np.zeros(60, bool), timeout=np.ones(60, bool))


def test_with_one_lag_there_is_no_penalty() -> None:
    """Where all episodes have one step, no other lag is trained, however long a rollout gets."""
    here, rows = make_case("adm", single_steps(), **TINY), []
    assert here.setup.lags == 1
    history = adm.starts(here.device_data, here.setup.arrays.past, 1, jnp.arange(BATCH))
    for penalty in (0.0, 100.0):
        config = dataclasses.replace(here.config, penalty=penalty)
        step = partial(adm.penalised_step, config, here.setup, ACTOR)
        rows.append(jax.jit(lambda key, step=step: rollout(step, history, BATCH, 3, key))(jax.random.PRNGKey(0)))
    assert equal_bits(*rows)


def test_what_is_prepared_is_reported() -> None:
    setup, info = adm.prepare(usual("adm").config, tiny_dataset(), 0, silent)
    assert setup.lags == LAGS
    assert setup.arrays.past.tolist() == [row % EPISODE for row in range(4000)]
    assert (info["termination"], info["reward"]) == ("none", "learned")
    assert len(info["any_step"]["holdout_error"]) == LAGS
    assert {"digest", "key", "cached", "k_step_error", "holdout_log_likelihood"} <= set(info["any_step"])


@pytest.mark.slow
def test_a_dry_run_times_its_model_and_its_training(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))
    lines = describe(tiny_dataset(400), "adm", preset_name="smoke", settings={"model.steps": 70})
    info = {line[:17].strip(): line[17:] for line in lines[1:]}
    assert info["any-step model"].startswith("1 x 16 units, at most 70 steps of ")
    assert info["training"].startswith("2 x 16 units, 60 steps of ")


# Numbers


def test_the_defaults_are_the_authors() -> None:
    config = adm.Config()
    assert (config.adapt_alpha, config.actor_decay, config.dropout_in_rollouts) == (False, True, True)
    assert (config.actor_lr, config.critic_lr, config.batch, config.starts) == (1e-4, 3e-4, 256, 50_000)
    model = config.model
    assert (model.width, model.depth, model.blocks, model.dropout, model.beta_nll) == (200, 3, 4, 0.1, 0.0)
    assert (model.lr, model.batch, model.patience) == (3e-4, 256, 25)


@pytest.mark.parametrize("name", ["laptop", "paper"])
def test_presets_have_the_published_numbers_of_each_dataset(name: str) -> None:
    keys = ("model.max_lag", "rollout_horizon", "penalty", "real_ratio", "alpha")
    for dataset, numbers in {
        "halfcheetah-medium-expert": (2, 20, 9.16, 0.5, 0.05),
        "hopper-medium": (5, 10, 1.0, 0.05, 0.05),
        "walker2d-medium-expert": (3, 2, 6.0, 0.5, 0.011),
    }.items():
        values = preset("adm", name, dataset.split("-")[0], dataset)
        assert tuple(values[key] for key in keys) == numbers
    assert preset("adm", name, "halfcheetah", "halfcheetah-medium-replay")["actor_decay"] is False
