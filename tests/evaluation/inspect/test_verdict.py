"""Every sentence of the verdict on both sides of its threshold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pspo.evaluation.inspect.acts import Act, ActColumn
from pspo.evaluation.inspect.beliefs import Beliefs, Following, Member
from pspo.evaluation.inspect.doubt import Doubt
from pspo.evaluation.inspect.place import Column, Place
from pspo.evaluation.inspect.values import BEST, POLICY, Curve, Mark, Values
from pspo.evaluation.inspect.verdict import NONE_SEEN, verdict

GRID = np.linspace(0.0, 2.0, 5)
CURVE = Curve("dose", GRID, GRID**2, GRID**2, np.ones(5), np.zeros(5), None, (1.0, 1.2))
PARTS: dict[str, Any] = {
    "place": Place([Column("x", 1.0, 50.0, 0.0, 2.0)], 0.5, 0.4, 60.0, 8, 100, [1, 2]),
    "act": Act([ActColumn("dose", 1.0, 0.0, 2.0, 0.1, (0.9, 1.1), 1.1, (0.5, 1.5), (0.0, 0.0))], -1.0, -2.0, 1.0, 40.0),
    "values": Values(
        0.9, 2, "mean", [CURVE], [Mark(POLICY, [1.0], 1.0, 0.1, 0.0, 0.0), Mark(BEST, [2.0], 1.5, 0.1, 0.5, 0.3)]
    ),
    "beliefs": Beliefs(
        3.0,
        0.9,
        [Member(3, 0.6, [1.0], 0.5, 0.0, 1.0), Member(1, 0.4, [1.1], 0.4, 0.0, 0.9)],
        [Following("x", 1.0, 1.1, 0.1, 0.2, 1.2, 1.0, 0.1), Following("reward", None, 0.5, 0.1, 0.1, 0.4, 0.5, 0.1)],
        0.0,
    ),
    "doubt": Doubt(0.1, 0.1, 50.0, 0.2, 0.2, 50.0, 2000),
}


def said(**changes: Any) -> list[str]:
    return verdict(**(PARTS | changes))


def changed(name: str, **fields: Any) -> dict[str, Any]:
    return {name: PARTS[name]._replace(**fields)}


def with_best(gain: float, spread: float) -> dict[str, Any]:
    marks = PARTS["values"].marks
    return changed("values", marks=[marks[0], marks[1]._replace(gain=gain, gain_spread=spread)])


def with_curve(**fields: Any) -> dict[str, Any]:
    return changed("values", curves=[CURVE._replace(**fields)])


def with_followed(value: float | None) -> dict[str, Any]:
    first, second = PARTS["beliefs"].following
    return changed("beliefs", following=[first._replace(followed=value), second])


def column(value: float) -> dict[str, Any]:
    return changed("place", columns=[Column("x", value, 50.0, 0.0, 2.0)])


def believed(number: float) -> dict[str, Any]:
    return changed("beliefs", effective=number)


def test_nothing_seen_is_said() -> None:
    assert said() == [NONE_SEEN]


@pytest.mark.parametrize(
    ("says", "seen", "not_seen"),
    [
        ("outside of the log's range: x is 2.1 (log: 0 to 2)", column(2.1), column(2.0)),
        (
            "few states like this",
            changed("place", distance_percentile=99.1),
            changed("place", distance_percentile=99.0),
        ),
        ("hardly ever does here", changed("act", percentile=0.9), changed("act", percentile=1.0)),
        (
            "cannot tell these actions apart: dose from 0.9 to 1.5",
            with_curve(alike=(0.9, 1.5)),
            with_curve(alike=(1.0, 1.49)),
        ),
        ("prefer another action, 2", with_best(0.61, 0.3), with_best(0.6, 0.3)),
        ("prefer another action, 2", with_best(0.41, 0.1), with_best(0.4, 0.1)),  # a tenth of what Q varies by
        ("one critic", changed("values", critics=1), changed("values", critics=2)),
        ("Only 2.4 of 2 models are believed here, model 3 by 60 %", believed(2.4), believed(2.5)),
        (
            "models disagree about what follows",
            changed("doubt", models_percentile=95.1),
            changed("doubt", models_percentile=95.0),
        ),
        (
            "critics disagree about Q",
            changed("doubt", critics_percentile=95.1),
            changed("doubt", critics_percentile=95.0),
        ),
        ("not what the models expect: next x 1.41 (expected 1 ± 0.1)", with_followed(1.41), with_followed(1.39)),
        ("not what the models expect: next x 0.59", with_followed(0.59), with_followed(None)),
    ],
)
def test_each_sign_is_seen_beyond_its_threshold_and_not_before(says, seen, not_seen) -> None:
    found = said(**seen)
    assert len(found) == 1
    assert says in found[0]
    assert said(**not_seen) == [NONE_SEEN]


def test_signs_add_up() -> None:
    found = said(**column(-1.0), **changed("act", percentile=0.0))
    assert [sentence.split(":")[0] for sentence in found] == [
        "The state lies outside of the log's range",
        "The policy does something the log hardly ever does here",
    ]


def test_many_columns_are_not_all_named() -> None:
    columns = [Column(f"x{i}", 9.0, 100.0, 0.0, 2.0) for i in range(5)]
    (sentence,) = said(**changed("place", columns=columns))
    assert "x2 is 9 (log: 0 to 2) and 2 more." in sentence


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (with_curve(q=GRID * np.nan), "Q"),
        (changed("act", reference_log_density=float("nan")), "mu's density"),
        (changed("doubt", models=float("inf")), "what the models predict"),
    ],
)
def test_what_is_not_a_number_is_not_hidden(changes, what) -> None:
    assert said(**changes)[0].startswith(f"Not a finite number is {what}:")
