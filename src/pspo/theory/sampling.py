"""The sampled iteration of Remark 1 (Eq. (6), thm:policy_eval): Q moves by a small step towards a random target."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pspo.theory.ensemble import Array, FiniteEnsemble
from pspo.theory.operators import ValueRule, model_targets


def step_size(step: int, gamma: float) -> float:
    """eta_t = c / (c + t) with c = 2 / (1 - gamma): the sum diverges, the sum of squares does not.

    Plain 1/t also satisfies Robbins-Monro but shrinks the error only like t^-(1-gamma); c > 1/(1-gamma) avoids that.
    """
    scale = 2.0 / (1.0 - gamma)
    return scale / (scale + step)


def sampled_target(
    rng: np.random.Generator, ensemble: FiniteEnsemble, posterior: Array, value: Array, draw_next_state: bool
) -> Array:
    """Y of Prop. 2 for every state-action pair, with independent draws, (S, A).

    The mean over the draws is the exact backup, with the next state drawn or averaged: V enters linearly.
    """
    model = _draw(rng, np.moveaxis(posterior, 0, -1))
    state, action = np.indices(ensemble.reward.shape)
    if not draw_next_state:
        return model_targets(ensemble, value)[model, state, action]
    next_state = _draw(rng, ensemble.transitions[model, state, action])
    return ensemble.reward + ensemble.gamma * value[next_state]


def robbins_monro(
    rng: np.random.Generator,
    ensemble: FiniteEnsemble,
    *,
    posterior: Array,
    value_rule: ValueRule,
    start: Array,
    steps: int,
    draw_next_state: bool = True,
) -> Array:
    """Q_{t+1} = Q_t + eta_t (Y_t - Q_t) at every pair at once, Eq. (6).

    The value rule decides which operator is followed: the policy's mean for Eq. (5) (model:operator), the soft value
    for Eq. (8) (opt:eq2).
    """
    q = start
    for step in range(steps):
        target = sampled_target(rng, ensemble, posterior, value_rule(q), draw_next_state)
        q = q + step_size(step, ensemble.gamma) * (target - q)
    return q


def _draw(rng: np.random.Generator, probabilities: Array) -> NDArray[np.intp]:
    """One index per distribution along the last axis, by inverting the cumulative distribution."""
    cumulative = probabilities.cumsum(axis=-1)
    level = rng.random(probabilities.shape[:-1]) * cumulative[..., -1]
    index = (cumulative <= level[..., None]).sum(axis=-1)
    return np.minimum(index, probabilities.shape[-1] - 1)  # rounding can put the level at the very top
