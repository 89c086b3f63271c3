"""The run directory: everything a run leaves behind, each file whole at every moment.

config.json      algorithm, dataset, preset, seed and every setting
manifest.json    versions, data hash, device, threads, timings
metrics.jsonl    one line per chunk (metrics.csv is the same as a table)
models.json      quality of the dynamics pool and of the reference policy
diagnostics.safetensors  samples behind the report's figures
checkpoints/     the newest states, for `pspo resume`
policy.safetensors, result.json, report.html
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pspo.errors import UserError
from pspo.files import read_json, write_atomic, write_json
from pspo.policy import Policy, load_policy


class Run:
    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def read(self, name: str) -> Any:
        return read_json(self.path / f"{name}.json")

    def write(self, name: str, value: Any) -> None:
        write_json(self.path / f"{name}.json", value)

    @property
    def result(self) -> dict[str, Any]:
        return self.read("result")

    @property
    def policy(self) -> Policy:
        return load_policy(self.path)

    @property
    def finished(self) -> bool:
        return (self.path / "result.json").exists()

    # Metrics

    def append_metrics(self, row: dict[str, Any]) -> None:
        """One line; a kill in the middle of it leaves a torn last line, which `rewind_metrics` removes."""
        with open(self.path / "metrics.jsonl", "a") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        path = self.path / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def rewind_metrics(self, step: int) -> None:
        """Drop what was logged after the checkpoint that a resumed run starts from."""
        path = self.path / "metrics.jsonl"
        kept = []
        for line in path.read_text().splitlines() if path.exists() else []:
            try:
                row = json.loads(line)
            except ValueError:
                break  # the torn line of a kill
            if row["step"] <= step:
                kept.append(line + "\n")
        write_atomic(path, "".join(kept))

    def write_metrics_table(self) -> None:
        rows = self.metrics()
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        write_atomic(self.path / "metrics.csv", text.getvalue())


def create(path: str | Path, files: dict[str, Any]) -> Run:
    """A new run directory with its first files, or nothing at all."""
    run = Run(path)
    if run.path.exists() and (not run.path.is_dir() or any(run.path.iterdir())):
        hint = (
            "use `pspo resume` to go on with it, or another --out"
            if (run.path / "config.json").exists()
            else "choose another --out"
        )
        raise UserError(f"{run.path} exists already: {hint}.")
    made = [p for p in (run.path, *run.path.parents) if not p.exists()]
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        for name, value in files.items():
            run.write(name, value)
    except OSError as problem:
        with contextlib.suppress(OSError):  # below a file there is nothing to remove
            for name in files:
                (run.path / f"{name}.json").unlink(missing_ok=True)
            for folder in made:
                if folder.exists():
                    folder.rmdir()
        raise UserError(
            f"cannot write to {run.path} ({os.strerror(problem.errno or 0)}): choose another --out."
        ) from None
    return run


def open_run(path: str | Path) -> Run:
    run = Run(path)
    if not (run.path / "config.json").exists():
        raise UserError(f"{run.path} is not a run directory: it has no config.json.")
    return run


@contextlib.contextmanager
def writing(run: Run) -> Iterator[None]:
    """Hold a run for oneself: a second process that wants to go on with it is refused, and nothing is mixed up.

    The lock is on config.json, which never changes once it is there, and ends with its process whatever ends that.
    """
    with open(run.path / "config.json", "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{run.path} is being written by another process: wait for it, or stop it first.") from None
        yield


def free_path(name: str) -> Path:
    """runs/NAME, or runs/NAME-2, -3, ... where that is taken."""
    path, number = Path("runs") / name, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{name}-{number}"
    return path
