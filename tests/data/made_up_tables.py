"""Random tables for hypothesis, complete or with columns left out, in every format."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
from hypothesis import strategies as st

from pspo.data import Dataset, load_dataset


@dataclass
class CompleteData:
    """Complete data; all observations differ, so that a wrong row shows."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    next_obs: np.ndarray
    terminal: np.ndarray
    timeout: np.ndarray
    episode: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.obs)

    def table(self, *parts: str) -> dict[str, Any]:
        """Columns under usual names; `parts` of terminal, timeout, episode, next_obs as wanted."""
        columns: dict[str, Any] = {f"obs_{d}": self.obs[:, d] for d in range(self.obs.shape[1])}
        columns |= {f"action_{d}": self.action[:, d] for d in range(self.action.shape[1])}
        columns["reward"] = self.reward
        if "next_obs" in parts:
            columns |= {f"next_obs_{d}": self.next_obs[:, d] for d in range(self.obs.shape[1])}
        return columns | {part: getattr(self, part) for part in ("terminal", "timeout", "episode") if part in parts}


@st.composite
def complete_data(draw: st.DrawFn) -> CompleteData:
    """Episodes of one to five rows that end in a terminal or a time-out."""
    episodes = draw(st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=6))
    obs_dim, action_dim = draw(st.integers(1, 12)), draw(st.integers(1, 2))
    lengths = np.array([length for length, _ in episodes])
    rows, last = int(lengths.sum()), np.cumsum(lengths) - 1
    terminal, timeout = np.zeros((2, rows), bool)
    terminal[last] = [ends for _, ends in episodes]
    timeout[last] = ~terminal[last]
    obs = np.arange(rows * obs_dim, dtype=np.float32).reshape(rows, obs_dim)
    next_obs = np.roll(obs, -1, axis=0)
    next_obs[last] = -1.0 - obs[last]
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    names = np.array(draw(st.permutations(range(len(episodes)))))
    return CompleteData(
        obs=obs,
        action=rng.uniform(-1, 1, (rows, action_dim)).astype(np.float32),
        reward=rng.normal(size=rows).astype(np.float32),
        next_obs=next_obs,
        terminal=terminal,
        timeout=timeout,
        episode=np.repeat(names, lengths),
    )


def through_memory(table: dict[str, Any], **options: Any) -> Dataset:
    return load_dataset(pa.table(table), **options)


def _through_file(suffix: str, write: Callable[[pa.Table, str], Any]) -> Callable[..., Dataset]:
    def through(table: dict[str, Any], **options: Any) -> Dataset:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"dataset{suffix}"
            write(pa.table(table), str(path))
            return load_dataset(path, **options)

    return through


WAYS = {
    "memory": through_memory,
    "csv": _through_file(".csv", pyarrow.csv.write_csv),
    "parquet": _through_file(".parquet", pyarrow.parquet.write_table),
}
