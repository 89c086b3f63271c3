"""Several seeds in one call: one process per seed, as many at a time as there are cores.

`python -m benchmarks.seeds` measures this against a vmap over seeds; docs/decisions.md has the numbers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from pspo.cli_data import source_options, source_words
from pspo.compute import cores
from pspo.data.d4rl_files import d4rl_name, fetch_d4rl
from pspo.display import for_terminal, silent
from pspo.errors import UserError
from pspo.files import write_json
from pspo.runs import Run, free_path

POLL_SECONDS = 0.5


def train_seeds(arguments: Namespace) -> int:
    """Runs DIR/seed-S for each seed, then DIR/summary.json with mean and spread over seeds."""
    if arguments.seeds < 1:
        raise UserError(f"--seeds {arguments.seeds} is out of range: at least one is needed.")
    name = Path(arguments.dataset).stem
    folder = Path(arguments.out) if arguments.out else free_path(f"{name}-{arguments.algo}-{arguments.preset}-seeds")
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    threads = arguments.threads or 1
    waiting = [(seed, _command(arguments, seed, folder / f"seed-{seed}", threads)) for seed in seeds]
    running: dict[int, subprocess.Popen[str]] = {}
    at_once = max(1, cores() // threads)
    failed: dict[int, str] = {}
    with for_terminal() as show:
        if name := d4rl_name(arguments.dataset):
            fetch_d4rl(name, progress=silent if arguments.quiet else show)  # here, where it is seen, and once
        while waiting or running:
            while waiting and len(running) < at_once:
                seed, command = waiting.pop(0)
                running[seed] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            time.sleep(POLL_SECONDS)
            for seed, process in list(running.items()):
                if not arguments.quiet:
                    _show(show, seed, folder)
                if process.poll() is not None:
                    said = process.communicate()[1].strip()
                    del running[seed]
                    if process.returncode:
                        failed[seed] = said.splitlines()[-1] if said else f"exit code {process.returncode}"
                        waiting = []  # what one seed cannot do, the others will hardly manage
    return _finish(folder, list(seeds), failed)


def _command(arguments: Namespace, seed: int, out: Path, threads: int) -> list[str]:
    words = [sys.executable, "-m", "pspo", "train", arguments.dataset, "--algo", arguments.algo]
    words += ["--preset", arguments.preset, "--seed", str(seed), "--out", str(out), "--quiet"]
    words += ["--threads", str(threads)]
    if arguments.episodes is not None:
        words += ["--episodes", str(arguments.episodes)]
    words += [word for piece in source_words(**source_options(arguments)) for word in piece]
    words += [word for setting in arguments.settings for word in ("--set", setting)]
    return [*words, "--tensorboard"] if arguments.tensorboard else words


def _show(show: Any, seed: int, folder: Path) -> None:
    """Follow a seed by the last line of its metrics; a line being written right now is left for the next look."""
    run = Run(folder / f"seed-{seed}")
    try:
        rows = run.metrics()
        total = run.read("config")["settings"]["steps"]
    except (ValueError, UserError):
        return
    if rows:
        scored = [row["score"] for row in rows if "score" in row]
        show(f"seed {seed}", rows[-1]["step"], total, {"score": scored[-1]} if scored else {})


def _finish(folder: Path, seeds: list[int], failed: dict[int, str]) -> int:
    results = [Run(folder / f"seed-{s}").result for s in seeds if Run(folder / f"seed-{s}").finished]
    for seed, said in failed.items():
        print(f"pspo: seed {seed} failed: {said.removeprefix('pspo: ')}", file=sys.stderr)
    if results:
        summary = summarise(results)
        write_json(folder / "summary.json", summary)
        print(json.dumps(summary, indent=2))
        print(f"runs:   {folder}")
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
