"""Checkpoints: the newest two are kept, each with a checksum; a damaged one is skipped with a warning."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pspo.core.errors import UserError
from pspo.core.files import Corrupt, read_arrays, remove_leftovers, write_arrays
from pspo.core.renamed import new_array_name
from pspo.core.trees import from_arrays, to_arrays

KEPT = 2
MIN_PAUSE = 2.0  # seconds between two checkpoints; resuming is exact from any of them
MAX_TIME_SHARE = 0.05  # of the run may be spent on saving
S = TypeVar("S")


def pause_after(save_seconds: float) -> float:
    """Seconds to wait after a save that took `save_seconds`: a state with a large buffer is saved less often."""
    return max(MIN_PAUSE, save_seconds / MAX_TIME_SHARE)


def save(folder: Path, step: int, state: Any) -> None:
    """Write a checkpoint and remove those that are no longer needed."""
    require_inside(folder)
    folder.mkdir(exist_ok=True)
    remove_leftovers(folder, r"[0-9]{10,}\.safetensors")
    write_arrays(folder / f"{step:010d}.safetensors", to_arrays(state), {"step": step})
    # Later files are damaged: this run resumed from before them, and they must not push out good ones.
    later = [path for path in _files(folder) if int(path.stem) > step]
    for old in later + _files(folder)[len(later) + KEPT :]:
        old.unlink()


def load_newest(
    folder: Path, like: S, warn: Callable[[str], None], new_name: Callable[[str], str] = new_array_name
) -> tuple[int, S] | None:
    """Step and state of the newest undamaged checkpoint, or None. `new_name` translates array names of old versions."""
    for path in _files(folder):
        try:
            arrays, metadata = read_arrays(path)
            step = int(path.stem)
            if metadata.get("step") != step:
                raise Corrupt(f"{path} says it is step {metadata.get('step')}.")
            return step, from_arrays(like, {new_name(name): array for name, array in arrays.items()})
        except Corrupt as problem:
            warn(f"skipping a damaged checkpoint: {problem}")
    return None


def require_inside(folder: Path) -> None:
    """Refuse a link: old checkpoints are removed, and never outside the run."""
    if folder.is_symlink():
        raise UserError(f"{folder} is a link to elsewhere, where nothing is written: put a real folder in its place.")


def _files(folder: Path) -> list[Path]:
    """Our own files, newest first; other files in the folder are neither read nor removed."""
    return sorted(
        (path for path in folder.glob("*.safetensors") if re.fullmatch(r"[0-9]{10,}", path.stem)), reverse=True
    )
