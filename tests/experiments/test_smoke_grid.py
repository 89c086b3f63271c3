"""Every experiment of the paper at the smallest scale: all methods, two kinds of data, two seeds, every page."""

from __future__ import annotations

from pathlib import Path

import pytest

from pspo.cli.main import main
from pspo.experiments.declarations import EXPERIMENTS
from pspo.report import records
from tests.experiments.grids import finish, start

pytestmark = pytest.mark.slow
SMALL = ["--preset", "smoke", "--quiet"]
DATASETS = ("liquidation", "hopper-random")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Hopper, recorded with a random policy."""
    folder = tmp_path_factory.mktemp("data")
    words = ["collect", "hopper-random", "--transitions", "3000", "--out", str(folder / "hopper-random.hdf5")]
    assert main([*words, "--quiet"]) == 0
    return folder


@pytest.fixture(scope="module")
def out(tmp_path_factory) -> Path:
    """One folder for all: experiments share their runs."""
    return tmp_path_factory.mktemp("experiments")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_runs_from_data_to_page(name: str, data: Path, out: Path):
    words = ["experiment", name, *SMALL]
    if name != "overhead":
        words += ["--seeds", "2", "--episodes", "3", "--data", str(data), "--datasets"]
        words += ["liquidation"] if name == "table2" else DATASETS
    code, output, errors = finish(start(out, grid=words), timeout=1500)
    assert code == 0, errors
    results = records.load(out / name)
    assert results.methods.keys() == set(EXPERIMENTS[name].methods)
    assert not results.missing()
    if name != "overhead":
        assert len(results.records) == 2 * len(results.datasets) * len(results.methods)
        assert all(record.score is not None for record in results.records)
    else:
        assert all(cost["iteration_milliseconds"]["median"] > 0 for cost in results.costs.values())
    for file in ("report.html", "table.md", "table.tex"):
        text = (out / name / file).read_text()
        assert all(label in text for label in results.methods.values())
    assert str(out / name / "report.html") in output
