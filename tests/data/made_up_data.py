"""Small datasets for tests: a clean one whose arrays a test may spoil, and random ones for hypothesis."""

from __future__ import annotations

from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
from hypothesis import strategies as st

from pspo.data import Dataset


def clean_fields(rows: int = 60, seed: int = 0) -> dict[str, Any]:
    """Episodes of six rows that end in turn by a terminal and by a time-out; no check finds anything in them."""
    random = np.random.default_rng(seed)
    obs, next_obs = random.normal(size=(2, rows, 3)).astype(np.float32)
    terminal, timeout = np.zeros((2, rows), dtype=bool)
    terminal[5::12] = True
    timeout[11::12] = True
    inside = np.flatnonzero(~(terminal | timeout)[:-1])
    next_obs[inside] = obs[inside + 1]
    return {
        "obs": obs,
        "action": random.uniform(-1, 1, size=(rows, 2)).astype(np.float32),
        "reward": random.normal(size=rows).astype(np.float32),
        "next_obs": next_obs,
        "terminal": terminal,
        "timeout": timeout,
        "action_low": np.full(2, -1, np.float32),
        "action_high": np.full(2, 1, np.float32),
    }


def clean_d4rl(rows: int = 60, seed: int = 0) -> dict[str, Any]:
    """The same data under the names that files use."""
    fields = clean_fields(rows, seed)
    return {
        "observations": fields["obs"],
        "actions": fields["action"],
        "rewards": fields["reward"],
        "next_observations": fields["next_obs"],
        "terminals": fields["terminal"],
        "timeouts": fields["timeout"],
        "action_low": fields["action_low"],
        "action_high": fields["action_high"],
    }


def _floats(*shape: int) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.float32, shape, elements=st.floats(-1e3, 1e3, width=32))


def _flags(rows: int) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(bool, (rows,))


@st.composite
def datasets(draw: st.DrawFn, gaps: bool = False) -> Dataset:
    """`gaps`: some terminal rows may lack their next state."""
    rows, obs_dim, action_dim = draw(st.integers(1, 12)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    low = draw(_floats(action_dim))
    terminal = draw(_flags(rows))
    return Dataset(
        obs=draw(_floats(rows, obs_dim)),
        action=draw(_floats(rows, action_dim)),
        reward=draw(_floats(rows)),
        next_obs=draw(_floats(rows, obs_dim)),
        terminal=terminal,
        timeout=draw(_flags(rows)),
        action_low=low,
        action_high=low + 1,
        name=draw(st.sampled_from(["dataset", "logs of May"])),
        task=draw(st.sampled_from([None, "liquidation"])),
        next_known=draw(_flags(rows)) | ~terminal if gaps else None,  # pyright: ignore[reportArgumentType]
    )
