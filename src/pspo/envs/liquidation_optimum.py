"""The exact optimum of the liquidation task, by backward induction over the price.

Why a one-dimensional table suffices: the optimal value of m units at time t and price p is m * v_t(p). It holds at
the horizon, where v = 0. If it holds at t + 1, selling a fraction phi is worth m * (phi * p + (1 - phi) * c_t(p))
with the continuation c_t(p) = E[v_{t+1}(p') | p]. That is linear in m and in phi, so the best phi is 0 or 1 and
v_t(p) = max(p, c_t(p)).

The rule that ends an episode below 0.1 units only destroys value (prices are never negative), so m * v_t(p) stays
an upper bound; selling all or nothing never leaves a small remainder, so it still attains the bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.special import ndtr

from pspo.core.errors import UserError
from pspo.envs.liquidation_rules import (
    HORIZON,
    INVENTORY,
    MEAN_PRICE,
    MIN_INVENTORY,
    PRICE_HIGH,
    PRICE_LOW,
    PRICE_SD,
    REVERSION,
    START_PRICE,
    START_PRICE_SD,
)

HOLD, SELL = -1.0, 1.0


@dataclass(frozen=True)
class Optimum:
    """The solved task; values are per unit of inventory."""

    prices: np.ndarray
    """Uniform price grid, shape (points,)."""
    value: np.ndarray
    """v_t(p) for t = 0..20, shape (21, points)."""
    continuation: np.ndarray
    """Value of keeping the unit, c_t(p) for t = 0..20, shape (21, points); zero from t = 19, the last step, on."""
    threshold: np.ndarray
    """Lowest price at which to sell, for t = 0..19."""
    mean_return: float
    """Expected return of the optimal policy from the start of an episode."""


@cache
def solve(points: int = 2001) -> Optimum:
    """Backward induction on `points` prices (cached; do not write into the result)."""
    prices, transition = _price_transitions(points)
    value = np.zeros((HORIZON + 1, points))
    continuation = np.zeros((HORIZON + 1, points))
    for t in reversed(range(HORIZON)):
        continuation[t] = transition @ value[t + 1]
        value[t] = np.maximum(prices, continuation[t])
    threshold = np.array([_crossing(prices, continuation[t]) for t in range(HORIZON)])
    for array in (prices, value, continuation, threshold):
        array.setflags(write=False)  # the result is shared by every caller
    return Optimum(prices, value, continuation, threshold, INVENTORY * _start_mean(prices, value[0]))


def value_of_discount(gamma: float, points: int = 2001) -> float:
    """Expected undiscounted return of the policy that is optimal for the discount `gamma`: what discounting costs."""
    if not 0 <= gamma <= 1:
        raise UserError(f"a discount lies between 0 and 1, not {gamma!r}.")
    prices, transition = _price_transitions(points)
    discounted = undiscounted = np.zeros(points)
    for _ in range(HORIZON):
        keep = gamma * (transition @ discounted)
        undiscounted = np.where(prices >= keep, prices, transition @ undiscounted)
        discounted = np.maximum(prices, keep)
    return INVENTORY * _start_mean(prices, undiscounted)


def optimal_action(obs: Any) -> np.ndarray:
    """Sell everything or hold; states (..., 3) to actions (..., 1)."""
    obs = np.asarray(obs, float)
    return np.where(obs[..., 2] >= _continuation(obs), SELL, HOLD)[..., None].astype(np.float32)


def v_value(obs: Any) -> np.ndarray:
    """Optimal value of states (..., 3); zero once the episode is over."""
    obs = np.asarray(obs, float)
    over = (np.rint(obs[..., 0]) >= HORIZON) | (obs[..., 1] < MIN_INVENTORY)
    return np.where(over, 0.0, obs[..., 1] * np.maximum(obs[..., 2], _continuation(obs)))


def q_value(obs: Any, action: Any) -> np.ndarray:
    """Value of taking the actions (..., 1) in the states (..., 3) and acting optimally afterwards."""
    obs, action = np.asarray(obs, float), np.asarray(action, float)
    over = (np.rint(obs[..., 0]) >= HORIZON) | (obs[..., 1] < MIN_INVENTORY)
    kept = obs[..., 1] * (1 - np.clip(action[..., 0], 0, 1))
    kept_worth = np.where(kept < MIN_INVENTORY, 0.0, kept * _continuation(obs))
    return np.where(over, 0.0, (obs[..., 1] - kept) * obs[..., 2] + kept_worth)


def _continuation(obs: np.ndarray) -> np.ndarray:
    """c_t(p) between the grid prices, by linear interpolation."""
    optimum = solve()
    t = np.clip(np.rint(obs[..., 0]).astype(int), 0, HORIZON)
    last = len(optimum.prices) - 1
    position = np.clip((obs[..., 2] - PRICE_LOW) / (PRICE_HIGH - PRICE_LOW) * last, 0, last)
    left = np.minimum(position.astype(int), last - 1)
    table = optimum.continuation
    return table[t, left] + (position - left) * (table[t, left + 1] - table[t, left])


@cache
def _price_transitions(points: int) -> tuple[np.ndarray, np.ndarray]:
    """The price grid and the matrix that maps values of the next price to their expectation given this price."""
    prices = np.linspace(PRICE_LOW, PRICE_HIGH, points)
    return prices, _expectation(prices + REVERSION * (MEAN_PRICE - prices), PRICE_SD, prices)


def _start_mean(prices: np.ndarray, values: np.ndarray) -> float:
    """Expectation over the first price of an episode."""
    return float(_expectation(np.array([START_PRICE]), START_PRICE_SD, prices)[0] @ values)


def _expectation(mean: np.ndarray, sd: float, grid: np.ndarray) -> np.ndarray:
    """Weights w[i, j] with E f(clip(X_i)) = sum_j w[i, j] f(grid_j), exact for piecewise-linear f on the grid.

    X_i is normal with mean mean_i. Such an f is a sum of ramps max(x - grid_j, 0), whose expectations have a closed
    form; a grid point's weight is the second difference of these. At the ends the hat function is cut in half and
    takes the clipped mass, which leaves a first difference.
    """
    depth = (mean[:, None] - grid) / sd
    ramp = sd * (np.exp(-0.5 * depth**2) / np.sqrt(2 * np.pi) + depth * ndtr(depth))
    slope = -np.diff(ramp, axis=1) / (grid[1] - grid[0])
    weights = np.empty_like(depth)
    weights[:, 0] = 1 - slope[:, 0]
    weights[:, 1:-1] = slope[:, :-1] - slope[:, 1:]
    weights[:, -1] = slope[:, -1]
    return weights


def _crossing(prices: np.ndarray, continuation: np.ndarray) -> float:
    """The price at which selling starts to pay: the root of p - c(p).

    It is unique: a price moves its own mean by a factor below one, so c rises more slowly than p.
    """
    gain = prices - continuation
    first = int(np.argmax(gain >= 0))
    if first == 0:
        return float(prices[0])
    share = -gain[first - 1] / (gain[first] - gain[first - 1])
    return float(prices[first - 1] + share * (prices[first] - prices[first - 1]))
