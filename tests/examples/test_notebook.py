"""The notebook: its code runs in order, and its stored outputs are complete and agree with its text."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import matplotlib
import pytest

from tests.examples.notebook_cells import NOTEBOOK, cells, is_parameters, run_in_seconds, source

CODE, TEXT = cells("code"), cells("markdown")
IMPORTS = "import json\n"


def is_silent(cell: dict[str, Any]) -> bool:
    """Sets names and shows nothing."""
    return is_parameters(cell) or source(cell).startswith(IMPORTS)


def printed(cell: dict[str, Any]) -> str:
    return "".join("".join(out["text"]) for out in cell["outputs"] if out["output_type"] == "stream")


def figures(cell: dict[str, Any]) -> list[bytes]:
    found = [out["data"]["image/png"] for out in cell["outputs"] if "image/png" in out.get("data", {})]
    return [base64.b64decode("".join(picture)) for picture in found]


# Stored outputs


def test_the_notebook_is_below_one_megabyte() -> None:
    assert NOTEBOOK.stat().st_size < 1_000_000


def test_stored_outputs_come_from_one_run_in_order() -> None:
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))


@pytest.mark.parametrize("number", range(len(CODE)))
def test_every_cell_has_the_outputs_of_its_code(number: int) -> None:
    cell = CODE[number]
    kinds = {out["output_type"] for out in cell["outputs"]}
    assert "error" not in kinds
    assert all(out.get("name") != "stderr" for out in cell["outputs"])  # no warnings
    assert bool(cell["outputs"]) != is_silent(cell)
    draws = "plt.show()" in source(cell) or "policy_figure(" in source(cell)
    assert bool(figures(cell)) == draws
    assert bool(printed(cell)) == ("print(" in source(cell))


def test_stored_figures_are_images() -> None:
    drawn = [picture for cell in CODE for picture in figures(cell)]
    assert len(drawn) >= 7
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 5000 for picture in drawn)


def test_bold_numbers_of_the_text_were_printed() -> None:
    """The text may round once more."""
    numbers = [number for cell in TEXT for number in re.findall(r"\*\*(\d+(?:\.\d+)?)\*\*", source(cell))]
    assert len(numbers) >= 7
    shown = [float(n) for cell in CODE for n in re.findall(r"-?\d+(?:\.\d+)?", printed(cell))]
    for number in numbers:
        places = len(number.partition(".")[2])
        assert any(f"{value:.{places}f}" == number for value in shown), number


def test_no_path_of_a_machine_is_stored() -> None:
    assert not re.search(r"/(home|root|tmp|work|Users)/", NOTEBOOK.read_text())


# The code


def test_links_of_the_text_exist() -> None:
    for cell in TEXT:
        for link in re.findall(r"\]\(([^)#]+)\)", source(cell)):
            assert (NOTEBOOK.parent / link).exists(), link


@pytest.mark.slow
def test_all_cells_run_with_the_smoke_preset(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    matplotlib.use("Agg")
    left = run_in_seconds()
    text = capsys.readouterr().out
    assert (left["bc"].result["preset"], left["run"].result["preset"]) == ("smoke", "smoke")
    assert left["run"].result["episodes"] == 200
    assert "The optimum returns 137.48 on average." in text
    assert f"by exact regret, which has less noise: {left['run'].result['score_by_regret']:.2f}" in text
    assert len(left["estimates"].estimates) == 3


@pytest.mark.slow
def test_the_notebook_runs_in_a_kernel(tmp_path: Path) -> None:
    """With the tools of `make notebook`; only the parameters differ."""
    import nbclient
    import nbformat

    from tests.examples.notebook_cells import SMOKE

    book = nbformat.read(NOTEBOOK, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code" and is_parameters(cell):
            cell.source = "\n".join(f"{name} = {value!r}" for name, value in SMOKE.items())
    nbclient.NotebookClient(book, timeout=900, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [cell for cell in book.cells if cell.cell_type == "code" and cell.outputs]
    assert len(shown) == len([cell for cell in CODE if not is_silent(cell)])
