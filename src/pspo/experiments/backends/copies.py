"""A job on a machine that does not see the folder of the runs: files go there as bytes, and come back as bytes.

The worker has a copy of what is stored of the run and of the dataset's file. What it returns is a run like any other:
nothing in it says that it was trained elsewhere.
"""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pspo.core.files import remove_leftovers, write_atomic
from pspo.data.copied_files import reading_copy
from pspo.experiments.jobs import Job, JobOutcome, execute

FIRST = ("config.json", "manifest.json")  # without both, a folder is no run
LAST = "result.json"  # with it, a run counts as finished
DRAWN = "report.html"  # names the folder of the run: drawn where that is

Files = dict[str, bytes]
"""Content by relative path."""


def digest_of(path: Path) -> str:
    """Of the content of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def files_of(run: Path) -> Files:
    """All that a run directory holds; temporary files are left out."""
    paths = sorted(path for path in run.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {str(path.relative_to(run)): path.read_bytes() for path in paths if path.name != DRAWN}


def store(run: Path, files: Mapping[str, bytes]) -> None:
    """Replace a run directory by these files, so that it can be resumed whenever this is interrupted."""
    if not files:
        return
    others = [name for name in files if name not in (*FIRST, LAST)]
    old = {path for path in run.rglob("*") if path.is_file() and path.name != DRAWN}
    for name in (*FIRST, *others, LAST):
        path = run / name
        if name not in files:
            continue
        if name == LAST:  # until then the run is unfinished, with old checkpoints or with new ones
            for stale in old - {run / other for other in files}:
                stale.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, files[name])
    for folder in (run, run / "checkpoints"):
        remove_leftovers(folder, r".*")


def execute_copy(job: Job, files: Mapping[str, bytes], data: bytes | None) -> tuple[JobOutcome, Files]:
    """Train or resume a copy of a job's run; `data` is the content of its dataset's file, if it has one."""
    with tempfile.TemporaryDirectory(prefix="pspo-run-") as place:
        source, run = job.request.dataset, Path(place) / "run" / job.run.name
        copy = Path(place) / "data" / Path(source).name if data is not None else Path(source)
        if data is not None:
            copy.parent.mkdir()
            copy.write_bytes(data)
        store(run, files)
        with reading_copy(source, str(copy)):
            outcome = execute(dataclasses.replace(job, run=run))
        message = outcome.message.replace(str(run), str(job.run)).replace(str(copy), source)
        return dataclasses.replace(outcome, message=message), files_of(run)
