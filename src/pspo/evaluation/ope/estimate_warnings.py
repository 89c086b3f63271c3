"""Why an estimate should not be trusted: one sentence with a number each."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from scipy.spatial import KDTree

from pspo.data.batches import CUT_OFF
from pspo.evaluation.ope.return_estimate import ReturnEstimate
from pspo.evaluation.problem import EvaluationProblem

FEW_EPISODES = 50.0  # effective ones, after weighting
FEW_MODELS = 2.5
LONG_HORIZON = 100  # steps over which products of ratios, and errors of models and critics, accumulate
MUCH_OUTSIDE = 0.002  # fraction of model steps
MANY_NEW_ACTIONS = 0.1  # fraction of the policy's actions
MANY_AT_BOUNDS = 0.01  # fraction of the dataset's actions
FAR_MEAN_WEIGHT = 2.0  # a mean weight that many times too large or too small
COLLAPSE = 0.81  # of the dataset's return, in long episodes of the models: benchmarks/results/ope-locomotion.json
COLLAPSED_BELOW, OTHERS_BELOW = (20, 24), (5, 64)  # policies of that study, and how many of each kind
FAR = 0.99  # an action is new if its nearest neighbour in the data is farther than for 99 % of the data themselves
SEARCHED = 10_000


def general_warnings(estimate: ReturnEstimate, new_actions: float) -> list[str]:
    """Those of all methods. `new_actions` is the fraction of the policy's actions that are unlike any in the data."""
    reasons = []
    if not np.isfinite(estimate.value):
        reasons.append(
            "it is not a number: the policy would have taken none of the dataset's actions, or a network diverged."
        )
    if not np.isfinite([estimate.low, estimate.high]).all():
        reasons.append("it has no interval: too few effective samples are left to estimate its error.")
    if not new_actions <= MANY_NEW_ACTIONS:
        reasons.append(
            f"in {100 * new_actions:.0f} % of the dataset's states the policy's action is unlike any in the data: no "
            "method can tell what follows."
        )
    if abs(residual := estimate.numbers.get("bellman_residual", 0.0)) > 0.5 * (estimate.high - estimate.low):
        reasons.append(
            f"the critics have not converged: their Bellman residual is {residual:.3g} per episode of the dataset."
        )
    return reasons + _by_numbers(estimate.numbers)


def _by_numbers(numbers: dict[str, float]) -> list[str]:
    """Effective sample sizes, weights and models; a NaN is a warning too."""
    reasons, episodes = [], numbers.get("effective_episodes", np.inf)
    if not episodes >= FEW_EPISODES:
        reasons.append(f"the importance weights leave {episodes:.1f} effective episodes of {numbers['episodes']:,.0f}.")
    if not 1.0 / FAR_MEAN_WEIGHT <= (mean := numbers.get("mean_weight", 1.0)) <= FAR_MEAN_WEIGHT:
        reasons.append(
            f"the mean importance weight is {mean:.2g} instead of 1: the data do not cover the policy's actions."
        )
    if (fraction := numbers.get("fraction_at_bounds", 0.0)) > MANY_AT_BOUNDS:
        reasons.append(
            f"{100 * fraction:.0f} % of the dataset's actions lie at a bound, where densities are not valid."
        )
    if not (models := numbers.get("effective_models", np.inf)) >= FEW_MODELS:
        reasons.append(f"only {models:.1f} models are effective: their disagreement says little about the error.")
    if (fraction := numbers.get("fraction_outside", 0.0)) > MUCH_OUTSIDE:
        reasons.append(f"{100 * fraction:.1f} % of model steps leave the range of the data.")
    if (weight := numbers.get("truncated_weight", 0.0)) > CUT_OFF:
        reasons.append(
            f"the return after the dataset's longest episode is left out, and would count with a weight of "
            f"{100 * weight:.0f} %."
        )
    if (share := numbers.get("return_of_dataset", np.inf)) < COLLAPSE:
        (flagged, of), (wrongly, among) = COLLAPSED_BELOW, OTHERS_BELOW
        reasons.append(
            f"its episodes in the models return {share:.2f} times what the dataset's do. In the study of docs/ope.md "
            f"{flagged} of {of} policies that collapsed were below {COLLAPSE}, and {wrongly} of {among} that did not."
        )
    return reasons


def fraction_of_new_actions(problem: EvaluationProblem, seed: int = 0) -> float:
    """How often the policy's action in a state of the dataset is farther from all data than they from each other."""
    picked = np.random.default_rng(seed).permutation(problem.dataset.size)[: 2 * SEARCHED]
    obs, unit = problem.dataset.obs[picked], np.asarray(problem.device_data.transitions.action)[picked]
    state = (obs - problem.norm.obs_mean) / problem.norm.obs_std
    return share_of_new_actions(state, unit, lambda asked: np.asarray(problem.act(jnp.asarray(obs[asked]))))


def share_of_new_actions(state: np.ndarray, unit: np.ndarray, act: Callable[[slice], np.ndarray]) -> float:
    """Of standardised states and unit actions of the dataset, in random order; `act` gives the policy's for some.

    Distances are between states and actions together; every transition is compared with the other half of the dataset.
    NaN if there are too few transitions.
    """
    half = len(state) // 2
    if half < 2:
        return float("nan")
    known, asked = slice(0, half), slice(half, None)
    tree = KDTree(np.concatenate([state[known], unit[known]], axis=1))
    in_data, _ = tree.query(np.concatenate([state[asked], unit[asked]], axis=1))
    of_policy, _ = tree.query(np.concatenate([state[asked], act(asked)], axis=1))
    return float((of_policy > np.quantile(in_data, FAR)).mean())
