"""`run_experiment`: one of the paper's results, from a request to a page.

declarations -> cells -> check_cells -> run_cells on a backend -> collect_results -> results.json and a page

With a budget (`minutes`), what an iteration costs is measured before the cells, which then have their iterations.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pspo.core.compute import cores, require_threads, use_threads
from pspo.core.config import setting_word
from pspo.core.errors import UserError, not_empty
from pspo.envs.task import require_episodes
from pspo.experiments.backends.processes import ProcessBackend
from pspo.experiments.budget import describe_budget, measure_costs, read_costs, require_budget, with_iterations
from pspo.experiments.cells import GridCell, expand, resolve
from pspo.experiments.declarations import get_experiment
from pspo.experiments.grid import check_cells, collect_results, run_cells
from pspo.experiments.jobs import Backend, RunsFailed
from pspo.experiments.progress import show_progress
from pspo.report.records import Results, save
from pspo.report.summary.page import write_summary
from pspo.training.monitor import Monitor
from pspo.training.request import require_seeds
from pspo.training.trackers import no_tracker


@dataclass(frozen=True)
class ExperimentRequest:
    """One of the paper's results, and at which scale."""

    name: str
    """One of `EXPERIMENTS`, such as "table2"."""
    preset: str = ""
    """Empty: laptop, and paper for the overhead table."""
    seeds: int = 4
    """Runs of every method on every dataset."""
    first_seed: int = 0
    datasets: Sequence[str] | None = None
    """Names or files; None takes the experiment's own."""
    methods: Sequence[str] | None = None
    """Algorithms and ablations; None takes the experiment's own."""
    data: Path | None = None
    """A folder with hopper-medium.hdf5 and so on, in place of D4RL's downloads."""
    out: Path = Path("experiments")
    episodes: int | None = None
    """Episodes of each final evaluation; None is the task's own number."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Changes to every method's preset."""
    minutes: float | None = None
    """Of one core for every run, beyond the models that runs share; None trains for the preset's iterations."""
    threads: int = 1

    def __post_init__(self) -> None:
        get_experiment(self.name)
        usual = "paper" if self.name == "overhead" else "laptop"
        object.__setattr__(self, "preset", self.preset or usual)
        object.__setattr__(self, "out", Path(not_empty(self.out)))
        require_seeds(self.first_seed, self.seeds)
        require_threads(self.threads)
        if self.episodes is not None:
            require_episodes(self.episodes)
        if self.minutes is not None:
            require_budget(self.minutes, self.settings)
        if self.data is not None and not Path(self.data).is_dir():
            raise UserError(f"--data {self.data} is not a folder: name the one that holds the .hdf5 files.")

    @property
    def folder(self) -> Path:
        """Where results and page are written; the runs are under `out`/runs."""
        return self.out / self.name

    def cells(self, absolute: bool = False) -> list[GridCell]:
        """All runs, checked; with absolute paths for workers that run in other folders.

        With a budget, what iterations cost must have been measured (`measure_costs`).
        """
        cells = self.grid(absolute)
        if self.minutes is not None:
            cells = with_iterations(cells, self.minutes, read_costs(self.out))
        check_cells(cells)
        return cells

    def grid(self, absolute: bool = False) -> list[GridCell]:
        """All runs, with the iterations of their presets."""
        experiment = get_experiment(self.name)
        sources = [resolve(dataset, self.data) for dataset in self.datasets or experiment.datasets]
        return expand(
            self.out.resolve() if absolute else self.out,
            sources=[source.absolute() for source in sources] if absolute else sources,
            methods=list(dict.fromkeys(self.methods or experiment.methods)),
            seeds=range(self.first_seed, self.first_seed + self.seeds),
            preset=self.preset,
            settings=self.settings,
            episodes=self.episodes,
            minutes=self.minutes,
            threads=self.threads,
        )

    def command(self) -> str:
        """The command that gives the same results; where it runs does not change them."""
        words = ["pspo", "experiment", self.name, "--preset", self.preset]
        if self.name != "overhead":
            words += ["--seeds", str(self.seeds), "--first-seed", str(self.first_seed)]
        for option, names in (("--datasets", self.datasets), ("--methods", self.methods)):
            words += [option, *names] if names else []
        words += ["--data", str(self.data)] if self.data else []
        words += ["--episodes", str(self.episodes)] if self.episodes is not None else []
        words += ["--minutes", f"{self.minutes:g}"] if self.minutes is not None else []
        words += [word for key, value in self.settings.items() for word in ("--set", setting_word(key, value))]
        words += ["--threads", str(self.threads)] if self.threads != 1 else []
        return shlex.join(words)


def runs_at_once(request: ExperimentRequest) -> int:
    """How many runs the cores of this machine allow."""
    return max(1, cores() // request.threads)


def run_experiment(
    request: ExperimentRequest,
    *,
    backend: Backend | None = None,
    monitor: Monitor = Monitor(),  # noqa: B008
) -> Results:
    """Run what is not finished yet, write results.json and a page to `request.folder`, and return the results.

    `backend` is where the runs go: processes on this machine by default, or `RayBackend`. The same request again
    resumes what was stopped. Failed runs do not stop the others; then the page is written too, and `RunsFailed` is
    raised with `failures` and `results`. Raises `UserError` for bad input.
    """
    if monitor.tracker is not no_tracker:
        raise UserError("the runs of an experiment are separate processes, which no tracker can follow: leave it out.")
    if request.name == "overhead":
        return _run_overhead(request, backend, monitor)
    backend = backend or ProcessBackend(request.threads)
    budget: dict[str, Any] = {}
    if request.minutes is not None:
        measure_costs(request.out, request.grid(), request.threads, monitor.message)
    cells = request.cells(absolute=backend.remote)
    if request.minutes is not None:
        budget = describe_budget(cells, request.minutes, read_costs(request.out))
    experiment, folder = get_experiment(request.name), request.folder
    failures: dict[str, str] = {}

    def keep(name: str = "", failure: str = "") -> Results:
        """Save results as they come: a grid that is killed keeps those it has."""
        failures.update({name: failure} if failure else {})
        results = collect_results(request.name, experiment, cells, failures, folder, request.command())
        results = replace(results, budget=budget)
        save(results, folder)
        return results

    with backend:
        folder.mkdir(parents=True, exist_ok=True)  # only now: a cluster that does not answer leaves nothing behind
        failures |= run_cells(cells, backend, show_progress(monitor, keep), monitor.progress)
    results = keep()
    write_summary(results, folder)
    if failures:
        raise RunsFailed(failures, results)
    return results


def _run_overhead(request: ExperimentRequest, backend: Backend | None, monitor: Monitor) -> Results:
    require_overhead(request)
    if backend is not None:
        raise UserError("overhead is timed in one process on this machine: leave the backend out.")
    use_threads(request.threads)
    from pspo.experiments.overhead import overhead_results

    results = overhead_results(request.methods, request.preset, request.command(), monitor.message)
    request.folder.mkdir(parents=True, exist_ok=True)
    save(results, request.folder)
    write_summary(results, request.folder)
    return results


def require_overhead(request: ExperimentRequest) -> None:
    """The overhead table is timed on random data: what concerns datasets and runs has no meaning there."""
    for option in ("datasets", "data", "episodes", "settings", "minutes"):
        if getattr(request, option):
            name = {"settings": "set"}.get(option, option)
            raise UserError(f"overhead is timed on random data in one process: leave --{name} out.")
