"""Which actions critics cannot tell apart: where they differ more about a difference than Q differs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pspo.evaluation.inspect.values import alike_around

ACTION = np.linspace(-1.0, 1.0, 201)
MEAN: Any = SimpleNamespace(q_together=lambda each: each.mean(0))


def alike(critics, here: float) -> tuple[float, float]:
    each = np.stack([critic(ACTION) for critic in critics])
    at_policy = np.stack([critic(np.array([here])) for critic in critics])
    return alike_around(MEAN, each, at_policy, ACTION, here)


def test_critics_that_contradict_each_other_know_nothing() -> None:
    assert alike([lambda a: a, lambda a: -a], 0.3) == (-1.0, 1.0)


def test_critics_that_agree_tell_all_actions_apart_whatever_they_say_of_the_level() -> None:
    assert alike([lambda a: a, lambda a: a + 50.0], 0.303) == (0.303, 0.303)


def test_the_stretch_ends_where_they_agree_again() -> None:
    """Q differs by a^2, about which they differ by sqrt(2) |a| / 2: alike up to |a| = sqrt(1/2)."""
    found = alike([lambda a: a**2 + 0.5 * a, lambda a: a**2 - 0.5 * a], 0.0)
    assert found == pytest.approx((-(0.5**0.5), 0.5**0.5), abs=0.01)


def test_what_is_alike_beyond_a_hill_does_not_count() -> None:
    def wave(sign: int):
        return lambda a: 5.0 * np.abs(np.sin(3.0 * a)) + sign * 0.1 * a

    low, high = alike([wave(1), wave(-1)], 0.0)
    assert -0.1 < low <= 0.0 <= high < 0.1


def test_one_critic_cannot_say_what_it_does_not_know() -> None:
    assert alike([lambda a: 0.0 * a], 0.2) == (0.2, 0.2)
