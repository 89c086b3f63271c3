"""D4RL's locomotion datasets by name, downloaded once into the cache folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pspo.core.errors import UserError
from pspo.core.files import cache_folder, locked
from pspo.core.progress import Progress, silent
from pspo.data.dataset import Dataset
from pspo.data.readers.download import Unreachable, download, published, record, recorded, sha256
from pspo.data.readers.hdf5 import load_hdf5

ADDRESS = "http://rail.eecs.berkeley.edu/datasets/offline_rl/gym_mujoco_v2"
TASKS = ("halfcheetah", "hopper", "walker2d")
LEVELS = ("random", "medium", "expert", "medium-expert", "medium-replay", "full-replay")
NAMES = tuple(f"{task}-{level}-v2" for task in TASKS for level in LEVELS)


def d4rl_name(source: str) -> str | None:
    """The full name of a D4RL dataset; the version may be left out. None for anything else."""
    full = source if source.endswith("-v2") else f"{source}-v2"
    return full if full in NAMES else None


def load_d4rl(name: str, checksums: Mapping[str, str] | None = None, progress: Progress = silent) -> Dataset:
    """The dataset of that name, such as hopper-medium-v2.

    D4RL publishes no checksums, so the first download is trusted: its SHA-256 is kept beside the file and verified
    at every load. `checksums` (name to SHA-256) and NAME.hdf5.sha256 on the mirror take precedence. PSPO_D4RL_URL
    names a mirror.
    """
    path = fetch_d4rl(name, checksums, progress)
    return replace(load_hdf5(path), name=name, task=name.split("-")[0])


def fetch_d4rl(name: str, checksums: Mapping[str, str] | None = None, progress: Progress = silent) -> Path:
    """The verified file of a dataset; downloaded if it is not in the cache."""
    path, url = d4rl_file(name)
    file, folder = path.name, path.parent
    wanted = (checksums or {}).get(name) or (checksums or {}).get(name.removesuffix("-v2"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / f"{file}.lock"):  # if two processes need it, one downloads and the other waits
            if path.exists():
                _verify(path, wanted)
            else:
                expected = wanted.lower() if wanted else published(url)
                download(url, path, expected, _opens_as_hdf5, file, progress)
    except Unreachable as problem:
        raise UserError(
            f"'{name}' cannot be downloaded from {url} ({problem}): try again to continue, or put {file} into {folder}."
        ) from None
    except OSError as error:
        raise UserError(f"cannot write '{error.filename or folder}': {error.strerror or error}.") from None
    return path


def d4rl_file(name: str) -> tuple[Path, str]:
    """The path of a dataset in the cache, and its URL."""
    task, level = name.removesuffix("-v2").split("-", 1)
    file = f"{task}_{level.replace('-', '_')}-v2.hdf5"
    return cache_folder() / "d4rl" / file, f"{(os.environ.get('PSPO_D4RL_URL') or ADDRESS).rstrip('/')}/{file}"


def approximate_size(name: str) -> int:
    """Number of transitions, to the thousand, without downloading the dataset."""
    task, level = name.removesuffix("-v2").split("-", 1)
    replay = {"halfcheetah": 202_000, "hopper": 402_000, "walker2d": 302_000}
    return {"medium-expert": 2_000_000, "medium-replay": replay[task]}.get(level, 1_000_000)


def _verify(path: Path, wanted: str | None) -> None:
    actual, known = sha256(path), wanted.lower() if wanted else recorded(path)
    if known is None:
        record(path, actual)  # put there by hand: trusted from now on
    elif actual != known:
        raise UserError(
            f"'{path}' has the SHA-256 {actual[:16]}... and not {known[:16]}..., so it is damaged or another file: "
            f"remove it and {path.name}.sha256 to download it again."
        )


def _opens_as_hdf5(path: Path) -> bool:
    import h5py

    try:
        with h5py.File(path, "r"):
            return True
    except OSError:
        return False
