"""OUT.partial: the folder beside an output from which a stopped collection goes on; it is gone when OUT is there."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pspo.core.errors import UserError
from pspo.core.files import read_json, write_json


def partial_folder(out: Path) -> Path:
    return out.with_name(out.name + ".partial")


@contextlib.contextmanager
def progress_kept(out: Path, request: dict[str, Any]) -> Iterator[Path]:
    """The folder for this request and nobody else's. An error or a kill leaves it; success removes it."""
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


def _require_same_request(folder: Path, out: Path, request: dict[str, Any]) -> None:
    """A learner may be given more steps than before: they change nothing of what it has already done."""
    if not (folder / "request.json").exists():
        return
    before = read_json(folder / "request.json")
    if not isinstance(before, dict):
        raise UserError(f"{folder / 'request.json'} is damaged: remove '{folder}' and begin anew.")
    for name in sorted(before.keys() | request.keys()):
        old, new = before.get(name), request.get(name)
        more_steps = name == "steps" and isinstance(old, int) and isinstance(new, int) and new > old
        if old != new and not more_steps:
            raise UserError(
                f"'{folder}' holds the beginning of another collection ({name[:40]} is {str(old)[:80]}, "
                f"now {str(new)[:80]}): "
                f"give the command that '{out}' was begun with, or remove that folder."
            )
