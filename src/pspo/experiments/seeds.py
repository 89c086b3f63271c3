"""Several seeds in one call: one process per seed, as many at a time as there are cores.

`python -m benchmarks.seeds` measures this against a vmap over seeds; docs/decisions.md has the numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pspo.algorithms import get_algorithm
from pspo.algorithms.caution import caution_settings
from pspo.core.compute import require_threads
from pspo.core.config import build, setting_word
from pspo.core.errors import UserError, not_empty
from pspo.core.files import read_json, write_json
from pspo.data.readers.d4rl import d4rl_name, fetch_d4rl
from pspo.envs.task import require_episodes
from pspo.experiments.backends.processes import ProcessBackend
from pspo.experiments.jobs import Job, RunsFailed, run_jobs
from pspo.experiments.progress import show_progress
from pspo.runs.command import source_words
from pspo.runs.directory import Run, free_path
from pspo.training.monitor import Monitor
from pspo.training.request import TrainRequest, require_seed, require_seeds
from pspo.training.trackers import TRACKERS, NamedTrackers, check_tracker, no_tracker

REQUEST_FILE = "command.json"
"""What the runs of a folder were asked for: only the same request resumes them."""


@dataclass(frozen=True)
class SeedsSummary:
    """The finished runs of several seeds."""

    folder: Path
    runs: list[Run]
    numbers: dict[str, Any]
    """What summary.json holds: {"score": {"mean": ..., "std": ..., "each": [...]}, ...} and the seeds."""

    @property
    def path(self) -> Path:
        return self.folder / "summary.json"


def train_seeds(
    request: TrainRequest,
    *,
    seeds: int | Sequence[int],
    out: str | Path | None = None,
    threads: int = 1,
    monitor: Monitor = Monitor(),  # noqa: B008
) -> SeedsSummary:
    """Train one run per seed, in processes: OUT/seed-S, then OUT/summary.json with mean and standard deviation.

    `seeds` are the seeds themselves, or how many to take from the request's own on. The same call again resumes what
    was stopped. The first failure keeps further seeds from starting, and `RunsFailed` is raised with what there is.
    Raises `UserError` for bad input.
    """
    not_empty(out)
    if isinstance(seeds, int):
        require_seeds(request.seed, seeds)
        seeds = range(request.seed, request.seed + seeds)
    listed = list(dict.fromkeys(seeds))
    if not listed:
        raise UserError("no seeds were given: at least one is needed.")
    for seed in listed:
        require_seed(seed)
    require_threads(threads)
    _require_named(monitor)
    if request.episodes is not None:
        require_episodes(request.episodes)
    # Unknown keys and values are reported before a start.
    config = build(get_algorithm(request.algo).Config, request.settings, algo=request.algo)
    caution_settings(request.algo, config, request.caution)
    name = f"{Path(request.dataset.split(',')[0]).stem}-{request.algo}-{request.preset}-seeds"
    folder = Path(out) if out else free_path(name)
    jobs = [_job(request, seed, folder, threads, monitor) for seed in listed]
    _require_same_request(folder, request, jobs)
    if name := d4rl_name(request.dataset):
        fetch_d4rl(name, progress=monitor.progress)  # once, and in this process, which has a progress display
    # An error of one seed is most often an error of all.
    failures = run_jobs(jobs, ProcessBackend(threads), show_progress(monitor), stop_at_failure=True)
    summary = _summary(folder, jobs)
    if failures:
        raise RunsFailed(failures, summary)
    assert summary
    return summary


def _require_named(monitor: Monitor) -> None:
    check_tracker(monitor.tracker)
    if monitor.tracker is not no_tracker and not isinstance(monitor.tracker, NamedTrackers):
        raise UserError(
            f"several seeds are separate processes, which only {', '.join(TRACKERS)} can follow: leave the tracker out."
        )


def _job(request: TrainRequest, seed: int, folder: Path, threads: int, monitor: Monitor) -> Job:
    return Job(
        f"seed {seed}",
        dataclasses.replace(request, seed=seed),
        folder / f"seed-{seed}",
        threads,
        trackers=monitor.tracker.names if isinstance(monitor.tracker, NamedTrackers) else (),
    )


def _require_same_request(folder: Path, request: TrainRequest, jobs: Sequence[Job]) -> None:
    """Existing runs must come from the same request: then they are resumed."""
    existing = [job.run for job in jobs if job.run.exists()]
    path, wanted = folder / REQUEST_FILE, {name: v for name, v in request.as_dict().items() if name != "seed"}
    if existing and (not path.exists() or read_json(path) not in (wanted, _words(request))):
        raise UserError(f"{existing[0]} exists already and belongs to another request: choose another --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, wanted)
    except OSError as problem:
        raise UserError(f"cannot write to {folder} ({problem.strerror}): choose another --out.") from None


def _words(request: TrainRequest) -> list[str]:
    """The request as version 0.1 wrote it."""
    words = ["train", request.dataset, "--algo", request.algo, "--preset", request.preset]
    words += ["--episodes", str(request.episodes)] if request.episodes is not None else []
    words += [word for piece in source_words(request.columns, request.task) for word in piece]
    return words + [word for key, value in request.settings.items() for word in ("--set", setting_word(key, value))]


def _summary(folder: Path, jobs: Sequence[Job]) -> SeedsSummary | None:
    """Of the finished runs. Where no run was even begun, nothing is left behind."""
    runs = [Run(job.run) for job in jobs if job.finished]
    if runs:
        summary = SeedsSummary(folder, runs, summarise([run.result for run in runs]))
        write_json(summary.path, summary.numbers)
        return summary
    if not any(job.run.exists() for job in jobs):
        (folder / REQUEST_FILE).unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()
    return None


def summarise(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and sample standard deviation over seeds of every number that all results have."""
    first = results[0]
    summary: dict[str, Any] = {name: first[name] for name in ("algo", "dataset", "preset")}
    summary["seeds"] = [result["seed"] for result in results]
    for name in first:
        values = [result.get(name) for result in results]
        if name != "seed" and all(isinstance(v, (int, float)) for v in values):
            numbers = np.array(values, dtype=np.float64)
            std = float(numbers.std(ddof=1)) if len(values) > 1 else 0.0
            summary[name] = {"mean": float(numbers.mean()), "std": std, "each": values}
    return summary
