"""What the JSON files of a run hold, checked before anything relies on it: somebody may have edited them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.core.files import parse_json

Fits = Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_text_or_none(value: Any) -> bool:
    return value is None or _is_text(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_setting(value: Any) -> bool:
    """JSON can hold infinity as Python writes it, and settings may be without bound."""
    return isinstance(value, str | int | float)


def _names(fits: Fits) -> Fits:
    """Anything by name."""
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


def _is_pattern(value: Any) -> bool:
    return _is_text(value) or _are_texts(value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_columns(value: Any) -> bool:
    return value is None or _names(_is_pattern)(value)


def _are_seconds(value: Any) -> bool:
    return _names(_is_number)(value) and all(seconds >= 0 for seconds in value.values())


SHAPES: dict[str, dict[str, Fits]] = {
    "config": {
        **dict.fromkeys(("algo", "dataset", "name", "preset"), _is_text),
        **dict.fromkeys(("seed", "episodes"), _is_count),
        "task": _is_text_or_none,
        "columns": _are_columns,
        "names": _names(_are_texts),
        "settings": _names(_is_setting),
    },
    "manifest": {
        **dict.fromkeys(("pspo", "python", "platform", "device", "algorithm", "data_hash"), _is_text),
        **dict.fromkeys(("seed", "cores", "threads"), _is_count),
        "libraries": _names(_is_text),
        "timings": _are_seconds,
        "models": _names(_is_text),
    },
    "result": {
        **dict.fromkeys(("algo", "dataset", "preset"), _is_text),
        **dict.fromkeys(("seed", "steps"), _is_count),
        "task": _is_text_or_none,
    },
    "models": {},
}
"""Of every file the keys that are relied on; further ones may be there."""


def require_shape(path: Path, name: str, value: Any, needed: tuple[str, ...]) -> dict[str, Any]:
    """The content of NAME.json, if it is one: every known key fits, and the needed ones are there."""
    if not isinstance(value, dict):
        raise UserError(f"{path} does not hold what a run writes there: restore it or train again.")
    for key in needed:
        if key not in value:
            raise UserError(f"{path} lacks '{key}': restore it or train again.")
    for key, fits in SHAPES.get(name, {}).items():
        if key in value and not fits(value[key]):
            raise UserError(f"'{key}' in {path} cannot be {_shown(value[key])}: restore it or train again.")
    return value


def _shown(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, dict | list) else f"{type(value).__name__} {str(value)[:60]}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def metrics_row(line: str) -> dict[str, Any] | None:
    """One line of metrics: numbers by name, among them the step. None for the torn line of a kill."""
    try:
        row = parse_json(line)
    except ValueError:
        return None
    is_row = isinstance(row, dict) and _is_count(row.get("step"))
    return row if is_row and all(isinstance(value, int | float) for value in row.values()) else None
