"""Cells of a grid: where they write, what they run, and which existing runs they accept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pspo.algorithms import get_algorithm
from pspo.algorithms.registry import preset
from pspo.core.config import build, flatten
from pspo.core.errors import UserError
from pspo.data.load import readable_suffixes
from pspo.experiments.cells import Source, by_method, expand, models_key, require_same_config, resolve
from pspo.experiments.declarations import EXPERIMENTS, METHODS, get_experiment
from pspo.report.published import published

LIQUIDATION = Source("liquidation", "liquidation", "liquidation")
HOPPER = Source("hopper-medium", "hopper-medium-v2", "hopper")


def cells(root: Path, *methods: str, sources=(LIQUIDATION,), seeds=(0, 1), preset="laptop", settings=None, **more):
    how = {"sources": sources, "methods": methods, "seeds": seeds, "preset": preset, "settings": settings or {}}
    return expand(root, **how, **more)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_declarations_name_what_exists(name):
    experiment = get_experiment(name)
    for method in experiment.methods:
        assert METHODS[method].algo
    for dataset in experiment.datasets:
        assert resolve(dataset, None).name == dataset
    beside = published().get(experiment.published, {})
    if name in ("table1", "table2", "table3"):
        assert set(experiment.datasets) == beside.keys()
        for row in beside.values():
            assert row.keys() == set(experiment.methods) - ({"pspo"} if name == "table3" else set())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("preset_name", ["laptop", "paper", "smoke"])
def test_every_method_has_a_configuration(tmp_path, method, preset_name):
    for cell in cells(tmp_path, method, sources=(LIQUIDATION, HOPPER), seeds=(0,), preset=preset_name):
        for key, value in METHODS[method].settings.items():
            assert flatten(cell.config())[key] == value


def test_the_request_of_a_cell_builds_the_configuration_of_the_cell(tmp_path):
    (cell,) = cells(tmp_path, "without-regularisation", seeds=(7,), settings={"steps": "50"}, episodes=20, threads=2)
    job = cell.job()
    request = job.request
    assert (request.dataset, request.algo, request.preset, request.seed) == ("liquidation", "pspo", "laptop", 7)
    assert (request.episodes, request.task, job.threads, job.run) == (20, None, 2, cell.run)
    values = preset("pspo", "laptop", "liquidation", "liquidation")
    config = build(get_algorithm("pspo").Config, values, request.settings)
    assert config == cell.config()
    assert config.steps == 50
    assert not config.reference_term


def test_a_file_names_its_task(tmp_path):
    (tmp_path / "hopper_medium-v2.hdf5").touch()
    found = resolve("hopper-medium", tmp_path)
    assert (found.name, found.task) == ("hopper-medium", "hopper")
    (cell,) = cells(tmp_path, "bc", sources=(found,), seeds=(0,))
    assert cell.request().task == "hopper"
    assert resolve(str(tmp_path / "hopper_medium-v2.hdf5"), None) == found


@pytest.mark.parametrize(
    ("named", "words"),
    [("liquidatoin", "unknown dataset"), ("mine.csv", "which task"), ("hopper-nothing.hdf5", "no file")],
)
def test_unknown_or_unnamed_datasets_are_refused(named, words):
    with pytest.raises(UserError, match=words):
        resolve(named, None)


def test_a_folder_without_the_file_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"has no hopper-medium\.hdf5"):
        resolve("hopper-medium", tmp_path)


def test_unknown_methods_are_refused(tmp_path):
    with pytest.raises(UserError, match="did you mean 'pspo'"):
        cells(tmp_path, "psop")


def test_a_stopped_grid_has_every_method_once_before_any_twice(tmp_path):
    found = cells(tmp_path, "pspo", "bc", sources=(LIQUIDATION, HOPPER))
    assert [cell.seed for cell in found] == [0] * 4 + [1] * 4
    assert len({cell.run for cell in found}) == 8
    group = next(by_method(found))
    assert [(cell.source.name, cell.method, cell.seed) for cell in group] == [
        ("liquidation", "pspo", 0),
        ("liquidation", "pspo", 1),
    ]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".arrow", ".feather", ".npz", ".hdf5", ".h5", ".ARROW"])
def test_every_file_that_can_be_read_can_be_a_dataset_of_a_grid(tmp_path, suffix):
    assert suffix.lower() in readable_suffixes()
    path = tmp_path / f"liquidation-own{suffix}"
    path.touch()
    assert resolve(str(path), None) == Source("liquidation-own", str(path), "liquidation")


def test_other_settings_go_to_another_folder_and_other_seeds_do_not(tmp_path):
    usual, changed = (cells(tmp_path, "bc", settings=s)[0].run.parent for s in ({}, {"steps": "9"}))
    assert usual != changed
    assert usual.name == "bc-laptop"
    assert cells(tmp_path, "bc", episodes=5)[0].run.parent != usual
    assert cells(tmp_path, "bc", seeds=(5,))[0].run.parent == usual


def test_cells_that_share_models_have_the_same_key(tmp_path):
    """Like the cached pools: PMDB and MOPO share one, PSPO's ablation has PSPO's, RAMBO another, BC none."""
    key = {
        cell.method: models_key("hopper-medium", cell.config(), 0)
        for cell in cells(tmp_path, *METHODS, seeds=(0,), sources=(HOPPER,))
    }
    assert key["pspo"] == key["average-utilisation"] != ""
    assert key["pmdb"] == key["mopo"] not in ("", key["pspo"])
    assert key["rambo"] == key["1r2r"] not in (key["pspo"], key["mopo"])
    assert key["bc"] == key["cql"] == ""
    own = cells(tmp_path, "pspo", settings={"model.seed": "-1"})
    assert models_key("x", own[0].config(), 0) != models_key("x", own[1].config(), 1)


def write_run(cell, **changes) -> None:
    cell.run.mkdir(parents=True)
    config = {"algo": cell.algo, "preset": cell.preset, "seed": cell.seed, "task": cell.source.task, "episodes": 10_000}
    settings = flatten(cell.config())
    for name, value in changes.items():
        (settings if name in settings else config)[name] = value
    (cell.run / "config.json").write_text(json.dumps(config | {"settings": settings}))


def test_a_run_of_the_same_configuration_is_accepted(tmp_path):
    for cell in cells(tmp_path, "pspo", "average-utilisation"):
        require_same_config(cell)  # there is no run yet
        write_run(cell)
        require_same_config(cell)


@pytest.mark.parametrize(
    "change", [{"steps": 9}, {"posterior": "uniform"}, {"seed": 3}, {"algo": "bc"}, {"episodes": 9}]
)
def test_a_run_of_another_configuration_is_refused(tmp_path, change):
    (cell,) = cells(tmp_path, "pspo", seeds=(0,))
    write_run(cell, **change)
    (name,) = change
    with pytest.raises(UserError, match=f"{name}={change[name]}"):
        require_same_config(cell)
