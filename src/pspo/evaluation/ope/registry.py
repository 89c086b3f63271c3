"""The table of OPE estimators. To add one: write its module (see estimator.py), and add its row here."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pspo.evaluation.ope.estimator import Estimator


class EstimatorInfo(NamedTuple):
    slug: str  # on the command line
    title: str  # in tables and files
    module: str
    needs_density: bool = False  # a stochastic policy is required

    def load(self) -> Estimator:
        module: Any = importlib.import_module(self.module)
        return module


_ROWS = (
    EstimatorInfo("models", "posterior models", "pspo.evaluation.ope.posterior_models"),
    EstimatorInfo("fitted-q", "fitted Q", "pspo.evaluation.ope.fitted_q"),
    EstimatorInfo("importance", "importance sampling", "pspo.evaluation.ope.importance", needs_density=True),
    EstimatorInfo("doubly-robust", "doubly robust", "pspo.evaluation.ope.doubly_robust", needs_density=True),
)

ESTIMATORS = {row.slug: row for row in _ROWS}
"""By slug, in the order of tables."""
