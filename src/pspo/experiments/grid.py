"""An experiment from its declaration to its results: cells, runs, records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.core.progress import Progress, silent
from pspo.data.load import load_dataset
from pspo.data.readers.d4rl import d4rl_name, fetch_d4rl, place
from pspo.experiments.cells import Cell, Source, require_same
from pspo.experiments.declarations import Experiment, get_method
from pspo.experiments.jobs import Backend, Watch, run_jobs
from pspo.report.published import published
from pspo.report.records import Record, Results, from_run
from pspo.runs.directory import Run

OF_ONE_RUN = ("timings", "models", "seed", "data_hash")
"""Parts of a manifest that say nothing about the others."""


def check(cells: Sequence[Cell]) -> None:
    """Everything that can be wrong with a grid, before anything of it runs."""
    for cell in cells:
        try:
            cell.config()
        except UserError as problem:
            raise UserError(f"{cell.method}: {problem}") from None
        require_same(cell)
    for source in dict.fromkeys(cell.source for cell in cells):
        _require_same_data(source, [Run(cell.run) for cell in cells if cell.source == source])


def _require_same_data(source: Source, runs: Sequence[Run]) -> None:
    """Runs that are there already must have learned from the data as they are now."""
    there = [run for run in runs if (run.path / "manifest.json").exists()]
    name = d4rl_name(source.given)
    if not there or (name and not place(name)[0].exists()):
        return
    digest = load_dataset(source.given, task=source.task if source.is_file else None).hash
    for run in there:
        if run.read("manifest").get("data_hash") != digest:
            raise UserError(f"{run.path} was made from other data than {source.given} holds now: choose another --out.")


def work_through(
    cells: Sequence[Cell], backend: Backend, watch: Watch | None = None, progress: Progress = silent
) -> dict[str, str]:
    """Run what is not finished; returns what went wrong, by the name of the cell."""
    failed = _fetch(cells, progress)
    return failed | run_jobs([cell.job() for cell in cells if cell.name not in failed], backend, watch)


def _fetch(cells: Sequence[Cell], progress: Progress) -> dict[str, str]:
    """Download once, here, where it is seen; cells whose data cannot be had fail for themselves."""
    failed = {}
    for source in {cell.source for cell in cells}:
        if not (name := d4rl_name(source.given)):
            continue
        try:
            fetch_d4rl(name, progress=progress)
        except UserError as problem:
            failed |= {cell.name: str(problem) for cell in cells if cell.source == source}
    return failed


def observe(
    name: str, experiment: Experiment, cells: Sequence[Cell], failed: dict[str, str], folder: Path, command: str = ""
) -> Results:
    """What there is of a grid at this moment, as seen from the experiment's own folder."""
    methods = dict.fromkeys(cell.method for cell in cells)
    return Results(
        title=experiment.title,
        datasets=list(dict.fromkeys(cell.source.name for cell in cells)),
        methods={method: get_method(method).label for method in methods},
        records=[_record(cell, failed.get(cell.name, ""), folder) for cell in cells],
        name=name,
        shows=list(experiment.shows),
        first=experiment.first if experiment.first in methods else "",
        command=command,
        published=_published(experiment),
        machine=_machine(cells),
    )


def _record(cell: Cell, said: str, folder: Path) -> Record:
    if (cell.run / "config.json").exists():
        return from_run(cell.run, folder, cell.source.name, cell.method, said)
    return Record(
        cell.source.name,
        cell.method,
        cell.seed,
        cell.algo,
        cell.preset,
        cell.settings,
        "failed" if said else "missing",
        said or "it has not been started.",
    )


def _published(experiment: Experiment) -> dict[str, Any]:
    return published().get(experiment.published, {}) if experiment.published else {}


def _machine(cells: Sequence[Cell]) -> dict[str, Any]:
    """Of the first run that is there: versions, cores, threads."""
    for cell in cells:
        if (cell.run / "manifest.json").exists():
            found = Run(cell.run).read("manifest")
            return {name: value for name, value in found.items() if name not in OF_ONE_RUN}
    return {}
