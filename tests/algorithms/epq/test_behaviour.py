"""What EPQ prepares: weights of transitions by hand, the value of the behaviour, and what the cache keeps."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pspo.algorithms.epq import algorithm as epq
from pspo.algorithms.epq import behaviour as epq_behaviour
from pspo.algorithms.epq.behaviour import PriorityConfig, QBetaConfig, SearchConfig, VAEConfig
from pspo.core.config import build
from pspo.core.errors import Diverged, UserError
from pspo.core.progress import silent
from pspo.data import Dataset
from pspo.data.neighbours import neighbourhoods
from pspo.data.normalise import normaliser_in
from pspo.nets.mlp import MLP
from pspo.nets.vae import VAE
from tests.algorithms.baseline_cases import made_mlp
from tests.arrays import f32

OBS, ACT, LOG = 3, 2, 12


def made_data(**changes: Any) -> Dataset:
    """Three episodes of four steps: one ends, one is truncated, one has no end."""
    rng = np.random.default_rng(5)
    obs = rng.normal(size=(LOG + 1, OBS)).astype(np.float32)
    fields = {
        "obs": obs[:-1],
        "next_obs": obs[1:],
        "action": rng.uniform(-0.9, 0.9, (LOG, ACT)).astype(np.float32),
        "reward": rng.normal(size=LOG).astype(np.float32),
        "terminal": np.arange(LOG) == 3,
        "timeout": np.arange(LOG) == 7,
        "action_low": np.full(ACT, -1.0, np.float32),
        "action_high": np.ones(ACT, np.float32),
    }
    return Dataset(**(fields | changes))


# The weights of transitions


def priority(**changes: Any) -> PriorityConfig:
    return PriorityConfig(**({"search": SearchConfig(6, 1.5), "zeta": 0.7, "gamma": 0.9, "q_beta": None} | changes))


def weights(obs: np.ndarray, value: Any, neighbours: int = 6, epsilon: float = 1.5) -> np.ndarray:
    return epq_behaviour.priority_weights(neighbourhoods(obs, neighbours, epsilon)[0], np.asarray(value), 0.7)


def values(data: Dataset, rewards: str = "raw", **changes: Any) -> np.ndarray:
    norm = normaliser_in(data, "raw", rewards, 0.9)
    return epq_behaviour.return_values(data, norm, priority(**changes), silent)[0]


def test_a_weight_is_a_softmax_of_returns_over_the_neighbourhood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pspo.data.neighbours.CHUNK", 7)  # neighbourhoods of several pieces
    rng = np.random.default_rng(0)
    obs = rng.normal(size=(60, 2)).astype(np.float32)
    obs[40:50] = obs[:10]  # copies
    value = rng.normal(size=60)
    every = np.sqrt(((obs[:, None].astype(np.float64) - obs[None]) ** 2).sum(-1))
    spacing = np.mean([row[row > 1e-5].min() for row in every])
    wanted, sizes = [], []
    for i in range(60):
        near = [k for k in np.argsort(every[i], kind="stable")[:6] if every[i, k] <= 1.5 * spacing]
        wanted.append(np.exp(value[i] / 0.7) / np.exp(value[near] / 0.7).sum())
        sizes.append(len(near))
    assert min(sizes) == 1
    assert max(sizes) == 6
    np.testing.assert_allclose(weights(obs, value), wanted, rtol=1e-5)


def test_a_state_without_neighbours_has_the_weight_one() -> None:
    obs = np.array([[0.0], [0.1], [100.0]], np.float32)
    found = weights(obs, [0.0, 1.0, -50.0], epsilon=0.5)
    assert found[2] == 1.0
    np.testing.assert_array_equal(weights(obs, [0.0, 1.0, -50.0], neighbours=1), np.ones(3))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.floats(-20, 20)), min_size=1, max_size=20), st.floats(0.0, 5.0))
def test_weights_lie_between_zero_and_one(rows: list[tuple[int, float]], epsilon: float) -> None:
    state, value = np.array(rows).T
    found = weights(state[:, None].astype(np.float32), value, epsilon=epsilon)
    assert (found > 0.0).all()
    assert (found <= 1.0).all()


def test_weights_of_one_neighbourhood_add_up_to_one_however_large_the_returns() -> None:
    value = np.array([1e8, 1e8 - 0.7, -1e8, 3.0])
    found = weights(np.zeros((4, 2), np.float32), value)
    assert found.sum() == pytest.approx(1.0)
    assert found[1] / found[0] == pytest.approx(np.exp(-1.0), rel=1e-5)


def test_returns_do_not_leak_across_a_time_out() -> None:
    data, other = made_data(), np.array(made_data().reward)
    other[8:] += 1e3
    changed = made_data(reward=other)
    before, after = values(data), values(changed)
    np.testing.assert_array_equal(before[:8], after[:8])
    r = np.asarray(data.reward, np.float64)
    np.testing.assert_allclose(before[4:8], [r[i:8] @ 0.9 ** np.arange(8 - i) for i in range(4, 8)])


def test_returns_are_in_the_units_of_the_critics() -> None:
    data = made_data()
    scale = normaliser_in(data, "raw", "std", 0.9).reward_scale
    assert scale != 1.0
    np.testing.assert_allclose(values(data, "std"), data.returns_to_go(0.9) / scale, rtol=1e-6)


# The behaviour


def test_the_value_of_the_behaviour_learns_from_actions_that_followed() -> None:
    data = made_data()
    rows = epq_behaviour.sarsa_transitions(data, normaliser_in(data, "raw", "raw", 0.9))
    kept = [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]  # neither row 7, which was cut, nor the last one
    np.testing.assert_array_equal(rows.features, data.obs[kept])
    alive = np.array(kept) != 3
    np.testing.assert_allclose(np.asarray(rows.next_action)[alive], data.action[np.array(kept) + 1][alive], atol=1e-6)
    with pytest.raises(UserError, match="use_q_beta"):
        epq_behaviour.sarsa_transitions(
            made_data(terminal=np.zeros(LOG, bool), timeout=np.ones(LOG, bool)), normaliser_in(data, "raw", "raw", 0.9)
        )


def test_the_value_of_the_behaviour_is_its_return_where_everything_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epq_behaviour, "TARGET_TAU", 1.0)
    data = made_data(terminal=np.arange(LOG) % 2 == 1, timeout=np.zeros(LOG, bool))
    recipe = VAEConfig(steps=600, batch=32, lr=1e-2, evaluate_every=300)
    np.testing.assert_allclose(values(data, q_beta=QBetaConfig(0.9, 32, 1, recipe)), data.returns_to_go(0.9), atol=0.1)


def test_a_behaviour_model_that_diverges_is_refused() -> None:
    config, rng = VAEConfig(width=4, depth=1, steps=2, batch=2, evaluate_every=2), np.random.default_rng(1)
    coder = VAE(made_mlp(rng, [OBS + ACT, 5, 12]), made_mlp(rng, [OBS + 6, 5, ACT]))
    rows = f32(np.full((4, OBS), np.nan)), jnp.zeros((4, ACT))
    with pytest.raises(Diverged, match=r"vae\.lr"):
        epq_behaviour.fit_vae(coder, rows, config, lambda *_: None)


SMALL = {"gamma": 0.9, "width": 4, "depth": 1, "epsilon": 3.0, "states": "raw", "rewards": "raw"}
SMALL |= {"vae.width": 4, "vae.steps": 20, "vae.batch": 4, "vae.evaluate_every": 20, "vae.lr": 1e-2}


@pytest.fixture
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PSPO_CACHE", str(tmp_path))


def test_what_was_prepared_is_loaded_from_the_cache(own_cache) -> None:
    def prepared() -> tuple[np.ndarray, dict[str, Any], set[str]]:
        seen: set[str] = set()
        setup, info = epq.prepare(build(epq.Config, SMALL), made_data(), 0, lambda stage, *_: seen.add(stage))
        return np.asarray(setup.arrays.weight), info, seen

    (weight, info, seen), (again, found, nothing) = prepared(), prepared()
    assert (seen, nothing) == ({"behaviour VAE", "nearest states"}, set())
    np.testing.assert_array_equal(weight, again)
    assert (info["behaviour"]["cached"], info["priorities"]["search"]["cached"]) == (False, False)
    assert (found["behaviour"]["cached"], found["priorities"]["search"]["cached"]) == (True, True)
    for name in ("behaviour", "priorities"):
        assert info[name]["digest"] == found[name]["digest"]
    near, spacing = neighbourhoods(made_data().obs, 50, 3.0)
    np.testing.assert_array_equal(weight, epq_behaviour.priority_weights(near, values(made_data()), 2.0))
    for one in (info, found):
        assert one["priorities"]["search"]["neighbours"] == near.others > 0.0
        assert one["priorities"]["search"]["spacing"] == spacing


def weighted(states: str = "raw", rewards: str = "raw", **changes: Any) -> tuple[np.ndarray, set[str]]:
    """The weights, and which stages it took to find them."""
    data, seen = made_data(), set()
    norm = normaliser_in(data, states, rewards, 0.9)
    weight, _ = epq_behaviour.make_weights(data, norm, priority(**changes), lambda stage, *_: seen.add(stage))
    return np.asarray(weight), seen


def test_neighbours_are_searched_again_only_where_states_or_the_radius_change(own_cache) -> None:
    """Units, returns and weights have no effect on neighbours."""
    first, seen = weighted()
    assert seen == {"nearest states"}
    for changes in ({"zeta": 3.0}, {"gamma": 0.5}, {"rewards": "std"}):
        weight, seen = weighted(**changes)
        assert seen == set(), changes
        assert np.abs(weight - first).max() > 1e-3, changes  # what they do change is not taken from the cache
    weight, seen = weighted(states="zscore")
    assert seen == set()
    np.testing.assert_array_equal(weight, first)
    for search in (SearchConfig(6, 2.0), SearchConfig(2, 1.5)):
        assert weighted(search=search)[1] == {"nearest states"}


def test_the_value_of_the_behaviour_is_learned_once_for_all_temperatures(own_cache, monkeypatch) -> None:
    def fitted(rows: Any, config: Any, report: Any) -> tuple[MLP, float]:
        report(1, 1, {})
        return made_mlp(np.random.default_rng(0), [OBS + ACT, 4, 1], (1,)), 0.5

    monkeypatch.setattr(epq_behaviour, "fit_q_beta", fitted)
    recipe = QBetaConfig(0.9, 4, 1, VAEConfig())
    first, seen = weighted(q_beta=recipe)
    assert seen == {"nearest states", "behaviour value"}
    other, seen = weighted(q_beta=recipe, zeta=0.01)
    assert seen == set()
    assert not np.array_equal(first, other)
    assert weighted(q_beta=recipe, states="zscore")[1] == {"behaviour value"}
