"""Settings that algorithms share: what the loop reads, and what learning from the log's rows alone takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pspo.core.config import Bounds


@dataclass(frozen=True)
class LoopConfig:
    """What training.py reads of every algorithm."""

    gamma: Annotated[float, Bounds(0.0, 1.0)] = 0.99
    """Discount factor."""
    steps: Annotated[int, Bounds(1, 1_000_000_000)] = 5000
    """Iterations."""
    chunk: Annotated[int, Bounds(1, 1_000_000)] = 250
    """Iterations per compiled chunk: log lines and checkpoints happen between chunks."""
    evaluate_every: Annotated[int, Bounds(1, 1_000_000_000)] = 1000
    """Iterations between two looks at the return (at the end of a chunk)."""
    evaluate_episodes: Annotated[int, Bounds(1, 10_000_000)] = 5000
    """Simulated episodes of such a look; the final judgement has its own number."""


@dataclass(frozen=True)
class BatchConfig(LoopConfig):
    """What every algorithm without models has."""

    batch: Annotated[int, Bounds(1, 65536)] = 256
    """Rows per iteration."""
    width: Annotated[int, Bounds(4, 4096)] = 256
    """Units in a hidden layer."""
    depth: Annotated[int, Bounds(1, 8)] = 2
    """Hidden layers."""
    states: Literal["raw", "zscore", "features"] = "features"
    """What networks see: states as they are, standardised, or standardised with counters spread out (as PSPO)."""
    rewards: Literal["raw", "range", "std"] = "std"
    """Unit of rewards: as they are, a thousandth of the range of episodes' returns, or the standard deviation of returns-to-go."""
