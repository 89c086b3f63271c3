"""The dataset's own return in the unit of Q, and whether critics have converged, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest

from pspo.evaluation.inspect.dataset_value import mean_return_from, steps_that_count
from tests.evaluation.ope.ope_cases import made_dataset

LENGTHS, ENDED = [3, 2, 4], [True, False, True]


@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_the_dataset_s_return_from_some_rows_in_the_unit_of_q(gamma) -> None:
    data = made_dataset(LENGTHS, ENDED)
    rows, starts, found = np.array([1, 4, 3, 5]), np.array([0, 3, 5]), []
    for row in rows:
        episode = int(np.searchsorted(starts, row, side="right")) - 1
        stop = starts[episode] + LENGTHS[episode]
        total = sum(gamma**k * data.reward[row + k] for k in range(stop - row))
        if not ENDED[episode]:
            if gamma == 1.0:
                continue
            total += gamma ** (stop - row) * data.reward.mean() / (1.0 - gamma)  # the mean reward for ever
        found.append(total)
    assert mean_return_from(data, rows, gamma) == pytest.approx(np.mean(found), rel=1e-6)


def test_cut_episodes_have_no_return_without_a_discount() -> None:
    data = made_dataset([3, 2], [False, False])
    assert mean_return_from(data, np.array([0, 4]), 1.0) is None


def test_the_number_of_steps_that_count() -> None:
    data = made_dataset(LENGTHS, ENDED)
    assert steps_that_count(data, 0.9) == pytest.approx(10.0)
    assert steps_that_count(data, 1.0) == pytest.approx((3 + 2 + 1 + 2 + 1 + 4 + 3 + 2 + 1) / 9)


@pytest.mark.parametrize("algo", ["pspo", "td3bc"])
def test_convergence_is_the_mean_gap_between_q_and_its_backups(inspected, algo) -> None:
    case = inspected[algo]
    found, data = case.found.convergence, case.data
    gamma, scale = case.networks.evaluators.gamma, float(case.networks.norm.reward_scale)
    own = np.asarray(case.problem.act(case.compared))
    assert found.q_std == pytest.approx(case.q(case.compared, own).mean(0).std(), rel=1e-3)
    if algo == "pspo":
        import jax

        backup = case.networks.posterior(case.compared[:500], own[:500], jax.random.PRNGKey(1))
        target = scale * (np.exp(backup.log_weight) * np.asarray(backup.backup)).sum(0)
        expected = (target - case.q(case.compared[:500], own[:500]).mean(0)).mean()
    else:
        unit = np.clip(case.unit(data.action), -1.0, 1.0)
        ahead = case.q(data.next_obs, np.asarray(case.problem.act(data.next_obs))).mean(0)
        error = data.reward + gamma * np.where(data.terminal, 0.0, ahead) - case.q(data.obs, unit).mean(0)
        expected = error.mean()
    assert found.residual == pytest.approx(expected, rel=1e-3, abs=1e-4)
    assert found.shift == pytest.approx(found.residual / (1.0 - gamma))
    assert case.found.values.penalty == (
        None if algo == "td3bc" else pytest.approx(scale * case.networks.evaluators.config.alpha)
    )
