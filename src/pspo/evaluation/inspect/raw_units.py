"""An inspection's numbers in raw units: what the encoder subtracted is added again."""

from __future__ import annotations

import numpy as np

from pspo.evaluation.inspect.coverage import StateCoverage
from pspo.evaluation.inspect.model_predictions import ModelPredictions, PredictedColumn
from pspo.evaluation.inspect.state_query import LoggedTransition


def raw_coverage(coverage: StateCoverage, offsets: np.ndarray) -> StateCoverage:
    """The columns of the state."""
    shifted = [
        column._replace(value=column.value + o, low=column.low + o, high=column.high + o)
        for column, o in zip(coverage.columns, offsets.tolist(), strict=True)
    ]
    return coverage._replace(columns=shifted)


def raw_predictions(models: ModelPredictions, offsets: np.ndarray) -> ModelPredictions:
    """The columns of the next state; the last one is the reward, which has no offset."""
    columns = [_raw_column(c, o) for c, o in zip(models.columns, [*offsets.tolist(), 0.0], strict=True)]
    members = [m._replace(next_obs=(np.asarray(m.next_obs) + offsets).tolist()) for m in models.members]
    return models._replace(columns=columns, members=members)


def _raw_column(column: PredictedColumn, offset: float) -> PredictedColumn:
    moved = ("now", "expected", "observed", "expected_after_logged")
    values = {name: getattr(column, name) for name in moved}
    return column._replace(**{name: value + offset for name, value in values.items() if value is not None})


def raw_transition(logged: LoggedTransition | None, offsets: np.ndarray) -> LoggedTransition | None:
    """The dataset's record."""
    if logged is None or logged.next_obs is None:
        return logged
    return logged._replace(next_obs=(np.asarray(logged.next_obs) + offsets).tolist())
