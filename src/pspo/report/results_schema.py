"""The shape of results.json, checked on reading: somebody may have edited it. Old files are read under new names."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.core.renamed import new_metrics, new_settings
from pspo.runs.schema import (
    RESULT_NUMBERS,
    Fits,
    by_name,
    is_any_number,
    is_count,
    is_setting,
    is_text,
    list_of,
    or_none,
    with_all,
    with_keys,
)

LARGEST = 1e30  # in a table or figure: no run computes with more, and axes overflow
STATUSES = ("finished", "unfinished", "failed", "missing")
RECORD_KEYS = {"said": "message", "doubt": "uncertainty"}
"""Keys of a record in version 0.1."""


def _is_number(value: Any) -> bool:
    """One that can be drawn, or one that is not finite, which tables call so."""
    return is_any_number(value) and (not math.isfinite(value) or abs(value) <= LARGEST)


def _is_finite(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value)


def _is_point(value: Any) -> bool:
    """One evaluation of a learning curve."""
    return by_name(_is_number)(value) and _is_finite(value.get("step"))


def _is_printed(value: Any) -> bool:
    """What the paper prints: a number, mean and standard deviation, or an ablation's drop and fold."""
    return _is_finite(value) or list_of(_is_finite)(value) or by_name(lambda v: _is_finite(v) or is_text(v))(value)


_are_quartiles = by_name(_is_finite)
_is_bought = with_all(
    {
        **dict.fromkeys(("dataset", "method"), is_text),
        "steps": is_count,
        **dict.fromkeys(("iteration_seconds", "start_seconds"), _is_finite),
    }
)


def _is_budget(value: Any) -> bool:
    return value == {} or with_all({"minutes": _is_finite, "runs": list_of(_is_bought)})(value)


RECORD: dict[str, Fits] = {
    **dict.fromkeys(("dataset", "method", "algo", "preset", "message", "run", "command"), is_text),
    "seed": is_count,
    "settings": by_name(is_setting),
    "status": lambda value: is_text(value) and value in STATUSES,
    "result": with_keys({"task": or_none(is_text), **dict.fromkeys(RESULT_NUMBERS, or_none(_is_number))}),
    "curve": list_of(_is_point),
    "uncertainty": by_name(list_of(_is_finite)),
}
RESULTS: dict[str, Fits] = {
    **dict.fromkeys(("title", "name", "first", "command"), is_text),
    **dict.fromkeys(("datasets", "shows", "notes"), list_of(is_text)),
    "methods": by_name(is_text),
    "records": list_of(with_keys(RECORD)),
    "published": by_name(lambda value: _is_printed(value) or by_name(_is_printed)(value)),
    "machine": with_keys({"libraries": by_name(is_text), "cores": is_count}),
    "budget": _is_budget,
    "costs": by_name(with_keys(dict.fromkeys(("iteration_milliseconds", "inference_milliseconds"), _are_quartiles))),
}


def with_new_names(content: Any) -> Any:
    """The content of a results.json of any version, under the names of this one."""
    if not isinstance(content, dict) or not isinstance(content.get("records"), list):
        return content
    return content | {"records": [_new_record(record) for record in content["records"]]}


def _new_record(record: Any) -> Any:
    if not isinstance(record, dict):
        return record
    record = {RECORD_KEYS.get(name, name): value for name, value in record.items()}
    if isinstance(record.get("result"), dict):
        record["result"] = new_metrics(record["result"])
    if isinstance(record.get("settings"), dict):
        record["settings"] = new_settings(record["settings"], str(record.get("algo", "")))
    if isinstance(record.get("curve"), list):
        record["curve"] = [new_metrics(point) if isinstance(point, dict) else point for point in record["curve"]]
    return record


def require_results(path: Path, content: Any) -> None:
    """Raise UserError unless every key has the right kind of value and records name known datasets and methods."""
    if not isinstance(content, dict) or "records" not in content:
        raise UserError(f"{path} does not hold results of this version: run the experiment again.")
    for key, fits in RESULTS.items():
        if key in content and not fits(content[key]):
            raise UserError(f"'{key}' in {path} does not hold what pspo writes there: restore it or run it again.")
    for record in content["records"]:
        known = record.get("dataset") in content.get("datasets", ()) and record.get("method") in content.get(
            "methods", ()
        )
        if not known:
            raise UserError(f"a record in {path} has an unknown dataset or method: restore it or run it again.")
