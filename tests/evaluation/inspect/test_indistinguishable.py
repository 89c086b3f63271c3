"""Actions that critics cannot distinguish: they disagree about a difference of Q by more than the difference."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pspo.evaluation.inspect.action_values import indistinguishable_around

ACTION = np.linspace(-1.0, 1.0, 201)
MEAN: Any = SimpleNamespace(combine=lambda each: each.mean(0))


def indistinguishable(critics, here: float) -> tuple[float, float]:
    each = np.stack([critic(ACTION) for critic in critics])
    at_policy = np.stack([critic(np.array([here])) for critic in critics])
    return indistinguishable_around(MEAN, each, at_policy, ACTION, here)


def test_contradictory_critics_distinguish_no_actions() -> None:
    assert indistinguishable([lambda a: a, lambda a: -a], 0.3) == (-1.0, 1.0)


def test_critics_that_differ_by_a_constant_distinguish_all_actions() -> None:
    assert indistinguishable([lambda a: a, lambda a: a + 50.0], 0.303) == (0.303, 0.303)


def test_the_range_ends_where_critics_agree_again() -> None:
    """Q differs by a^2, about which they differ by sqrt(2) |a| / 2: indistinguishable up to |a| = sqrt(1/2)."""
    found = indistinguishable([lambda a: a**2 + 0.5 * a, lambda a: a**2 - 0.5 * a], 0.0)
    assert found == pytest.approx((-(0.5**0.5), 0.5**0.5), abs=0.01)


def test_the_range_does_not_continue_beyond_a_maximum() -> None:
    def wave(sign: int):
        return lambda a: 5.0 * np.abs(np.sin(3.0 * a)) + sign * 0.1 * a

    low, high = indistinguishable([wave(1), wave(-1)], 0.0)
    assert -0.1 < low <= 0.0 <= high < 0.1


def test_one_critic_gives_an_empty_range() -> None:
    assert indistinguishable([lambda a: 0.0 * a], 0.2) == (0.2, 0.2)
