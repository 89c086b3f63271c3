"""Several seeds in one call: one process per seed, as many at a time as there are cores.

`python -m benchmarks.seeds` measures this against a vmap over seeds; docs/decisions.md has the numbers.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from pspo.cli.data import source_options
from pspo.core.compute import require_threads
from pspo.core.errors import UserError
from pspo.core.files import read_json, write_json
from pspo.core.progress import for_terminal, silent
from pspo.data.readers.d4rl import d4rl_name, fetch_d4rl
from pspo.experiments.backends.processes import Processes
from pspo.experiments.jobs import Job, run_jobs
from pspo.experiments.watching import watching
from pspo.report.terminal import seeds_table
from pspo.runs.command import source_words
from pspo.runs.directory import Run, free_path

WORDS = "command.json"


def train_seeds(arguments: Namespace) -> int:
    """Runs DIR/seed-S for each seed, then DIR/summary.json with mean and spread over seeds. Stopped, it goes on."""
    if arguments.seeds < 1:
        raise UserError(f"--seeds {arguments.seeds} is out of range: at least one is needed.")
    if arguments.threads is not None:
        require_threads(arguments.threads)
    name = Path(arguments.dataset).stem
    folder = Path(arguments.out) if arguments.out else free_path(f"{name}-{arguments.algo}-{arguments.preset}-seeds")
    jobs = [_job(arguments, seed, folder) for seed in range(arguments.seed, arguments.seed + arguments.seeds)]
    _require_own(folder, _words(arguments), jobs)
    with for_terminal() as terminal:
        show = silent if arguments.quiet else terminal
        if name := d4rl_name(arguments.dataset):
            fetch_d4rl(name, progress=show)  # here, where it is seen, and once
        # What one seed cannot do, the others will hardly manage.
        failed = run_jobs(jobs, Processes(arguments.threads or 1), watching(show), stop_at_failure=True)
    return _finish(folder, jobs, failed)


def _job(arguments: Namespace, seed: int, folder: Path) -> Job:
    options = ("--tensorboard",) if arguments.tensorboard else ()
    words = [*_words(arguments), "--seed", str(seed)]
    return Job(f"seed {seed}", folder / f"seed-{seed}", words, arguments.threads or 1, options)


def _words(arguments: Namespace) -> list[str]:
    words = ["train", arguments.dataset, "--algo", arguments.algo, "--preset", arguments.preset]
    if arguments.episodes is not None:
        words += ["--episodes", str(arguments.episodes)]
    words += [word for piece in source_words(**source_options(arguments)) for word in piece]
    return words + [word for setting in arguments.settings for word in ("--set", setting)]


def _require_own(folder: Path, words: list[str], jobs: list[Job]) -> None:
    """Runs that are there already must come from this very command: then they are gone on with."""
    there = [job.run for job in jobs if job.run.exists()]
    place = folder / WORDS
    if there and (not place.exists() or read_json(place) != words):
        raise UserError(f"{there[0]} exists already and is of another command: choose another --out.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(place, words)
    except OSError as problem:
        raise UserError(f"cannot write to {folder} ({problem.strerror}): choose another --out.") from None


def _finish(folder: Path, jobs: list[Job], failed: dict[str, str]) -> int:
    results = [Run(job.run).result for job in jobs if job.finished]
    for name, said in failed.items():
        print(f"pspo: {name} failed: {said}", file=sys.stderr)
    if results:
        summary = summarise(results)
        write_json(folder / "summary.json", summary)
        seeds_table(summary)
        print(f"runs:    {folder}")
        print(f"summary: {folder / 'summary.json'}")
    elif not any(job.run.exists() for job in jobs):
        (folder / WORDS).unlink(missing_ok=True)  # nothing was begun: nothing is left behind
        if not any(folder.iterdir()):
            folder.rmdir()
    return 2 if failed else 0


def summarise(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and sample standard deviation over seeds of every number that all results have."""
    first = results[0]
    summary: dict[str, Any] = {name: first[name] for name in ("algo", "dataset", "preset")}
    summary["seeds"] = [result["seed"] for result in results]
    for name in first:
        values = [result.get(name) for result in results]
        if name != "seed" and all(isinstance(v, (int, float)) for v in values):
            numbers = np.array(values, dtype=np.float64)
            spread = float(numbers.std(ddof=1)) if len(values) > 1 else 0.0
            summary[name] = {"mean": float(numbers.mean()), "std": spread, "each": values}
    return summary
