"""Checkpoints: the newest two, each whole and checksummed; a damaged one is said and passed over."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pspo.core.errors import UserError
from pspo.core.files import Corrupt, read_arrays, write_arrays
from pspo.core.renamed import new_array_name
from pspo.core.trees import from_arrays, to_arrays

KEPT = 2
LEAST_PAUSE = 2.0  # seconds between two; resuming is exact from any of them
LARGEST_SHARE = 0.05  # of the time may go into saving
S = TypeVar("S")


def pause_after(save_seconds: float) -> float:
    """Seconds to wait after a save that took so long: a state with a large buffer is saved less often."""
    return max(LEAST_PAUSE, save_seconds / LARGEST_SHARE)


def save(folder: Path, step: int, state: Any) -> None:
    require_inside(folder)
    folder.mkdir(exist_ok=True)
    write_arrays(folder / f"{step:010d}.safetensors", to_arrays(state), {"step": step})
    # Later files are damaged ones that this run had to go back behind: they must not push out good ones.
    later = [path for path in _files(folder) if int(path.stem) > step]
    for old in later + _files(folder)[len(later) + KEPT :]:
        old.unlink()


def load_newest(folder: Path, like: S, warn: Callable[[str], None]) -> tuple[int, S] | None:
    """The newest checkpoint that reads back whole, or None where there is none."""
    for path in _files(folder):
        try:
            arrays, facts = read_arrays(path)
            step = int(path.stem)
            if facts.get("step") != step:
                raise Corrupt(f"{path} says it is step {facts.get('step')}.")
            return step, from_arrays(like, {new_array_name(name): array for name, array in arrays.items()})
        except Corrupt as problem:
            warn(f"skipping a damaged checkpoint: {problem}")
    return None


def require_inside(folder: Path) -> None:
    """Old checkpoints are removed: never where a link leads out of the run."""
    if folder.is_symlink():
        raise UserError(f"{folder} is a link to elsewhere, where nothing is written: put a real folder in its place.")


def _files(folder: Path) -> list[Path]:
    """Newest first; what somebody else has put there is not ours to read or to remove."""
    return sorted(
        (path for path in folder.glob("*.safetensors") if re.fullmatch(r"[0-9]{10,}", path.stem)), reverse=True
    )
