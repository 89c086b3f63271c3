"""What is judged and with which means: the subject, the recipe, and methods that a policy does not allow."""

from __future__ import annotations

import numpy as np
import pytest

from pspo.core.errors import UserError
from pspo.data.normalise import fit_normaliser
from pspo.evaluation.ope.judge import judge
from pspo.evaluation.ope.recipe import recipe_for
from pspo.evaluation.ope.subject import make_subject, usual_gamma
from pspo.policies.policy import from_network
from tests.evaluation.ope.ope_cases import FACTS, constant, gaussian, made_log, made_subject


def test_a_policy_without_noise_has_no_weights_and_that_is_said() -> None:
    data = made_log([5] * 8, [True] * 8)
    subject = made_subject(data, constant(fit_normaliser(data, 1.0), 0.3))
    found = judge(subject, recipe_for(data, "smoke"), methods=["importance", "doubly-robust"])
    assert found.estimates == []
    assert found.lacking == dict.fromkeys(
        ["importance sampling", "doubly robust"], "the policy has no noise, and so no density."
    )


def test_doubts_are_part_of_an_estimate() -> None:
    data = made_log([5] * 8, [True] * 8)
    flat = lambda obs, unit: 0.0 * unit[:, 0]  # noqa: E731
    (estimate,) = judge(made_subject(data), recipe_for(data, "smoke"), methods=["importance"], behaviour=flat).estimates
    assert "effective episodes of 8" in " ".join(estimate.warnings)
    assert estimate.numbers["share_at_bounds"] == 0.0


@pytest.mark.parametrize(("methods", "confidence"), [(["magic"], 0.9), (["models"], 1.0), (["models"], np.nan)])
def test_wrong_words_are_refused_before_any_work(methods, confidence) -> None:
    data = made_log([5], [True])
    with pytest.raises(UserError, match=r"unknown method 'magic'|confidence=.* is out of range"):
        judge(made_subject(data), None, methods=methods, confidence=confidence)


@pytest.mark.parametrize(("ended", "gamma"), [(99, 1.0), (98, 0.95)])
def test_rewards_are_discounted_unless_episodes_end_by_themselves(ended, gamma) -> None:
    data = made_log([2] * 100, np.arange(100) < ended)
    assert usual_gamma(data, 0.95) == gamma
    norm = fit_normaliser(data)
    policy = from_network(gaussian(norm), norm, FACTS)
    assert make_subject(policy, data, None, 0.95).gamma == gamma
    assert make_subject(policy, data, 0.5, 0.95).gamma == 0.5


def test_the_unit_of_rewards_is_the_recipes_whatever_return_is_meant() -> None:
    """So that all policies meet the same models."""
    data = made_log([5] * 8, [True] * 8)
    norm = fit_normaliser(data, 0.9)
    policy = from_network(gaussian(norm), norm, FACTS)
    one, other = make_subject(policy, data, 1.0, 0.99, units=0.9), make_subject(policy, data, 0.5, 0.8, units=0.9)
    assert one.norm.reward_scale == other.norm.reward_scale == norm.reward_scale
    np.testing.assert_allclose(one.log.transitions.reward, data.reward / norm.reward_scale, rtol=1e-6)


def test_a_run_of_seconds_is_judged_in_seconds_and_none_by_a_pool_of_days() -> None:
    data = made_log([5], [True])
    smoke, laptop, paper = (recipe_for(data, name) for name in ("smoke", "laptop", "paper"))
    assert smoke.pspo.model.steps < 100 < laptop.pspo.model.steps
    assert smoke.fitted_q.steps < 1000 < laptop.fitted_q.steps
    assert paper == laptop
