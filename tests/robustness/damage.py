"""Damaged files for hypothesis: bytes that change, and JSON whose values were edited."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from pspo.core.errors import UserError

FEW_AND_MANY = [pytest.param(1, id="few"), pytest.param(40, marks=pytest.mark.slow, id="many")]
"""Factors of the number of examples that a property is tested with."""


def bounded(examples: int) -> settings:
    """The same examples at every run, and at most so many."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),  # shrinking takes longer than reading the example
        suppress_health_check=list(HealthCheck),
    )


def refused_or(read: Callable[[], Any]) -> Any:
    """What was read, or None where it was refused in one sentence. Any other error fails the test."""
    try:
        return read()
    except UserError as problem:
        message = str(problem)
    assert message.strip()
    assert "\n" not in message
    assert len(message) < 1000
    return None


# Bytes


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """Up to three of: flipped bits, bytes dropped, inserted, replaced or repeated, a file cut short."""
    result = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(result) - 1, 0)))
        stop = min(len(result), at + draw(st.sampled_from([1, 2, 4, 8, 40, 300])))
        how = draw(st.sampled_from(["flip", "cut", "drop", "insert", "blank", "fill", "repeat"]))
        if how == "flip" and result:
            result[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del result[at:]
        elif how == "drop":
            del result[at:stop]
        elif how == "insert":
            result[at:at] = draw(st.binary(min_size=1, max_size=40))
        elif how == "blank":
            result[at:stop] = bytes(stop - at)
        elif how == "fill":
            result[at:stop] = b"\xff" * (stop - at)
        elif how == "repeat":
            result[at:at] = result[at:stop]
    return bytes(result)


# JSON


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 10**30, -(10**400), 0.5, -0.0, 1e308, 1e-320),
    *(float("nan"), float("inf"), float("-inf")),
    *("", " ", "x", "nan", "../../../etc/passwd", "/dev/zero", "<script>alert(1)</script>", "\0", "\ud800", "é" * 300),
    *([], [[]], [None], ["x", 1], [1.5, float("nan")], list(range(300)), nested(60)),
    *({}, {"": 0}, {"x": {"x": {"x": []}}}, {"step": "x"}, {"digest": 5}),
]


@st.composite
def edited(draw: st.DrawFn, value: Any) -> Any:
    """Up to three edits: a value of another kind, a key removed, added or renamed, two values swapped."""
    result = copy.deepcopy(value)
    for _ in range(draw(st.integers(1, 3))):
        slots = list(_slots(result))
        parent, key = draw(st.sampled_from(slots)) if slots else (None, None)
        how = draw(st.sampled_from(["replace", "replace", "replace", "remove", "add", "rename", "swap"]))
        odd = copy.deepcopy(draw(st.sampled_from(ODD)))
        if parent is None or (how == "replace" and draw(st.integers(0, 60)) == 0):
            result = odd
        elif how == "replace":
            parent[key] = odd
        elif how == "remove":
            del parent[key]
        elif how == "add" and isinstance(parent, dict):
            parent[draw(st.sampled_from(["", "extra", "step", "__class__", "score"]))] = odd
        elif how == "rename" and isinstance(parent, dict):
            parent[f"{key}x"] = parent.pop(key)
        elif how == "swap":
            other, its = draw(st.sampled_from(slots))
            if _holds(parent[key], other) or _holds(other[its], parent):
                continue
            parent[key], other[its] = other[its], parent[key]
    return result


def _slots(value: Any) -> Any:
    """(container, key) of every value in the tree."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in list(inside)[:400]:
        yield value, key
        if isinstance(part, dict | list):
            yield from _slots(part)


def _holds(value: Any, container: Any) -> bool:
    return value is container or any(part is container for parent, _ in _slots(value) for part in [parent])


@st.composite
def edited_text(draw: st.DrawFn, value: Any) -> str:
    """The same as text; sometimes nested too deeply, with keys twice, cut short, or inside a list."""
    how = draw(st.sampled_from(["edited"] * 12 + ["deep", "twice", "cut", "list"]))
    if how == "deep":
        return draw(st.sampled_from(["[" * 100_000, '{"a":' * 100_000, "[" * 50_000 + "]" * 50_000]))
    text = json.dumps(draw(edited(value)))
    if how == "twice" and text.startswith("{") and len(text) > 2:
        return text[:-1] + ", " + json.dumps(draw(edited(value)))[1:].lstrip()
    if how == "cut":
        return text[: draw(st.integers(0, len(text)))]
    return f"[{text}]" if how == "list" else text
