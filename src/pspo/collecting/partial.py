"""OUT.partial: the folder from which an interrupted collection is resumed; removed when OUT is complete."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.core.files import read_json, write_json
from pspo.core.renamed import new_settings


def partial_folder(out: Path) -> Path:
    """The folder beside the output."""
    return out.with_name(out.name + ".partial")


@contextlib.contextmanager
def resumable_folder(out: Path, request: dict[str, Any]) -> Iterator[Path]:
    """The folder of this request, locked. It stays after an error or a kill, and is removed after success."""
    folder = partial_folder(out)
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is collecting '{out}': wait for it, or give another --out.") from None
        _require_same_request(folder, out, request)
        write_json(folder / "request.json", request)
        yield folder
        shutil.rmtree(folder)


def with_new_names(request: dict[str, Any]) -> dict[str, Any]:
    """A saved request of any version, with the present names of the learner's settings."""
    learner = request.get("learner")
    return {**request, "learner": new_settings(learner)} if isinstance(learner, dict) else request


def _require_same_request(folder: Path, out: Path, request: dict[str, Any]) -> None:
    """Refuse another request. More steps for a learner are allowed: they do not change what it has done."""
    if not (folder / "request.json").exists():
        return
    before = read_json(folder / "request.json")
    if not isinstance(before, dict):
        raise UserError(f"{folder / 'request.json'} is damaged: remove '{folder}' and start again.")
    before = with_new_names(before)
    for name in sorted(before.keys() | request.keys()):
        old, new = before.get(name), request.get(name)
        more_steps = name == "steps" and isinstance(old, int) and isinstance(new, int) and new > old
        if old != new and not more_steps:
            raise UserError(
                f"'{folder}' holds the beginning of another collection ({name[:40]} is {str(old)[:80]}, "
                f"now {str(new)[:80]}): "
                f"give the command that '{out}' was begun with, or remove that folder."
            )
