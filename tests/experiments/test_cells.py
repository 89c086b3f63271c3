"""Cells of a grid: where they write, what they run, and when a run that is there is theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pspo.algorithms import get_algorithm
from pspo.algorithms.registry import preset
from pspo.cli.main import _parser
from pspo.core.config import build, flatten, parse_settings
from pspo.core.errors import UserError
from pspo.experiments.cells import Source, expand, groups, models_of, require_same, resolve
from pspo.experiments.declarations import EXPERIMENTS, METHODS, get_experiment
from pspo.report.published import published

LIQUIDATION = Source("liquidation", "liquidation", "liquidation")
HOPPER = Source("hopper-medium", "hopper-medium-v2", "hopper")


def cells(root: Path, *methods: str, sources=(LIQUIDATION,), seeds=(0, 1), preset="laptop", settings=None, **more):
    return expand(root, sources, methods, seeds, preset, settings or {}, **more)


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


def test_the_words_of_a_cell_start_the_run_that_it_means(tmp_path):
    """Through the real parser: algorithm, preset, seed and settings arrive."""
    (cell,) = cells(tmp_path, "without-regularisation", seeds=(7,), settings={"steps": "50"}, episodes=20, threads=2)
    arguments = _parser().parse_args(cell.job().words())
    assert (arguments.dataset, arguments.algo, arguments.preset, arguments.seed) == ("liquidation", "pspo", "laptop", 7)
    assert (arguments.episodes, arguments.threads, arguments.out) == (20, 2, str(cell.run))
    values = preset("pspo", "laptop", "liquidation", "liquidation")
    config = build(get_algorithm("pspo").Config, values, parse_settings(arguments.settings))
    assert config == cell.config()
    assert config.steps == 50
    assert not config.reference_term


def test_a_file_names_its_task(tmp_path):
    (tmp_path / "hopper_medium-v2.hdf5").touch()
    found = resolve("hopper-medium", tmp_path)
    assert (found.name, found.task) == ("hopper-medium", "hopper")
    (cell,) = cells(tmp_path, "bc", sources=(found,), seeds=(0,))
    assert cell.words()[-2:] == ["--task", "hopper"]
    assert resolve(str(tmp_path / "hopper_medium-v2.hdf5"), None) == found


@pytest.mark.parametrize(
    ("named", "words"),
    [("liquidatoin", "unknown dataset"), ("mine.csv", "which task"), ("hopper-nothing.hdf5", "no file")],
)
def test_data_that_cannot_be_are_refused(named, words):
    with pytest.raises(UserError, match=words):
        resolve(named, None)


def test_a_folder_without_the_file_is_said(tmp_path):
    with pytest.raises(UserError, match=r"has no hopper-medium\.hdf5"):
        resolve("hopper-medium", tmp_path)


def test_unknown_methods_are_refused(tmp_path):
    with pytest.raises(UserError, match="did you mean 'pspo'"):
        cells(tmp_path, "psop")


def test_seeds_come_last_so_that_a_stopped_grid_has_every_method(tmp_path):
    found = cells(tmp_path, "pspo", "bc", sources=(LIQUIDATION, HOPPER))
    assert [cell.seed for cell in found] == [0] * 4 + [1] * 4
    assert len({cell.run for cell in found}) == 8
    first, seeds = next(groups(found))
    assert (first.source.name, first.method, seeds) == (
        "liquidation",
        "pspo",
        [0, 1],
    )


def test_other_settings_have_another_place_and_other_seeds_do_not(tmp_path):
    usual, changed = (cells(tmp_path, "bc", settings=s)[0].run.parent for s in ({}, {"steps": "9"}))
    assert usual != changed
    assert usual.name == "bc-laptop"
    assert cells(tmp_path, "bc", episodes=5)[0].run.parent != usual
    assert cells(tmp_path, "bc", seeds=(5,))[0].run.parent == usual


def test_cells_on_the_same_models_are_known_as_such(tmp_path):
    """As the pools' own keys have it: PSPO, PMDB and MOPO share one, RAMBO has another, BC has none, ADM its own."""
    of = {
        cell.method: models_of("hopper-medium", cell.config(), 0)
        for cell in cells(tmp_path, *METHODS, seeds=(0,), sources=(HOPPER,))
    }
    assert of["pspo"] == of["pmdb"] == of["mopo"] == of["average-utilisation"] != ""
    assert of["rambo"] == of["1r2r"] != of["pspo"]
    assert of["bc"] == of["cql"] == ""
    own = cells(tmp_path, "pspo", settings={"model.seed": "-1"})
    assert models_of("x", own[0].config(), 0) != models_of("x", own[1].config(), 1)


def written(cell, **changes) -> None:
    cell.run.mkdir(parents=True)
    facts = {"algo": cell.algo, "preset": cell.preset, "seed": cell.seed, "task": cell.source.task, "episodes": 10_000}
    settings = flatten(cell.config())
    for name, value in changes.items():
        (settings if name in settings else facts)[name] = value
    (cell.run / "config.json").write_text(json.dumps(facts | {"settings": settings}))


def test_the_cells_own_run_is_accepted(tmp_path):
    for cell in cells(tmp_path, "pspo", "average-utilisation"):
        require_same(cell)  # nothing is there yet
        written(cell)
        require_same(cell)


@pytest.mark.parametrize(
    "change", [{"steps": 9}, {"posterior": "uniform"}, {"seed": 3}, {"algo": "bc"}, {"episodes": 9}]
)
def test_another_run_in_its_place_is_refused(tmp_path, change):
    (cell,) = cells(tmp_path, "pspo", seeds=(0,))
    written(cell, **change)
    (name,) = change
    with pytest.raises(UserError, match=f"{name}={change[name]}"):
        require_same(cell)
