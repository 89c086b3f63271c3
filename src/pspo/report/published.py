"""The paper's printed numbers, to compare with measured ones; published.toml also notes where the print has slips."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any


@cache
def published() -> dict[str, Any]:
    """The content of published.toml. It is read once and shared: do not modify it."""
    return tomllib.loads(resources.files("pspo.report").joinpath("published.toml").read_text())
