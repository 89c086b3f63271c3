"""Masks: rules and columns, where they are refused, and that no policy ever takes what they forbid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pspo.algorithms.pspo.rollout import RolloutKeys, roll_out
from pspo.algorithms.registry import get_algorithm_for, preset
from pspo.core.config import build
from pspo.core.errors import UserError
from pspo.data import Dataset, check
from pspo.data.action_mask import LARGEST, MaskRule, available, parse_mask
from pspo.data.batches import device_dataset
from pspo.data.holdout import rows_of
from pspo.data.normalise import fit_normaliser
from pspo.evaluation.density import fitted_behaviour, log_ratios
from pspo.evaluation.problem import EvaluatedReturn, make_problem
from pspo.nets.categorical import CategoricalPolicy, feature_mask
from pspo.nets.mlp import mlp
from pspo.policies.policy import from_network
from pspo.training.monitor import SILENT
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


def test_messages_about_masks_name_the_row_of_the_file() -> None:
    data = wear.dataset(episodes=5)
    broken = int(np.flatnonzero((data.obs[:, 0] == 9) & (data.action_codes == 2))[0])
    where = {"source_rows": 100 + np.arange(data.size), "files": (("may.csv", 0), ("june.csv", 90))}
    for mask, row in ((((2, 0, 0.0, 8.0),), broken), (tuple((label, 0, 20.0, 30.0) for label in range(3)), 0)):
        findings = check(wear.dataset(episodes=5, action_mask=mask, **where))
        messages = [finding.message for finding in findings if finding.code in ("masked-action", "all-masked")]
        assert all(f"row {row + 10} of 'june.csv'" in message for message in messages)
        assert messages


# What trains and what evaluates

MASK = (MaskRule(1, 0, 2.0, LARGEST),)  # `replace` from wear 2 on


@pytest.fixture(scope="module")
def masked() -> Dataset:
    """A log that keeps to the mask."""
    full = wear.dataset(episodes=40)
    kept = available(MASK, full.obs, 3)[np.arange(full.size), full.action_codes]
    return replace(rows_of(full, np.flatnonzero(kept)), action_mask=MASK)


def allowed(obs: Any, action: Any) -> np.ndarray:
    """(rows,) whether one-hot actions are available."""
    obs, action = (np.asarray(part).reshape(-1, np.shape(part)[-1]) for part in (obs, action))
    return available(MASK, obs, 3)[np.arange(len(obs)), action.argmax(1)]


def prepared(algo: str, dataset: Dataset, **settings: Any) -> tuple[Any, Any, Any, Any, Any]:
    algorithm = get_algorithm_for(dataset, algo)
    config = build(algorithm.Config, preset(algo, "smoke", None, discrete=True), settings)
    setup, _ = algorithm.prepare(config, dataset, 0, SILENT.progress)
    data = device_dataset(dataset, setup.norm, config.gamma)
    return algorithm, config, setup, data, algorithm.init(config, setup, data, jax.random.PRNGKey(0))


def test_rollouts_of_pspo_keep_to_the_mask(masked: Dataset) -> None:
    """Those of the policy and those of mu, in states that models predict."""
    algorithm, config, setup, data, state = prepared("pspo", masked, synthetic_batch=256)
    state, context, _ = algorithm.begin_chunk(config, setup, data, state)
    step, actions = jax.jit(lambda *args: roll_out(config, setup, context, *args)), []
    for key in jax.random.split(jax.random.PRNGKey(1), 10):
        batch = algorithm.draw(config, data, key)
        synthetic = step(state, batch.restart, RolloutKeys(*jax.random.split(key, 4)))
        state = state._replace(rollouts=synthetic.rollouts)
        actions.append((synthetic.obs, synthetic.action))
    obs, action = (np.concatenate(parts) for parts in zip(*actions, strict=True))
    assert allowed(obs, action).all()
    assert (obs[:, 0] < 2).any()
    assert (action.argmax(1) == 1).any()


def test_rollouts_of_mopo_keep_to_the_mask(masked: Dataset) -> None:
    algorithm, config, setup, data, state = prepared("mopo", masked)
    buffer = algorithm.begin_chunk(config, setup, data, state)[0].buffer
    rows = jax.tree.map(lambda part: part[: int(buffer.size)], buffer.transitions)
    assert len(rows.obs) > 100
    assert allowed(rows.obs, rows.action).all()
    assert (np.asarray(rows.action).argmax(1) == 1).any()


def test_ope_keeps_to_the_mask(masked: Dataset) -> None:
    """The behaviour that it fits, and the actions in its models."""
    _, config, setup, _, state = prepared("pspo", masked)
    policy = from_network(state.params.policy, setup.norm, {})
    policy = replace(policy, action_labels=wear.LABELS)
    problem = make_problem(policy, masked, EvaluatedReturn(0.9, 20, True), 0.9)
    behaviour = fitted_behaviour(problem, config.reference, SILENT.progress)
    states = jnp.repeat(jnp.arange(10.0)[:, None], 3, axis=0)
    each = jnp.tile(jnp.eye(3), (10, 1))
    probability = np.exp(np.asarray(behaviour(states, each), np.float64)).reshape(10, 3)
    np.testing.assert_array_equal(probability > 0, available(MASK, np.arange(10)[:, None], 3))
    np.testing.assert_allclose(probability.sum(1), 1.0, rtol=1e-5)
    obs = jnp.linspace(0.0, 9.0, 500)[:, None]
    assert allowed(obs, problem.act(obs)).all()
    assert np.isfinite(log_ratios(problem, behaviour)).all()
