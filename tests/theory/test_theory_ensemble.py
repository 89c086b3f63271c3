"""The ensemble refuses arrays that are not an ensemble, and cannot be changed after it was checked."""

from __future__ import annotations

import numpy as np
import pytest

from pspo.theory import FiniteEnsemble, fork_ensemble, random_ensemble


def fields_of(ensemble: FiniteEnsemble) -> dict:
    names = ("transitions", "reward", "prior", "gamma", "initial")
    return {name: getattr(ensemble, name) for name in names}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transitions", np.full((2, 3, 1, 3), 0.5)),
        ("transitions", np.full((1, 3, 1, 3), 1 / 3)),
        ("reward", np.zeros(3)),
        ("prior", np.array([1.5, -0.5])),
        ("prior", np.array([np.nan, 1.0])),
        ("gamma", 1.0),
        ("gamma", float("nan")),
        ("initial", np.array([0.5, 0.5])),
    ],
)
def test_a_wrong_field_is_refused(name: str, value: object) -> None:
    good = fields_of(fork_ensemble())
    FiniteEnsemble(**good)
    with pytest.raises(ValueError, match=name):
        FiniteEnsemble(**{**good, name: value})


def test_arrays_are_copied_and_read_only() -> None:
    prior = np.array([0.5, 0.5])
    ensemble = FiniteEnsemble(**{**fields_of(fork_ensemble()), "prior": prior})
    prior[0] = 7.0
    assert ensemble.prior[0] == 0.5
    with pytest.raises(ValueError, match="read-only"):
        ensemble.prior[0] = 7.0


def test_random_ensemble_has_the_asked_sizes_and_reward_range() -> None:
    ensemble = random_ensemble(
        np.random.default_rng(0), n_models=2, n_states=3, n_actions=4, gamma=0.5, reward_scale=0.1
    )
    assert (ensemble.n_models, ensemble.n_states, ensemble.n_actions) == (2, 3, 4)
    assert 0.0 < ensemble.value_bound <= 0.1 / (1.0 - 0.5)
