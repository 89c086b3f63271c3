"""`pspo select RUNS...`: policies ranked without a simulator, and how well that went where there is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from pspo.core.errors import UserError
from pspo.evaluation.ope.of_run import Judgement, finished_run


@dataclass(frozen=True)
class Ranking:
    """By one method: best first."""

    method: str
    cautious: bool
    order: list[int]
    """Numbers of the judgements."""
    value: list[float]
    low: list[float]
    rank_correlation: float | None
    """Spearman's, of what ranks and truth; None where there is no truth, or fewer than three policies."""
    regret: float | None
    """Return given up by taking the first instead of the truly best."""
    regret_of_random: float | None
    """The same for a policy taken blindly, on average."""

    def as_dict(self) -> dict[str, Any]:
        """All of it, by name."""
        return dict(vars(self))


def judge_runs(places: Sequence[str | Path], judged_by: Callable[[str | Path], Judgement]) -> list[Judgement]:
    """Each by itself, once it is clear that all can be judged and compared: a judgement takes a minute or more."""
    hashes = {finished_run(place).read("manifest", "data_hash")["data_hash"] for place in places}
    if len(hashes) > 1:
        raise UserError("the runs were trained on different data: returns by different logs do not compare.")
    return [judged_by(place) for place in places]


def rank(judgements: Sequence[Judgement], method: str, cautious: bool = False) -> Ranking:
    """By the estimates of one method; `cautious` ranks by the lower ends of the intervals."""
    if len({j.gamma for j in judgements}) > 1:
        raise UserError("the runs are judged with different discounts: give one with --gamma.")
    estimates = [next((e for e in j.estimates if e.method == method), None) for j in judgements]
    found = [estimate for estimate in estimates if estimate]
    if len(found) < len(judgements):
        without = judgements[estimates.index(None)]
        raise UserError(f"{without.run} has no estimate by {method}: {without.lacking.get(method, 'choose another.')}")
    value, low = np.array([e.value for e in found]), np.array([e.low for e in found])
    by = low if cautious else value
    order = np.argsort(-by, kind="stable")  # what is not a number comes last
    truth = np.array([np.nan if j.truth is None else j.truth for j in judgements], float)
    known = bool(np.isfinite(truth).all())
    varied = known and len(truth) > 2 and np.ptp(truth) > 0 and np.ptp(by) > 0
    return Ranking(
        method,
        cautious,
        order.tolist(),
        value.tolist(),
        low.tolist(),
        float(spearmanr(by, truth)[0]) if varied else None,  # pyright: ignore[reportArgumentType]
        float(truth.max() - truth[order[0]]) if known else None,
        float(truth.max() - truth.mean()) if known else None,
    )
