"""One estimate of a policy's return with its interval, and the statistics that intervals are made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import scipy.stats

MODE, SAMPLED = "mode", "sampled"


@dataclass(frozen=True)
class ReturnEstimate:
    """The mean return over the dataset's first states, in the dataset's units."""

    method: str
    value: float
    low: float
    high: float
    actions: str
    """How the evaluated policy acts: by its mode ("mode"), or stochastically ("sampled")."""
    numbers: dict[str, float] = field(default_factory=dict)
    """Details of the method."""
    warnings: list[str] = field(default_factory=list)
    """Why it should not be trusted."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON, except that numbers may be infinite or NaN."""
        return asdict(self)


def contradictions(estimates: Sequence[ReturnEstimate]) -> Iterator[tuple[ReturnEstimate, ReturnEstimate]]:
    """Pairs without warnings, of the same way to act, whose intervals do not overlap: they cannot both be right."""
    for one, other in combinations([estimate for estimate in estimates if not estimate.warnings], 2):
        if one.actions == other.actions and (one.high < other.low or other.high < one.low):
            yield one, other


def t_quantile(confidence: float, degrees: float) -> float:
    """Half-width of a central Student's t interval in standard errors; infinite without degrees of freedom."""
    return float(scipy.stats.t.ppf(0.5 + 0.5 * confidence, degrees)) if degrees > 0 else float("inf")


def effective_size(weight: np.ndarray) -> float:
    """Kish's effective sample size: the number of equal weights with the same variance. NaN if all weights are zero."""
    squares = float(np.square(weight).sum())
    return float(weight.sum()) ** 2 / squares if squares else float("nan")


def weighted_quantiles(values: np.ndarray, weight: np.ndarray, levels: Sequence[float]) -> list[float]:
    """The least value with at least such a share of the weight at or below it; NaN where any value is NaN."""
    if not np.isfinite(values).all():
        return [float("nan")] * len(levels)
    order = np.argsort(values)
    share = np.cumsum(weight[order]) / weight.sum()
    index = np.minimum(np.searchsorted(share, np.asarray(levels) - 1e-12), len(values) - 1)
    return values[order][index].tolist()
