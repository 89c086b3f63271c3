"""What an experiment would run: every cell with its state, and how long it takes as far as that is known.

Minutes come from finished runs of the same algorithm, preset and task. `time_cells` measures instead, with a few steps
of every method, which takes minutes itself. With a budget a run takes its minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pspo.algorithms import get_algorithm, get_algorithm_for
from pspo.core.config import flatten
from pspo.core.errors import UserError
from pspo.data.dataset import Dataset
from pspo.experiments.budget import cost_of, read_costs, with_iterations
from pspo.experiments.cells import GridCell, by_method, models_key
from pspo.experiments.grid import check_cells
from pspo.runs.directory import Run
from pspo.training.cost import Shape, estimate_cost
from pspo.training.dry_run import data_or_shape, span

HOW_TO_TIME = "add --time to time a few steps of each method, which takes minutes"


@dataclass(frozen=True)
class Cost:
    """Of one run, with one worker."""

    training_seconds: float
    fitting_seconds: float | None
    """Of models and the like before training; runs that share their models pay once. None: not known."""
    bytes: int | None = None
    """Of memory at the peak; only a measurement tells."""


@dataclass(frozen=True)
class PlanRow:
    """The runs of one dataset and method."""

    cells: list[GridCell]
    cost: Cost | None = None
    iterations: int | None = None
    """None where a budget determines them and costs have not been measured yet."""

    @property
    def unfinished(self) -> list[GridCell]:
        return [cell for cell in self.cells if not cell.finished]

    def line(self) -> str:
        first, last, done = self.cells[0], self.cells[-1], len(self.cells) - len(self.unfinished)
        seeds = f"{first.seed} to {last.seed}" if len(self.cells) > 1 else str(first.seed)
        state = f"{done} of {len(self.cells)} finished" if done else "to be run"
        iterations = "-" if self.iterations is None else f"{self.iterations:,}"
        length = span(self.cost.training_seconds) if self.cost else "-"
        memory = f"{self.cost.bytes / 2**30:.1f} GiB" if self.cost and self.cost.bytes is not None else "-"
        what = f"{first.source.name:<26}{first.method:<24}{seeds:<14}{state:<20}"
        return f"{what}{iterations:>12}{length:>14}{memory:>10}"


HEADER = f"{'dataset':<26}{'method':<24}{'seeds':<14}{'state':<20}{'iterations':>12}{'a run':>14}{'memory':>10}"


def plan_cells(root: Path, cells: Sequence[GridCell]) -> list[PlanRow]:
    """At once: nothing is timed, loaded or written. Costs come from finished runs under `root`."""
    known = _known_costs(root)
    return [PlanRow(group, _scaled(known, group[0]), group[0].config().steps) for group in by_method(cells)]


def plan_budget(root: Path, cells: Sequence[GridCell], minutes: float) -> list[PlanRow]:
    """The same with a budget: iterations where costs have been measured before, and training that takes its minutes."""
    costs, known = read_costs(root), _known_costs(root)
    rows = []
    for group in by_method(cells):
        fitted = _scaled(known, group[0])
        cost = Cost(60.0 * minutes, fitted.fitting_seconds if fitted else None)
        if cost_of(costs, group[0]) is None:
            rows.append(PlanRow(group, cost))
            continue
        fixed = with_iterations(group, minutes, costs)
        check_cells(fixed)
        rows.append(PlanRow(fixed, cost, fixed[0].config().steps))
    return rows


def time_cells(rows: Sequence[PlanRow], message: Callable[[str], None]) -> list[PlanRow]:
    """The same rows with measured costs. Nothing is downloaded, fitted to the end or written."""
    data: dict[str, Dataset | Shape] = {}
    measured: dict[str, Cost] = {}
    timed = []
    for row in rows:
        cell = row.cells[0]
        if cell.source.name not in data:
            data[cell.source.name] = data_or_shape(cell.source.dataset, task=cell.source.task_option)
        message(f"timing {cell.method} on {cell.source.name}")
        timed.append(replace(row, cost=_measured(cell, data[cell.source.name], measured)))
    return timed


def describe(rows: Sequence[PlanRow], at_once: int) -> list[str]:
    """The plan as lines for the user."""
    lines = [HEADER, *(row.line() for row in rows)]
    left = sum(len(row.unfinished) for row in rows)
    total = sum(len(row.cells) for row in rows)
    lines.append(f"runs             {total}, of which {total - left} are finished")
    unknown = dict.fromkeys(row.cells[0].method for row in rows if row.unfinished and row.cost is None)
    if unknown:
        lines.append(f"time             not known for {', '.join(unknown)}: {HOW_TO_TIME}")
        return lines
    fitting, training = _fitting_seconds(rows), sum(len(r.unfinished) * r.cost.training_seconds for r in rows if r.cost)
    if any(row.iterations is None for row in rows):
        lines.append("iterations       not known everywhere: measured when the experiment starts")
    models = "not known before a run of each method has finished"
    if fitting is not None:
        models = f"at most {span(fitting)} of one worker; models in the cache cost nothing"
    lines.append(f"models           {models}")
    lines.append(f"training         {span(training)} of one worker")
    rest = " and the models" if fitting is None else ""
    lines.append(f"total            about {span((training + (fitting or 0.0)) / at_once)}{rest} with {at_once} at once")
    return lines


def _fitting_seconds(rows: Sequence[PlanRow]) -> float | None:
    """Runs that share their models fit them once. None where it is not known of some."""
    seconds: dict[str, float] = {}
    for row in rows:
        for cell in row.unfinished if row.cost else ():
            assert row.cost
            if row.cost.fitting_seconds is None:
                return None
            name = models_key(cell.source.name, cell.config(), cell.seed) or cell.name
            seconds[name] = max(seconds.get(name, 0.0), row.cost.fitting_seconds)
    return sum(seconds.values())


def _known_costs(root: Path) -> dict[tuple[Any, ...], tuple[Cost, int]]:
    """Cost and iterations of finished runs, by algorithm, preset and task; of several runs, the longest."""
    known: dict[tuple[Any, ...], tuple[Cost, int]] = {}
    for path in sorted(root.glob("runs/*/*/*/result.json")):
        run = Run(path.parent)
        try:
            config, timings = run.read("config", "settings"), run.read("manifest", "timings")["timings"]
            key, steps = tuple(config[name] for name in ("algo", "preset", "task")), config["settings"]["steps"]
        except (UserError, KeyError, OSError):
            continue  # a damaged run says nothing about its cost
        cost = Cost(timings.get("train", 0.0), timings.get("prepare", 0.0))
        if key not in known or cost.training_seconds > known[key][0].training_seconds:
            known[key] = cost, steps
    return known


def _scaled(known: dict[tuple[Any, ...], tuple[Cost, int]], cell: GridCell) -> Cost | None:
    """The cost of a finished run, scaled to the iterations of this one."""
    measured_cost = known.get((cell.algo, cell.preset, cell.source.task))
    if measured_cost is None:
        return None
    cost, steps = measured_cost
    return replace(cost, training_seconds=cost.training_seconds * cell.config().steps / max(steps, 1))


def _measured(cell: GridCell, data: Dataset | Shape, measured: dict[str, Cost]) -> Cost:
    """Once per configuration and shape of the data: 18 datasets of three tasks take three measurements a method."""
    config: Any = cell.config()
    key = f"{cell.algo} {data.obs_dim} {data.action_dim} {flatten(config)}"
    if key not in measured:
        algorithm = get_algorithm_for(data, cell.algo) if isinstance(data, Dataset) else get_algorithm(cell.algo)
        estimate = estimate_cost(algorithm, config, data)
        training = sum(phase.seconds for phase in estimate.phases if phase.name == "training")
        measured[key] = Cost(training, estimate.seconds - training, estimate.bytes)
    return measured[key]
