"""Masks: rules and columns, where they are refused, and that no policy ever takes what they forbid."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.core.errors import UserError
from pspo.data import check
from pspo.data.action_mask import LARGEST, MaskRule, available, parse_mask
from pspo.data.normalise import fit_normaliser
from pspo.nets.categorical import CategoricalPolicy, feature_mask
from pspo.nets.mlp import mlp
from tests.discrete import wear

LABELS, NAMES = ("buy", "hold", "sell"), ("stock", "can_buy", "can_sell")


def test_rules_and_columns_are_parsed() -> None:
    rules = parse_mask(["sell: stock >= 1", "can_*", "hold: stock < 3"], LABELS, NAMES, 3)
    assert rules[0] == MaskRule(2, 0, 1.0, LARGEST)
    assert rules[1:3] == (MaskRule(0, 1, 0.5, LARGEST), MaskRule(2, 2, 0.5, LARGEST))
    assert rules[3][:3] == (1, 0, -LARGEST)
    obs = np.array([[0, 1, 1], [1, 1, 0], [3, 0, 1]], np.float32)
    expected = [[True, True, False], [True, True, False], [False, False, True]]
    assert available(rules, obs, 3).tolist() == expected


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ("short: stock > 1", "the labels are buy, hold, sell"),
        ("sell: price > 1", "not in the observation"),
        ("sell: stock > much", "not a number"),
        ("may_*", "no column of the observation fits"),
        ("stock", "ends in no label"),
    ],
)
def test_bad_masks_are_refused_in_one_sentence(mask: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse_mask([mask], LABELS, NAMES, 3)


def test_columns_without_names_are_numbered() -> None:
    assert parse_mask(["sell: 2 = 4"], LABELS, (), 3) == (MaskRule(2, 2, 4.0, 4.0),)


def test_rows_that_break_their_mask_are_errors() -> None:
    dataset = wear.dataset(episodes=5, action_mask=((2, 0, 0.0, 8.0),))  # no running at 9
    findings = {finding.code: finding for finding in check(dataset)}
    first = int(np.flatnonzero((dataset.obs[:, 0] == 9) & (dataset.action_codes == 2))[0])
    assert findings["masked-action"].level == "error"
    assert findings["masked-action"].row == first
    closed = wear.dataset(episodes=5, action_mask=tuple((label, 0, 20.0, 30.0) for label in range(3)))
    assert "all-masked" in {finding.code for finding in check(closed)}


def test_rules_over_features_are_those_over_observations() -> None:
    """Exactly at the bounds too, where rounding could decide."""
    dataset = wear.dataset(episodes=20)
    norm = fit_normaliser(dataset)
    rules = (MaskRule(0, 0, 3.0, LARGEST), MaskRule(1, 0, -LARGEST, 5.0), MaskRule(2, 0, 4.0, 4.0))
    mask = feature_mask(rules, norm.obs_mean, norm.obs_std)
    net = mlp(jax.random.PRNGKey(0), [norm.features, 8, 3])
    policy = CategoricalPolicy(net, jnp.asarray(mask))
    obs = np.arange(10, dtype=np.float32)[:, None]
    expected = available(rules, obs, 3)
    features = jnp.asarray(norm.encode(obs))
    np.testing.assert_array_equal(policy.available(features), expected)
    some = expected.any(1)
    probability = np.asarray(policy(features).p)
    assert (probability[some][~expected[some]] == 0.0).all()
    np.testing.assert_allclose(probability.sum(1), 1.0, rtol=1e-6)
    for seed in range(20):
        label = np.asarray(policy.unit_action(features, jax.random.PRNGKey(seed))).argmax(1)
        assert expected[np.arange(10), label][some].all()
