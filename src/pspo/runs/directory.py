"""The run directory: everything a run leaves behind. Files are replaced as a whole, never half-written.

config.json      algorithm, dataset, preset, seed and every setting
manifest.json    versions, data hash, device, threads, timings
metrics.jsonl    one line per chunk (metrics.csv is the same as a table)
models.json      quality of the dynamics pool and of the reference policy
diagnostics.safetensors  samples for the report's figures
checkpoints/     the latest states, for `pspo resume`
comparison.json  the policy beside the dataset: verdict, differences, coverage
policy.safetensors, result.json, report.html
"""

from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.core.files import is_leftover, read_json, remove_leftovers, write_atomic, write_json
from pspo.core.renamed import new_metrics, new_settings
from pspo.data.column_order import in_order_of
from pspo.data.dataset import Dataset
from pspo.data.encoder import Encoder, encoder_from_json
from pspo.data.holdout import Holdout
from pspo.policies.policy import FILE_NAME as POLICY_FILE
from pspo.policies.policy import Policy, load_policy
from pspo.runs.schema import metrics_row, require_shape

OF_THE_CREATOR = r"(config|manifest)\.json"
OF_THE_WRITER = rf"{OF_THE_CREATOR}|(models|result)\.json|metrics\.(jsonl|csv)|(policy|diagnostics)\.safetensors"
"""Names of files that only who holds the lock writes: others are replaced at any time, such as the report."""
MOST_NAME = 120  # characters: file systems allow 255 bytes


class Run:
    """A run directory, finished or not: what `train` and `resume` return."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @property
    def checkpoints(self) -> Path:
        """The folder of the states that `resume` continues from."""
        return self.path / "checkpoints"

    def read(self, name: str, *needed: str) -> dict[str, Any]:
        """NAME.json: "config", "manifest", "models", "result" or "comparison", under the names of this version.

        Raises UserError if it lacks one of the `needed` keys.
        """
        path = self.path / f"{name}.json"
        content = read_json(path)
        if name == "result" and isinstance(content, dict):
            content = new_metrics(content)
        content = require_shape(path, name, content, needed)
        if name == "config" and "settings" in content:
            content["settings"] = new_settings(content["settings"], content.get("algo", ""))
        return content

    def write(self, name: str, value: Any) -> None:
        """Replace NAME.json."""
        write_json(self.path / f"{name}.json", value)

    @property
    def result(self) -> dict[str, Any]:
        """The final evaluation; only a finished run has one."""
        return self.read("result")

    def column_names(self, role: str) -> list[str]:
        """Names of the "obs" or the "action" columns of its dataset; empty where they are not known."""
        return (self.read("config").get("names") or {}).get(role, [])

    @property
    def encoder(self) -> Encoder | None:
        """What its raw columns became, where they are not the same; other data are encoded by it, too."""
        stored = self.read("config").get("encoder")
        try:
            return None if stored is None else encoder_from_json(stored)
        except (ValueError, TypeError) as problem:
            path = self.path / "config.json"
            raise UserError(f"the encoder in {path} cannot be used ({problem}): restore it.") from None

    def in_own_order(self, dataset: Dataset) -> Dataset:
        """The dataset with its columns in the order, by name, that the run was trained in, and with its labels."""
        labels = self.read("config").get("action_labels", [])
        return in_order_of(dataset, self.column_names("obs"), self.column_names("action"), labels)

    @property
    def holdout(self) -> Holdout | None:
        """The part of the data that it was not trained on, if there is one."""
        kept = self.read("config").get("holdout")
        return Holdout(**kept) if kept else None

    @property
    def policy(self) -> Policy:
        """The final policy."""
        return load_policy(self.path)

    @property
    def finished(self) -> bool:
        """Whether there is a result."""
        return (self.path / "result.json").exists()

    @property
    def complete(self) -> bool:
        """Whether nothing is left to compute; a finished run that lost its policy gets it from the last checkpoint."""
        return self.finished and (self.path / POLICY_FILE).exists()

    # Metrics

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Append one line; a process killed while writing leaves half a line, which `rewind_metrics` removes."""
        with open(self.path / "metrics.jsonl", "a") as file:
            file.write(json.dumps(row, allow_nan=False) + "\n")

    def metrics(self) -> list[dict[str, Any]]:
        """One row per chunk of training, oldest first."""
        path = self.path / "metrics.jsonl"
        rows = [metrics_row(line) for line in self._metrics_lines()]
        if None in rows:
            raise UserError(f"line {rows.index(None) + 1} of {path} cannot be read: restore the file or train again.")
        return [new_metrics(row) for row in rows if row is not None]

    def _metrics_lines(self) -> list[str]:
        path = self.path / "metrics.jsonl"
        return path.read_text(errors="replace").splitlines() if path.exists() else []

    def rewind_metrics(self, step: int) -> None:
        """Drop what was logged after the checkpoint that a run resumes from."""
        path = self.path / "metrics.jsonl"
        kept = []
        for line in self._metrics_lines():
            if (row := metrics_row(line)) is None:
                break
            if row["step"] <= step:
                kept.append(line + "\n")
        write_atomic(path, "".join(kept))

    def write_metrics_table(self) -> None:
        """Write the metrics as metrics.csv too."""
        rows = self.metrics()
        columns = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        write_atomic(self.path / "metrics.csv", text.getvalue())


def create(path: str | Path, files: dict[str, Any]) -> Run:
    """Create a run directory with its first files; on failure nothing is left behind."""
    run = Run(path)
    _require_empty(run)
    made = [p for p in (run.path, *run.path.parents) if not p.exists()]
    try:
        run.path.mkdir(parents=True, exist_ok=True)
        with _held(run.path):
            _require_empty(run)  # again: of two processes that saw it empty, one has it now
            remove_leftovers(run.path, OF_THE_CREATOR)
            _write_or_remove(run, files)
    except OSError as problem:
        _remove_empty(made)
        raise UserError(
            f"cannot write to {run.path} ({os.strerror(problem.errno or 0)}): choose another --out."
        ) from None
    except KeyboardInterrupt:
        _remove_empty(made)
        raise
    return run


def begun(path: Path) -> bool:
    """Whether there is a run to resume. Removes what is left of one that was killed while its first files were written.

    The lock comes first: another process may be writing these files right now.
    """
    if not (path / "config.json").exists():
        return False
    with _held(path):
        if not (path / "config.json").exists() or (path / "manifest.json").exists():
            return (path / "config.json").exists()
        if others := [
            entry.name for entry in path.iterdir() if not re.match(r"\.?(config|manifest)\.json", entry.name)
        ]:
            raise UserError(f"{path} has no manifest.json, but it has {others[0]}: restore it, or move the run away.")
        for entry in list(path.iterdir()):
            entry.unlink()
    return False


def discard(run: Run) -> None:
    """Remove a run whose first step was refused: only what `create` wrote, what was prepared, and empty metrics."""
    for name in ("metrics.jsonl", "models.json", "manifest.json", "config.json"):
        (run.path / name).unlink(missing_ok=True)
    _remove_empty([run.path])


def _require_empty(run: Run) -> None:
    """What a process that was killed in `create` left is no run, and nobody's own."""
    if run.path.exists() and (
        not run.path.is_dir() or not all(is_leftover(entry, OF_THE_CREATOR) for entry in run.path.iterdir())
    ):
        hint = (
            "use `pspo resume` to continue it, or choose another --out"
            if (run.path / "config.json").exists()
            else "choose another --out"
        )
        raise UserError(f"{run.path} exists already: {hint}.")


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Lock the folder itself, which leaves no file behind."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write_or_remove(run: Run, files: dict[str, Any]) -> None:
    try:
        for name, value in files.items():
            run.write(name, value)
    except BaseException:
        for name in files:
            with contextlib.suppress(OSError):
                (run.path / f"{name}.json").unlink()
        raise


def _remove_empty(folders: list[Path]) -> None:
    with contextlib.suppress(OSError):  # there is nothing to remove below a file, and others may have written here
        for folder in folders:
            if folder.exists():
                folder.rmdir()


def open_run(path: str | Path) -> Run:
    """The run in a directory, finished or not."""
    run = Run(path)
    if not (run.path / "config.json").exists():
        raise UserError(f"{run.path} is not a run directory: it has no config.json.")
    return run


@contextlib.contextmanager
def writing(run: Run) -> Iterator[None]:
    """Lock a run for writing: a second process that wants to resume it is refused.

    The lock is on config.json, which never changes, and is released when the process ends, however it ends.
    """
    with open(run.path / "config.json", "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"{run.path} is being written by another process: wait for it, or stop it first.") from None
        remove_leftovers(run.path, OF_THE_WRITER)
        yield


def free_path(name: str) -> Path:
    """runs/NAME, or runs/NAME-2, -3, ... if that exists. A name may come from a file and contain anything."""
    name = re.sub(r"[^\w.=+@-]+", "-", name).lstrip(".-")[:MOST_NAME] or "run"
    path, number = Path("runs") / name, 1
    while path.exists():
        number += 1
        path = Path("runs") / f"{name}-{number}"
    return path
