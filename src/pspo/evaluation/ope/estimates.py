"""One estimate of a policy's return, and the interval that it deserves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import scipy.stats


@dataclass(frozen=True)
class Estimate:
    """Of the mean return over the log's first states, in the log's own units."""

    method: str
    value: float
    low: float
    high: float
    judges: str
    """The policy as it acts (mode), or with its noise (sampled)."""
    numbers: dict[str, float] = field(default_factory=dict)
    """What the estimate is made of."""
    warnings: list[str] = field(default_factory=list)
    """Why it should not be trusted; empty where nothing speaks against it."""

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it, but for numbers that are not finite."""
        return asdict(self)


def contradictions(estimates: Sequence[Estimate]) -> Iterator[tuple[Estimate, Estimate]]:
    """Pairs that nothing else speaks against, that judge the same and cannot both hold: their intervals do not meet."""
    for one, other in combinations([estimate for estimate in estimates if not estimate.warnings], 2):
        if one.judges == other.judges and (one.high < other.low or other.high < one.low):
            yield one, other


def student(confidence: float, degrees: float) -> float:
    """Half the width of a central interval, in standard deviations; without degrees of freedom there is no end."""
    return float(scipy.stats.t.ppf(0.5 + 0.5 * confidence, degrees)) if degrees > 0 else float("inf")


def effective(weight: np.ndarray) -> float:
    """Kish's effective number: as many equal weights would vary as much. NaN where there is no weight at all."""
    squares = float(np.square(weight).sum())
    return float(weight.sum()) ** 2 / squares if squares else float("nan")


def weighted_quantiles(values: np.ndarray, weight: np.ndarray, levels: Sequence[float]) -> list[float]:
    """The least value with at least such a share of the weight at or below it; NaN where any value is NaN."""
    if not np.isfinite(values).all():
        return [float("nan")] * len(levels)
    order = np.argsort(values)
    share = np.cumsum(weight[order]) / weight.sum()
    places = np.minimum(np.searchsorted(share, np.asarray(levels) - 1e-12), len(values) - 1)
    return values[order][places].tolist()
