"""The notebook as its cells, and its code as one program: every code cell in order, in one namespace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.examples.example_cases import ROOT

NOTEBOOK = ROOT / "notebooks" / "liquidation.ipynb"
SMOKE = {"PRESET": "smoke", "EPISODES": 200, "BC_STEPS": 20, "KEPT": str(ROOT / "benchmarks" / "results")}
"""Replaces the cell that is tagged `parameters`."""


def cells(kind: str) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def is_parameters(cell: dict[str, Any]) -> bool:
    return "parameters" in cell["metadata"].get("tags", [])


def run_in_seconds() -> dict[str, Any]:
    """All cells with the smoke preset; returns their namespace."""
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells("code")):
        program = compile(source(cell), f"{Path(NOTEBOOK).name}, code cell {number}", "exec")
        exec(program, names)
        if is_parameters(cell):
            assert set(SMOKE) <= set(names), "the cell of parameters has changed its names"
            names |= SMOKE
    return names
