"""What is said against an estimate: exactly where it should be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pspo.data.normalise import fit_normaliser
from pspo.evaluation.ope import trust
from pspo.evaluation.ope.estimates import Estimate
from pspo.evaluation.ope.trust import share_of_new_actions, warnings
from pspo.nets.actors import LinearGaussian
from tests.evaluation.ope.ope_cases import constant, linear, made_log, made_subject

FINE: dict[str, dict[str, float]] = {
    "posterior models": {"effective_models": 2.6, "share_outside": 0.002, "weight_of_the_rest": 0.05},
    "fitted Q": {"standard_error": 3.0, "contradiction": -1.0},  # half an interval
    "importance sampling": {"effective_episodes": 50.0, "episodes": 80.0, "mean_weight": 1.9, "share_at_bounds": 0.01},
    "doubly robust": {"effective_episodes": 51.0, "episodes": 80.0, "mean_weight": 0.51, "critics_alone": 1.0},
}


def said(method: str, horizon: int = 100, gamma: float = 1.0, cut: float = 0.0, new: float = 0.1, **changes: Any):
    subject: Any = SimpleNamespace(horizon=horizon, gamma=gamma, cut=np.arange(100) < 100 * cut)
    fields = {"value": 1.0, "low": 0.0, "high": 2.0} | {k: v for k, v in changes.items() if k in ("value", "low")}
    numbers = FINE[method] | {k: v for k, v in changes.items() if k not in fields}
    return warnings(subject, Estimate(method, **fields, judges="mode", numbers=numbers), new)


@pytest.mark.parametrize("method", FINE)
def test_nothing_is_said_where_nothing_speaks_against_it(method) -> None:
    assert said(method) == []


@pytest.mark.parametrize("method", FINE)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"new": 0.11}, "in 11 % of the log's states the policy does what the log has nothing like"),
        ({"new": np.nan}, "in nan % of the log's states"),
        ({"low": -np.inf}, "there is no interval"),
        ({"value": np.nan}, "it is not a number"),
    ],
)
def test_what_speaks_against_any_method(method, changes, words) -> None:
    (sentence,) = said(method, **changes)
    assert words in sentence


@pytest.mark.parametrize(
    ("method", "changes", "words"),
    [
        ("posterior models", {"effective_models": 2.4}, "only 2.4 models are believed"),
        ("posterior models", {"effective_models": np.nan}, "only nan models are believed"),
        ("posterior models", {"share_outside": 0.003}, "0.3 % of imagined steps leave the log's range"),
        ("posterior models", {"weight_of_the_rest": 0.3}, "left out, and would count by 30 %"),
        ("posterior models", {"horizon": 101}, "errors of the models add up over 101 steps"),
        ("importance sampling", {"effective_episodes": 49.9}, "the weights leave 49.9 effective episodes of 80"),
        ("importance sampling", {"effective_episodes": np.nan}, "the weights leave nan effective episodes"),
        ("importance sampling", {"mean_weight": 2.1}, "the mean of the weights is 2.1 and not 1"),
        ("importance sampling", {"mean_weight": 0.1}, "the mean of the weights is 0.1 and not 1"),
        ("importance sampling", {"share_at_bounds": 0.2}, "20 % of the logged actions lie at a bound"),
        ("importance sampling", {"weight_of_the_rest": 0.06}, "would count by 6 %"),
        ("importance sampling", {"horizon": 200}, "products of ratios over 200 steps"),
        ("doubly robust", {"horizon": 200}, "products of ratios over 200 steps"),
        ("doubly robust", {"effective_episodes": 3.0}, "the weights leave 3.0 effective episodes"),
        ("fitted Q", {"horizon": 150}, "errors of the critics add up over 150 steps"),
        ("fitted Q", {"horizon": 1000, "gamma": 0.995}, "add up over 200 steps"),
        ("fitted Q", {"cut": 0.5}, "50 % of the log's episodes are cut off"),
        ("fitted Q", {"contradiction": -1.01}, "contradict the log's own episodes by -1.01 each"),
    ],
)
def test_each_sign_is_said_in_its_own_sentence(method, changes, words) -> None:
    (sentence,) = said(method, **changes)
    assert words in sentence


@pytest.mark.parametrize("changes", [{"horizon": 1000, "gamma": 0.99}, {"cut": 0.5, "gamma": 0.99}, {"cut": 0.05}])
def test_a_discount_bounds_what_critics_add_up(changes) -> None:
    assert said("fitted Q", **changes) == []


def by_hand(subject, rows: int) -> float:
    """Nearest logged pair by all distances, each logged pair asked of the other half."""
    data, norm = subject.data, subject.norm
    order = np.random.default_rng(0).permutation(data.size)[: 2 * rows]
    known, asked = order[: len(order) // 2], order[len(order) // 2 :]
    z = (data.obs - norm.obs_mean) / norm.obs_std
    pairs = np.concatenate([z, data.action], axis=1)
    own = np.concatenate([z, np.asarray(subject.act(data.obs))], axis=1)
    near = lambda points: np.sqrt(np.square(points[:, None] - pairs[known][None]).sum(-1)).min(1)  # noqa: E731
    return float((near(own[asked]) > np.quantile(near(pairs[asked]), 0.99)).mean())


def test_new_actions_are_those_farther_than_logged_ones_are(monkeypatch) -> None:
    monkeypatch.setattr(trust, "ROWS", 70)
    subject = made_subject(made_log([10] * 20, [True] * 20))
    found = share_of_new_actions(subject)
    assert found == by_hand(subject, 70)
    steep = LinearGaussian(linear([[2.0], [-1.0]], [0.0]), subject.network.log_std)
    steep = subject._replace(network=steep)
    assert share_of_new_actions(steep) == by_hand(steep, 70)
    assert share_of_new_actions(steep) > found


def test_a_log_of_one_kind_of_action_has_nothing_like_the_other() -> None:
    data = made_log([10] * 30, [True] * 30, action=np.random.default_rng(0).uniform(-1, -0.5, size=(300, 1)))
    norm = fit_normaliser(data, 1.0)
    assert share_of_new_actions(made_subject(data, constant(norm, 0.99))) > 0.5
    assert share_of_new_actions(made_subject(data, constant(norm, -0.75))) < 0.1


def test_of_three_rows_nobody_can_tell() -> None:
    assert np.isnan(share_of_new_actions(made_subject(made_log([3], [True]))))
