"""What speaks against believing an estimate, in sentences that say how much."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from scipy.spatial import KDTree

from pspo.data.batches import CUT_OFF
from pspo.evaluation.ope.estimates import Estimate
from pspo.evaluation.ope.subject import Subject

FEW_EPISODES = 50.0  # effective ones, for weights
FEW_MODELS = 2.5
LONG_HORIZON = 100  # steps over which products of ratios, and errors of models and critics, add up
MUCH_OUTSIDE = 0.002  # of imagined steps
MUCH_NEW = 0.1  # of the policy's actions
MUCH_AT_BOUNDS = 0.01  # of logged actions
FAR_MEAN_WEIGHT = 2.0  # a mean weight that many times too large or too small
FAR = 0.99  # an action is new where its nearest logged neighbour is farther than that of all but 1 % of logged ones
ROWS = 10_000


def warnings(subject: Subject, estimate: Estimate, new: float) -> list[str]:
    """`new` is the share of the policy's actions that the log does not have; empty where nothing speaks against it."""
    said = []
    if not np.isfinite(estimate.value):
        said.append("it is not a number: nothing of the log could have been the policy's, or a network diverged.")
    if not np.isfinite([estimate.low, estimate.high]).all():
        said.append("there is no interval: too little is left to tell the spread from.")
    if not new <= MUCH_NEW:
        said.append(
            f"in {100 * new:.0f} % of the log's states the policy does what the log has nothing like: nobody knows "
            "what follows there."
        )
    if abs(wrong := estimate.numbers.get("contradiction", 0.0)) > 0.5 * (estimate.high - estimate.low):
        said.append(f"the critics are not finished: they contradict the log's own episodes by {wrong:.3g} each.")
    return said + _of_numbers(estimate.numbers) + _of_horizon(subject, estimate.method)


def _of_numbers(found: dict[str, float]) -> list[str]:
    """Effective sample sizes, and what weights and models say of themselves. A NaN speaks against an estimate too."""
    said, episodes = [], found.get("effective_episodes", np.inf)
    if not episodes >= FEW_EPISODES:
        said.append(f"the weights leave {episodes:.1f} effective episodes of {found['episodes']:,.0f}.")
    if not 1.0 / FAR_MEAN_WEIGHT <= (mean := found.get("mean_weight", 1.0)) <= FAR_MEAN_WEIGHT:
        said.append(f"the mean of the weights is {mean:.2g} and not 1: the log lacks what the policy does.")
    if (share := found.get("share_at_bounds", 0.0)) > MUCH_AT_BOUNDS:
        said.append(f"{100 * share:.0f} % of the logged actions lie at a bound, where densities do not hold.")
    if not (models := found.get("effective_models", np.inf)) >= FEW_MODELS:
        said.append(f"only {models:.1f} models are believed: their spread says little.")
    if (share := found.get("share_outside", 0.0)) > MUCH_OUTSIDE:
        said.append(f"{100 * share:.1f} % of imagined steps leave the log's range.")
    if (rest := found.get("weight_of_the_rest", 0.0)) > CUT_OFF:
        said.append(f"what follows after the log's longest episode is left out, and would count by {100 * rest:.0f} %.")
    return said


def _of_horizon(subject: Subject, method: str) -> list[str]:
    said, steps = [], subject.horizon
    if method == "posterior models" and steps > LONG_HORIZON:
        said.append(f"errors of the models add up over {steps} steps, which the interval does not count.")
    if method in ("importance sampling", "doubly robust") and steps > LONG_HORIZON:
        said.append(f"products of ratios over {steps} steps vary without bound.")
    if method == "fitted Q":
        reach = min(steps, 1.0 / max(1.0 - subject.gamma, 1e-12))
        if reach > LONG_HORIZON:
            said.append(f"errors of the critics add up over {reach:.0f} steps, which the interval counts in part.")
        if subject.gamma == 1.0 and subject.cut.mean() > CUT_OFF:
            said.append(
                f"{100 * subject.cut.mean():.0f} % of the log's episodes are cut off, and without a discount nothing "
                "bounds what follows."
            )
    return said


def share_of_new_actions(subject: Subject, seed: int = 0) -> float:
    """How often the policy's action in a logged state is farther from all logged pairs than logged pairs are.

    Distances are between standardised states and unit actions together; each logged pair is measured against the
    other half of the log. NaN where there are too few rows to tell.
    """
    rows = np.random.default_rng(seed).permutation(subject.data.size)[: 2 * ROWS]
    half = len(rows) // 2
    if half < 2:
        return float("nan")
    known, asked = rows[:half], rows[half:]
    obs, unit = subject.data.obs, np.asarray(subject.device_data.transitions.action)
    state = (obs - subject.norm.obs_mean) / subject.norm.obs_std
    tree = KDTree(np.concatenate([state[known], unit[known]], axis=1))
    own = np.asarray(subject.act(jnp.asarray(obs[asked])))
    logged, _ = tree.query(np.concatenate([state[asked], unit[asked]], axis=1))
    meant, _ = tree.query(np.concatenate([state[asked], own], axis=1))
    return float((meant > np.quantile(logged, FAR)).mean())
