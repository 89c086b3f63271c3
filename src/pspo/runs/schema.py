"""The shape of the JSON files of a run, checked on reading: somebody may have edited them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.core.files import parse_json

Fits = Callable[[Any], bool]


def is_text(value: Any) -> bool:
    return isinstance(value, str)


def is_number(value: Any) -> bool:
    return is_any_number(value) and abs(value) < math.inf


def is_any_number(value: Any) -> bool:
    """Also one that is not finite, which Python writes and reads as NaN or Infinity."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def is_setting(value: Any) -> bool:
    """A text, a flag or a number, which may be infinite: JSON can hold that as Python writes it."""
    return isinstance(value, str | int | float)


def by_name(fits: Fits) -> Fits:
    """A dictionary whose values all fit."""
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


def _is_pattern(value: Any) -> bool:
    return is_text(value) or list_of(is_text)(value)


def _is_label(value: Any) -> bool:
    """Of a discrete action."""
    return is_text(value) or is_number(value)


def _are_columns(value: Any) -> bool:
    return value is None or by_name(_is_pattern)(value)


def _is_holdout(value: Any) -> bool:
    if not isinstance(value, dict) or not {"fraction", "by"} <= set(value) <= {"fraction", "by", "from_time"}:
        return False
    return is_number(value["fraction"]) and ("from_time" not in value or _is_label(value["from_time"]))


def list_of(fits: Fits) -> Fits:
    """A list whose items all fit."""
    return lambda value: isinstance(value, list) and all(map(fits, value))


def with_keys(known: dict[str, Fits]) -> Fits:
    """A dictionary whose known keys fit, where it has them; further ones may be there."""
    return lambda value: isinstance(value, dict) and all(k not in value or fits(value[k]) for k, fits in known.items())


def with_all(known: dict[str, Fits]) -> Fits:
    """A dictionary that has all of these keys, and they fit."""
    return lambda value: isinstance(value, dict) and all(k in value and fits(value[k]) for k, fits in known.items())


def or_none(fits: Fits) -> Fits:
    return lambda value: value is None or fits(value)


def _are_seconds(value: Any) -> bool:
    return by_name(is_number)(value) and all(seconds >= 0 for seconds in value.values())


ACTION_NUMBERS = ("dataset_mean", "policy_mean", "mean_difference", "share_of_range", "higher", "lower")
_is_interval = with_keys(dict.fromkeys(("value", "low", "high"), or_none(is_number)))
_has_means = with_all(dict.fromkeys(("dataset", "policy", "share"), is_number))
_is_range, _is_named = with_all({"low": is_number, "high": is_number}), with_all({"label": is_text})


def _is_group(value: Any) -> bool:
    return _has_means(value) and (_is_range(value) or _is_named(value))


COMPARISON: dict[str, Fits] = {
    **dict.fromkeys(("verdict", "basis", "headline", "quantity"), is_text),
    "reasons": list_of(is_text),
    "dataset": _is_interval,
    "policy": or_none(_is_interval),
    "compared_rows": is_count,
    "obs_names": list_of(is_text),
    "new_actions": or_none(is_number),
    "actions": list_of(with_all({"name": is_text, **dict.fromkeys(ACTION_NUMBERS, is_number)})),
    "by_state": list_of(
        with_all({**dict.fromkeys(("action", "column"), is_text), "explained": is_number, "groups": list_of(_is_group)})
    ),
    "rows": list_of(
        with_all(
            {
                "row": is_count,
                "obs": list_of(or_none(_is_label)),
                **dict.fromkeys(("dataset", "policy"), list_of(is_number)),
            }
        )
    ),
}
RESULT_NUMBERS = (
    *("seconds", "episodes", "return_mean", "return_std", "return_stderr", "cvar10", "score", "score_stderr"),
    *("regret", "regret_stderr", "score_by_regret", "optimal_score", "uncertainty_td_spearman"),
    *("model_episodes", "model_steps", "model_return", "dataset_return", "target_policy_score", "posterior_entropy"),
)
_are_numbers = or_none(list_of(is_any_number))
MODEL_NUMBERS: dict[str, Fits] = {
    **dict.fromkeys(("holdout_log_likelihood", "k_step_error", "k_step_error_of_no_change"), _are_numbers),
    **dict.fromkeys(("calibration_levels", "calibration_coverage"), _are_numbers),
    "calibration_coverage_per_target": or_none(list_of(_are_numbers)),
    "calibration_error": or_none(is_any_number),
}

SHAPES: dict[str, dict[str, Fits]] = {
    "config": {
        **dict.fromkeys(("algo", "dataset", "name", "preset"), is_text),
        **dict.fromkeys(("seed", "episodes"), is_count),
        "task": or_none(is_text),
        "columns": _are_columns,
        "holdout": or_none(_is_holdout),
        "names": by_name(list_of(is_text)),
        "action_labels": list_of(_is_label),
        "settings": by_name(is_setting),
    },
    "manifest": {
        **dict.fromkeys(("pspo", "python", "platform", "device", "algorithm"), is_text),
        **dict.fromkeys(("data_hash", "holdout_hash", "holdout_difference"), is_text),
        **dict.fromkeys(("seed", "cores", "threads"), is_count),
        "libraries": by_name(is_text),
        "timings": _are_seconds,
        "models": by_name(is_text),
    },
    "result": {
        **dict.fromkeys(("algo", "dataset", "preset"), is_text),
        **dict.fromkeys(("seed", "steps"), is_count),
        "task": or_none(is_text),
        **dict.fromkeys(RESULT_NUMBERS, or_none(is_any_number)),
    },
    "comparison": COMPARISON,
    "models": {
        "pool": or_none(with_keys(MODEL_NUMBERS)),
        "any_step": or_none(with_keys(MODEL_NUMBERS)),
        "reference": or_none(
            with_keys(dict.fromkeys(("holdout_log_likelihood", "uniform_log_likelihood"), or_none(is_any_number)))
        ),
    },
}
"""The keys of every file that this program relies on; further ones may be there."""


def require_shape(path: Path, name: str, value: Any, needed: tuple[str, ...]) -> dict[str, Any]:
    """The content of NAME.json, after checking that every known key fits and the needed ones are there."""
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
    """One line of metrics: numbers by name, including the step. None for half a line, left by a killed process."""
    try:
        row = parse_json(line)
    except ValueError:
        return None
    is_row = isinstance(row, dict) and is_count(row.get("step"))
    return row if is_row and all(isinstance(value, int | float) for value in row.values()) else None
