"""Settings that algorithms share: those of the training loop, and those of learning from batches of transitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pspo.core.config import Bounds


@dataclass(frozen=True)
class LoopConfig:
    """What the training loop reads of every algorithm."""

    gamma: Annotated[float, Bounds(0.0, 1.0)] = 0.99
    """Discount factor."""
    steps: Annotated[int, Bounds(1, 1_000_000_000)] = 5000
    """Iterations."""
    chunk: Annotated[int, Bounds(1, 1_000_000)] = 250
    """Iterations per compiled chunk; metrics and checkpoints are written between chunks."""
    evaluate_every: Annotated[int, Bounds(1, 1_000_000_000)] = 1000
    """Iterations between evaluations (at the end of a chunk)."""
    evaluate_episodes: Annotated[int, Bounds(1, 10_000_000)] = 5000
    """Simulated episodes of such an evaluation; the final evaluation has its own number."""


@dataclass(frozen=True)
class BatchConfig(LoopConfig):
    """What algorithms that learn from batches of transitions have."""

    batch: Annotated[int, Bounds(1, 65536)] = 256
    """Transitions per iteration."""
    width: Annotated[int, Bounds(4, 4096)] = 256
    """Units in a hidden layer."""
    depth: Annotated[int, Bounds(1, 8)] = 2
    """Hidden layers."""
    states: Literal["raw", "zscore", "features"] = "features"
    """What networks see: states as they are, standardised, or standardised with counters one-hot encoded (as PSPO)."""
    rewards: Literal["raw", "range", "std"] = "std"
    """Unit of rewards: as they are, a thousandth of the range of episode returns, or the std of returns-to-go."""
