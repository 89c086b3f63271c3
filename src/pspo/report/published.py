"""The paper's printed numbers, to stand beside measured ones; published.toml also says where the print has slips."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any


@cache
def published() -> dict[str, Any]:
    """All of published.toml. Read once and shared: not to be changed."""
    return tomllib.loads(resources.files("pspo.report").joinpath("published.toml").read_text())
