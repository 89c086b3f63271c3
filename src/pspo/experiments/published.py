"""The paper's printed numbers, to stand beside measured ones; published.toml also says where the print has slips."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any

from pspo.stats import MeanAndStd


@cache
def published() -> dict[str, Any]:
    """All of published.toml. Read once and shared: not to be changed."""
    return tomllib.loads(resources.files("pspo.experiments").joinpath("published.toml").read_text())


def published_score(dataset: str, method: str) -> MeanAndStd | None:
    """The paper's score of a method on a dataset, such as hopper-medium or liquidation; None where it prints none."""
    cells = {**published()["table1"], **published()["table2"]}.get(dataset.removesuffix("-v2"), {})
    return MeanAndStd(*cells[method]) if method in cells else None


def published_means(method: str) -> dict[str, float]:
    """A column of table 1: mean score by dataset, in the order of the print."""
    return {dataset: cells[method][0] for dataset, cells in published()["table1"].items()}
