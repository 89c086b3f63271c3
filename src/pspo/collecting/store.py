"""Collected episodes as a dataset in D4RL's layout, with a record of how they were collected."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from pspo import __version__
from pspo.collecting.partial import with_new_names
from pspo.core.errors import UserError
from pspo.core.files import parse_json
from pspo.data.dataset import Dataset
from pspo.data.readers.hdf5 import DAMAGE as HDF5_DAMAGE
from pspo.data.readers.hdf5 import save_hdf5
from pspo.envs.mujoco import HORIZON, Episode
from pspo.envs.task import get_task

LIBRARIES = ("numpy", "gymnasium", "mujoco")


@dataclass(frozen=True)
class Summary:
    """Size and quality of a collection; return and score are means over complete episodes."""

    path: str
    rows: int
    episodes: int
    return_mean: float
    score: float

    def __str__(self) -> str:
        return (
            f"{self.rows} transitions, {self.episodes} episodes, mean return {self.return_mean:.1f} "
            f"(normalised {self.score:.1f}): {self.path}"
        )


def join_episodes(episodes: Iterable[Episode], transitions: int) -> dict[str, np.ndarray]:
    """Exactly so many transitions under D4RL's names; the last episode is cut there, which is a time-out."""
    episodes = list(episodes)
    ends = np.cumsum([episode.length for episode in episodes]) - 1
    terminal, timeout = np.zeros((2, ends[-1] + 1), bool)
    terminal[ends] = [episode.terminal for episode in episodes]
    timeout[ends] = ~terminal[ends]
    arrays = {
        "observations": np.concatenate([episode.obs[:-1] for episode in episodes]),
        "actions": np.concatenate([episode.action for episode in episodes]),
        "rewards": np.concatenate([episode.reward for episode in episodes]),
        "next_observations": np.concatenate([episode.obs[1:] for episode in episodes]),
        "terminals": terminal,
        "timeouts": timeout,
    }
    arrays = {name: array[:transitions] for name, array in arrays.items()}
    arrays["timeouts"][-1] = not arrays["terminals"][-1]
    return arrays


def save_collection(
    parts: list[dict[str, np.ndarray]], out: Path, name: str, task: str, request: dict[str, Any]
) -> Summary:
    """Write all parts, one after the other, to one file; each ends with a finished or a cut episode."""
    arrays = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    bound = np.ones(arrays["actions"].shape[1], np.float32)  # gymnasium's bounds, and those of D4RL, are -1 and 1
    dataset = Dataset.from_arrays({**arrays, "action_low": -bound, "action_high": bound, "name": name, "task": task})
    lengths, returns = dataset.episode_lengths(), dataset.episode_returns()
    whole = dataset.terminal[dataset.episode_starts + lengths - 1] | (lengths == HORIZON)
    mean = float((returns[whole] if whole.any() else returns).mean())
    summary = Summary(str(out), dataset.size, len(lengths), mean, float(get_task(task).normalised(mean)))
    versions = {"pspo": __version__, **{library: metadata.version(library) for library in LIBRARIES}}
    attributes = {key: value for key, value in asdict(summary).items() if key != "path"}
    attributes |= {"collected": json.dumps(request), "seed": request["seed"], "versions": json.dumps(versions)}
    save_hdf5(dataset, out, attributes)
    return summary


def already_collected(out: Path, request: dict[str, Any]) -> Summary | None:
    """The summary of a finished collection, or None. Any other file at that path is an error."""
    if not out.exists():
        return None
    import h5py

    attributes: dict[str, Any] = {}
    try:
        with h5py.File(out, "r") as file:
            attributes |= file.attrs
        same = with_new_names(parse_json(attributes["collected"])) == request
        numbers = int(attributes["rows"]), int(attributes["episodes"])
        means = float(attributes["return_mean"]), float(attributes["score"])
    except HDF5_DAMAGE:
        same, numbers, means = False, (0, 0), (0.0, 0.0)
    if not same:
        raise UserError(
            f"'{out}' exists already and is not the result of this command: remove it or give another --out."
        )
    return Summary(str(out), *numbers, *means)
