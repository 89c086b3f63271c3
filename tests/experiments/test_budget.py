"""Equal minutes: what an iteration costs, how many the budget buys, and that a grid keeps them."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from pspo.algorithms import bc, get_algorithm, rambo
from pspo.algorithms.registry import preset
from pspo.cli.main import main
from pspo.core.config import build
from pspo.core.errors import UserError
from pspo.experiments import budget
from pspo.experiments.budget import (
    FILE_NAME,
    MeasuredCost,
    cost_of,
    describe_budget,
    read_costs,
    sizes_of,
    with_iterations,
)
from pspo.experiments.cells import GridCell, Source, expand
from pspo.report import records
from pspo.runs.directory import Run
from pspo.training import cost as training_cost

HOPPER = Source("hopper-medium", "hopper-medium-v2", "hopper")


def cells(root: Path, *methods: str, preset_name: str = "laptop", **settings: str) -> list[GridCell]:
    how = {"seeds": (0, 1), "preset": preset_name, "settings": settings, "minutes": 5.0}
    return expand(root, sources=(HOPPER,), methods=methods, **how)


def cost(cell: GridCell, iteration: float = 0.01, start: float = 0.0) -> MeasuredCost:
    return MeasuredCost(cell.algo, "hopper", sizes_of(cell.config()), iteration, start)


def test_the_budget_is_spent_on_the_start_and_on_whole_chunks():
    measured = MeasuredCost("bc", "hopper", {}, iteration_seconds=0.01, start_seconds=6.0)
    assert measured.iterations(1.0, chunk=500) == 5000  # 54 seconds are 5,400 iterations
    assert measured.iterations(1.0, chunk=10_000) == 5400  # not even one chunk
    assert measured.iterations(0.05, chunk=500) < 0


def test_cells_have_the_iterations_that_their_costs_allow(tmp_path):
    found = cells(tmp_path, "td3bc", "rambo")
    costs = [cost(found[0], 0.001), cost(found[1], 0.02, start=30.0)]
    fixed = with_iterations(found, 5.0, costs)
    assert [cell.config().steps for cell in fixed] == [300_000, 13_500] * 2
    assert [cell.config().evaluate_every for cell in fixed] == [30_000, 1500] * 2  # ten evaluations, between chunks
    assert [cell.run for cell in fixed] == [cell.run for cell in found]
    assert fixed[0].run.parent.name == "td3bc-laptop-5min"
    assert [cell.request().settings["steps"] for cell in fixed] == [300_000, 13_500] * 2
    facts = describe_budget(fixed, 5.0, costs)
    assert facts["minutes"] == 5.0
    assert [(run["method"], run["steps"]) for run in facts["runs"]] == [("td3bc", 300_000), ("rambo", 13_500)]


def test_evaluations_stay_where_they_were_asked_for(tmp_path):
    (first, _) = cells(tmp_path, "td3bc", evaluate_every="7000")
    (fixed,) = with_iterations([first], 5.0, [cost(first, 0.001)])
    assert (fixed.config().steps, fixed.config().evaluate_every) == (300_000, 7000)


def test_coefficients_do_not_change_what_an_iteration_costs_and_sizes_do(tmp_path):
    (usual, _) = cells(tmp_path, "rambo")
    known = [cost(usual)]
    for settings, same in (
        ({"adversary_weight": "0.1", "actor_lr": "1e-3", "steps": "7", "evaluate_every": "3"}, True),
        ({"adversary_weight": "0"}, False),  # no steps of the models at all
        ({"rollout_horizon": "7"}, False),
        ({"model.pool": "9"}, False),
        ({"states": "raw"}, False),
    ):
        changed = cells(tmp_path, "rambo", **settings)[0]
        assert (cost_of(known, changed) is not None) == same, settings
    assert cost_of([replace(known[0], task="walker2d")], usual) is None
    assert cost_of([replace(known[0], algo="1r2r")], usual) is None


def test_too_few_minutes_are_refused(tmp_path):
    (cell, _) = cells(tmp_path, "td3bc")
    with pytest.raises(UserError, match=r"0\.1 is too short for td3bc on hopper-medium.* after 0\.2 minutes"):
        with_iterations([cell], 0.1, [cost(cell, 0.001, start=12.0)])
    with pytest.raises(UserError, match="has not been measured"):
        with_iterations([cell], 5.0, [])


@pytest.mark.parametrize("change", [{"iteration_seconds": 0.0}, {"sizes": 3}, {"start_seconds": -1.0}, {"algo": None}])
def test_damaged_costs_are_refused(tmp_path, change):
    row = asdict(MeasuredCost("bc", "hopper", {"width": 3, "wide": True}, 0.01, 0.0))
    (tmp_path / FILE_NAME).write_text(json.dumps([row]))
    assert [asdict(known) for known in read_costs(tmp_path)] == [row]
    (tmp_path / FILE_NAME).write_text(json.dumps([row | change]))
    with pytest.raises(UserError, match="does not hold what pspo writes there"):
        read_costs(tmp_path)


GRID = ["experiment", "table2", "--preset", "smoke", "--methods", "bc", "--seeds", "2", "--episodes", "200"]
GRID += ["--minutes", "0.5", "--out"]


@pytest.fixture
def timed(monkeypatch) -> list[str]:
    """Which methods are timed, without the time that it takes: 100 iterations fit into the budget."""
    names: list[str] = []

    def measured(cell: GridCell, threads: int) -> MeasuredCost:
        names.append(cell.method)
        return MeasuredCost(cell.algo, cell.source.task, sizes_of(cell.config()), 0.25, 5.0)

    monkeypatch.setattr(budget, "_measured", measured)
    return names


def test_a_grid_measures_once_and_keeps_its_iterations(tmp_path: Path, timed: list[str], capsys):
    assert main([*GRID, str(tmp_path), "--dry-run"]) == 0
    output = capsys.readouterr().out
    assert "measured when the experiment starts" in output
    assert "30 seconds" in output
    assert timed == []
    assert not list(tmp_path.iterdir())

    assert main([*GRID, str(tmp_path), "--quiet"]) == 0
    capsys.readouterr()
    assert timed == ["bc"]
    runs = sorted(tmp_path.glob("runs/liquidation/bc-smoke-0.5min-*/seed-*"))
    assert [Run(run).result["steps"] for run in runs] == [100, 100]
    results = records.load(tmp_path / "table2")
    assert results.budget["minutes"] == 0.5
    assert [(run["method"], run["steps"]) for run in results.budget["runs"]] == [("bc", 100)]
    assert "--minutes 0.5" in results.command
    table = (tmp_path / "table2" / "table.md").read_text()
    assert "Every run has 0.5 minutes of one core" in table
    assert "| BC | liquidation | 250.00 | 5.0 | 100 |" in table

    before = {run: (run / "policy.safetensors").stat().st_mtime_ns for run in runs}
    assert main([*GRID, str(tmp_path), "--quiet"]) == 0
    assert main([*GRID, str(tmp_path), "--dry-run"]) == 0
    assert "2 of 2 finished" in capsys.readouterr().out
    assert {run: (run / "policy.safetensors").stat().st_mtime_ns for run in runs} == before
    assert timed == ["bc"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["table2", "--minutes", "0"], "--minutes 0 is out of range"),
        (["table2", "--minutes", "nan"], "--minutes nan is out of range"),
        (["table2", "--minutes", "1", "--set", "steps=4"], "leave --set steps out"),
        (["table2", "--minutes", "1", "--dry-run", "--time"], "leave --time out"),
        (["overhead", "--minutes", "1"], "leave --minutes out"),
    ],
)
def test_bad_budgets_are_reported_in_one_sentence(tmp_path: Path, capsys, words, complaint):
    assert main(["experiment", *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_measurement_is_a_line_of_json_or_one_sentence(capsys):
    config = build(bc.Config, preset("bc", "smoke", "liquidation"))
    work = {"algo": "bc", "settings": budget.flatten(config), "dataset": "liquidation", "task": None, "threads": 1}
    assert budget.main([json.dumps(work)]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["iteration_seconds"] > 0.0
    assert found["start_seconds"] > 0.0
    assert budget.main([json.dumps(work | {"dataset": "nowhere.csv"})]) == 2
    assert "nowhere.csv" in capsys.readouterr().err


def test_costs_are_seconds_of_the_processor(monkeypatch):
    """Other load on the machine makes a clock on the wall run faster, and must not buy fewer iterations."""
    clocks = []

    def seconds(work, clock):
        clocks.append(clock)
        return 1.0

    monkeypatch.setattr(training_cost, "_seconds", seconds)
    config = build(bc.Config, preset("bc", "smoke", None))
    training_cost.iteration_cost(get_algorithm("bc"), config, training_cost.Shape(500, 3, 1))
    assert clocks
    assert set(clocks) == {time.process_time}


def test_chunks_are_timed_as_later_ones_are(monkeypatch):
    """RAMBO trains its models from the second chunk on."""
    after, steps = training_cost._after_a_chunk, []

    def noted(*words):
        state = after(*words)
        steps.append(int(state.step))
        return state

    monkeypatch.setattr(training_cost, "_after_a_chunk", noted)
    monkeypatch.setattr(training_cost, "_seconds", lambda *_: 1.0)
    config = build(rambo.Config, preset("rambo", "smoke", None))
    training_cost.iteration_cost(get_algorithm("rambo"), config, training_cost.Shape(500, 3, 1))
    assert steps == [config.chunk]
