"""Termination of rollouts: the rule of the task, a classifier, or never; and which of them a run uses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.core.errors import UserError
from pspo.data import Dataset
from pspo.data.normalise import fit_normaliser
from pspo.dynamics import termination
from pspo.dynamics.termination import KnownTermination, NeverTerminates, fit_classifier, make_termination
from tests.dynamics.dynamics_cases import plain_norm


def ends_beyond_one(rows: int = 3000, seed: int = 0, **changes) -> Dataset:
    """A walk that ends where its first coordinate exceeds one; about one row in six."""
    rng = np.random.default_rng(seed)
    obs = rng.normal(0.0, 0.8, size=(rows, 2))
    action = rng.uniform(0, 2, size=(rows, 1))
    next_obs = obs + 0.5 * (action - 1.0) + 0.1 * rng.normal(size=(rows, 2))
    terminal = next_obs[:, 0] > 1.0
    fields = {
        "obs": obs,
        "action": action,
        "reward": rng.normal(size=rows),
        "next_obs": next_obs,
        "terminal": terminal,
        "timeout": ~terminal,
        "action_low": np.array([0.0]),
        "action_high": np.array([2.0]),
    }
    return Dataset(**(fields | changes))


def test_the_classifier_learns_a_simple_rule(monkeypatch) -> None:
    monkeypatch.setattr(termination, "CLASSIFIER_STEPS", 600)
    data = ends_beyond_one()
    norm = fit_normaliser(data)
    classifier, metadata = fit_classifier(data, norm, width=16, seed=0)
    holdout = data.split(0.05, 0)[1]
    assert metadata["termination_holdout_base_rate"] == pytest.approx(data.terminal[holdout].mean())
    assert 0.08 < data.terminal.mean() < 0.25
    assert metadata["termination_holdout_error"] < 0.05
    other = ends_beyond_one(seed=1)
    ask = jax.jit(lambda *rows: classifier(norm, *rows))
    predicted = np.asarray(ask(other.obs, norm.unit_action(other.action), other.next_obs))
    assert predicted.shape == (3000,)
    assert (predicted != other.terminal).mean() < 0.05
    # the balance of its batches is undone: it does not cry wolf
    assert predicted.mean() == pytest.approx(other.terminal.mean(), abs=0.03)
    # draws and models in front, as rollouts ask
    many = np.broadcast_to(other.next_obs[:50], (4, 3, 50, 2))
    stacked = np.asarray(ask(other.obs[:50], norm.unit_action(other.action[:50]), many))
    np.testing.assert_array_equal(stacked, np.broadcast_to(predicted[:50], (4, 3, 50)))


def test_a_known_rule_sees_raw_actions() -> None:
    norm = plain_norm()  # unit -1 is raw 1, unit 1 is raw 3
    seen = {}

    def rule(obs, action, next_obs):
        seen["action"] = np.asarray(action)
        return next_obs[..., 0] > 0

    ends = KnownTermination(rule)(
        norm, jnp.zeros((2, 2)), jnp.array([[-1.0], [0.5]]), jnp.array([[1.0, 0.0], [-1.0, 0.0]])
    )
    np.testing.assert_allclose(seen["action"], [[1.0], [2.5]])
    np.testing.assert_array_equal(ends, [True, False])


def test_never_has_the_shape_of_the_next_states() -> None:
    ends = NeverTerminates()(plain_norm(), jnp.zeros((5, 2)), jnp.zeros((5, 1)), jnp.zeros((4, 3, 5, 2)))
    assert ends.shape == (4, 3, 5)
    assert ends.dtype == bool
    assert not ends.any()


# The choice


def always(obs, action, next_obs):
    return jnp.ones(next_obs.shape[:-1], bool)


@pytest.fixture
def no_fit(monkeypatch):
    monkeypatch.setattr(termination, "fit_classifier", lambda *_: ("a classifier", {"termination_holdout_error": 0.0}))


@pytest.mark.parametrize(
    ("choice", "rule", "made"),
    [
        ("auto", always, "known"),
        ("auto", None, "learned"),
        ("known", always, "known"),
        ("learned", always, "learned"),
        ("learned", None, "learned"),
        ("none", always, "none"),
        ("none", None, "none"),
    ],
)
def test_the_chosen_rule_is_used_and_reported(no_fit, choice, rule, made) -> None:
    data = ends_beyond_one(100)
    ends, metadata = make_termination(choice, data, rule, fit_normaliser(data), 8, 0)
    assert metadata["termination"] == made
    assert isinstance(ends, {"known": KnownTermination, "learned": str, "none": NeverTerminates}[made])


@pytest.mark.parametrize("choice", ["auto", "learned"])
def test_a_dataset_without_terminals_never_terminates(choice) -> None:
    data = ends_beyond_one(100, terminal=np.zeros(100, bool), timeout=np.ones(100, bool))
    ends, metadata = make_termination(choice, data, None, fit_normaliser(data), 8, 0)
    assert isinstance(ends, NeverTerminates)
    assert metadata["termination"] == "none"


def test_a_dataset_of_terminals_always_terminates() -> None:
    """A bandit's dataset: every transition is terminal, so no rollout may use a value after it."""
    data = ends_beyond_one(100, terminal=np.ones(100, bool), timeout=np.zeros(100, bool))
    norm = fit_normaliser(data)
    ends, _ = make_termination("auto", data, None, norm, 8, 0)
    assert np.asarray(ends(norm, jnp.zeros((5, 2)), jnp.zeros((5, 1)), jnp.zeros((5, 2)))).all()


def test_known_without_a_rule_is_refused() -> None:
    data = ends_beyond_one(100, name="my log")
    with pytest.raises(UserError, match="'my log' has none: use learned or none"):
        make_termination("known", data, None, fit_normaliser(data), 8, 0)


@pytest.mark.parametrize("which", ["end", "continues"])
def test_a_single_example_in_the_hold_out_does_not_crash(monkeypatch, which) -> None:
    monkeypatch.setattr(termination, "CLASSIFIER_STEPS", 2)
    data = ends_beyond_one(100)
    lonely = np.zeros(100, bool)
    lonely[data.split(0.05, 0)[1][0]] = True
    terminal = lonely if which == "end" else ~lonely
    data = ends_beyond_one(100, terminal=terminal, timeout=~terminal)
    norm = fit_normaliser(data)
    ends, _ = make_termination("auto", data, None, norm, 8, 0)
    assert ends(norm, jnp.zeros((5, 2)), jnp.zeros((5, 1)), jnp.zeros((3, 5, 2))).shape == (3, 5)
