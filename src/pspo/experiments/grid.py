"""The runs of a grid: checked before anything starts, run on a backend, collected as results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.core.progress import Progress, silent
from pspo.data.load import load_dataset
from pspo.data.readers.d4rl import d4rl_file, d4rl_name, fetch_d4rl
from pspo.experiments.cells import GridCell, Source, require_same_config
from pspo.experiments.declarations import Experiment, get_method
from pspo.experiments.jobs import Backend, JobListener, run_jobs
from pspo.report.published import published
from pspo.report.records import Record, Results, from_run
from pspo.runs.directory import Run

OF_ONE_RUN = ("timings", "models", "seed", "data_hash")
"""Parts of a manifest that differ between the runs of a grid."""


def check_cells(cells: Sequence[GridCell]) -> None:
    """Find whatever is wrong with a grid before any of it runs."""
    for cell in cells:
        try:
            cell.config()
        except UserError as problem:
            raise UserError(f"{cell.method}: {problem}") from None
        require_same_config(cell)
    for source in dict.fromkeys(cell.source for cell in cells):
        _require_same_data(source, [Run(cell.run) for cell in cells if cell.source == source])


def _require_same_data(source: Source, runs: Sequence[Run]) -> None:
    """Existing runs must have been trained on the data as they are now."""
    existing = [run for run in runs if (run.path / "manifest.json").exists()]
    name = d4rl_name(source.dataset)
    if not existing or (name and not d4rl_file(name)[0].exists()):
        return
    data = load_dataset(source.dataset, task=source.task_option)
    for run in existing:
        if run.read("manifest").get("data_hash") != run.in_own_order(data).hash:
            raise UserError(
                f"{run.path} was trained on other data than {source.dataset} holds now: choose another --out."
            )


def run_cells(
    cells: Sequence[GridCell], backend: Backend, listener: JobListener | None = None, progress: Progress = silent
) -> dict[str, str]:
    """Run all that are not finished; returns what went wrong, by the name of the cell."""
    failures = _download(cells, progress)
    return failures | run_jobs([cell.job() for cell in cells if cell.name not in failures], backend, listener)


def _download(cells: Sequence[GridCell], progress: Progress) -> dict[str, str]:
    """Download once, in this process, which has a progress display; cells without their data fail, others run."""
    failures = {}
    for source in {cell.source for cell in cells}:
        if not (name := d4rl_name(source.dataset)):
            continue
        try:
            fetch_d4rl(name, progress=progress)
        except UserError as problem:
            failures |= {cell.name: str(problem) for cell in cells if cell.source == source}
    return failures


def collect_results(
    name: str,
    experiment: Experiment,
    cells: Sequence[GridCell],
    failures: dict[str, str],
    folder: Path,
    command: str = "",
) -> Results:
    """What there is of a grid now; paths of runs are relative to the experiment's folder."""
    methods = dict.fromkeys(cell.method for cell in cells)
    return Results(
        title=experiment.title,
        datasets=list(dict.fromkeys(cell.source.name for cell in cells)),
        methods={method: get_method(method).label for method in methods},
        records=[_record(cell, failures.get(cell.name, ""), folder) for cell in cells],
        name=name,
        shows=list(experiment.shows),
        first=experiment.first if experiment.first in methods else "",
        command=command,
        published=published().get(experiment.published, {}) if experiment.published else {},
        machine=_machine(cells),
    )


def _record(cell: GridCell, failure: str, folder: Path) -> Record:
    if (cell.run / "config.json").exists():
        return from_run(cell.run, folder, cell.source.name, cell.method, failure)
    return Record(
        cell.source.name,
        cell.method,
        cell.seed,
        cell.algo,
        cell.preset,
        cell.settings,
        "failed" if failure else "missing",
        failure or "it has not been started.",
    )


def _machine(cells: Sequence[GridCell]) -> dict[str, Any]:
    """Versions, cores and threads of the first run that has been started."""
    for cell in cells:
        if (cell.run / "manifest.json").exists():
            manifest = Run(cell.run).read("manifest")
            return {name: value for name, value in manifest.items() if name not in OF_ONE_RUN}
    return {}
