"""`OfflinePolicyLearner(...).fit(data).predict(data)`: training with the habits of scikit-learn, which is not needed.

Parameters are stored as they are given and checked by `fit`; what `fit` has learned ends in an underscore.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pspo.core.errors import UserError, unknown_name
from pspo.core.masked_arrays import without_mask
from pspo.data.column_order import in_order_of
from pspo.data.columns import Columns
from pspo.data.dataset import Dataset
from pspo.data.encode_arrays import require_same
from pspo.policies.policy import Policy
from pspo.runs.directory import Run
from pspo.training.monitor import SILENT, Monitor

OBSERVATIONS = "observations"  # of a dictionary of arrays
ARRAYS = ("rewards", "terminals", "timeouts", "next_observations")


class OfflinePolicyLearner:
    """Learns a policy from logged data: `learner.fit(frame).predict(frame)` gives an action for every row.

    `algo`, `preset`, `caution` and the following are parameters of `pspo.train`; with `verbose`, messages are printed.
    With `holdout=0.2` a fifth of the data is kept apart, as `pspo.train` does, for `pspo.estimate_return`.
    After `fit`, `policy_` is the policy, `run_` the run directory with metrics and report, and `feature_names_in_` and
    `n_features_in_` are the columns of an observation. Bad input raises `UserError`.
    """

    policy_: Policy
    run_: Run
    n_features_in_: int
    feature_names_in_: np.ndarray

    def __init__(
        self,
        algo: str = "pspo",
        *,
        preset: str = "laptop",
        caution: str = "normal",
        seed: int = 0,
        settings: dict[str, Any] | None = None,
        columns: Columns | Mapping[str, Any] | None = None,
        task: str | None = None,
        out: str | Path | None = None,
        holdout: float | None = None,
        holdout_by: str | None = None,
        verbose: bool = False,
    ) -> None:
        self.algo = algo
        self.preset = preset
        self.caution = caution
        self.seed = seed
        self.settings = settings
        self.columns = columns
        self.task = task
        self.out = out
        self.holdout = holdout
        self.holdout_by = holdout_by
        self.verbose = verbose

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        """Parameters by name, as the signature of the class (also of a subclass) has them."""
        parameters = [*inspect.signature(cls.__init__).parameters.values()][1:]
        return {parameter.name: parameter.default for parameter in parameters}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All parameters by name; `deep` changes nothing, as none of them has parameters."""
        return {name: getattr(self, name) for name in self._defaults()}

    def set_params(self, **params: Any) -> OfflinePolicyLearner:
        """Change parameters by name; returns the learner itself."""
        known = self._defaults()
        for name in params:
            if name not in known:
                raise unknown_name("parameter", name, known)
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        """One line: the parameters that differ from their defaults."""
        changed = {name: value for name, value in self.get_params().items() if value != self._defaults()[name]}
        return f"OfflinePolicyLearner({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def fit(self, X: Any, y: Any = None, **arrays: Any) -> OfflinePolicyLearner:
        """Train on logged data; returns the learner itself.

        `X` is what `pspo.load_dataset` takes: a data frame with one row per step, a dictionary of arrays, a path, a
        `Dataset`. Or `X` are observations and `y` the actions, with `rewards` and `terminals` by keyword, and
        `timeouts` and `next_observations` if there are any. The columns of a frame keep their names.
        """
        from pspo.training.train import train

        monitor = Monitor() if self.verbose else SILENT
        options = {name: value for name, value in self.get_params().items() if name not in ("algo", "verbose")}
        data = _training_data(X, y, arrays)
        if isinstance(data, Mapping) and OBSERVATIONS not in data and self.columns is None:
            options["columns"] = Columns()  # a table as a dictionary: recognised by names, like a data frame
        run = train(data, self.algo, **options, monitor=monitor)
        self.run_, self.policy_ = run, run.policy
        self.n_features_in_ = self.policy_.raw_dim
        self.__dict__.pop("feature_names_in_", None)
        if self.policy_.observation_names:
            self.feature_names_in_ = np.array(self.policy_.observation_names, dtype=object)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The policy's action for one observation, or for every row: (rows, action columns), or labels.

        Tables and dictionaries go by the names of columns: others, such as rewards, are ignored, and a missing one is
        refused. Arrays have the columns in the order of training. Discrete actions are labels, one for every row.
        """
        if not hasattr(self, "policy_"):
            raise UserError("this learner has no policy yet: call fit first.")
        if isinstance(X, Dataset):
            return _actions_on(X, self.policy_)
        return self.policy_(_observations(X, self.policy_.observation_names))


def _actions_on(dataset: Dataset, policy: Policy) -> np.ndarray:
    """For every row of a dataset, whose observations are encoded already; its columns go by name, like a table's."""
    require_same(dataset.encoder, policy.encoder, dataset.name)
    obs = in_order_of(dataset, policy.observation_names, (), dataset.action_labels).obs
    return replace(policy, encoder=None, observation_names=())(obs)


def _training_data(X: Any, y: Any, arrays: dict[str, Any]) -> Any:
    for name in arrays:
        if name not in ARRAYS:
            raise unknown_name("array", name, ARRAYS)
    if y is None and not arrays:
        return {name: X[name] for name in X.dtype.names} if _is_structured(X) else X
    missing = [name for name, array in {"y": y, **{n: arrays.get(n) for n in ARRAYS[:2]}}.items() if array is None]
    if missing:
        raise UserError(
            f"{' and '.join(missing)} missing: give observations and actions with rewards and terminals, "
            "fit(X, y, rewards=..., terminals=...), or one table with all columns."
        )
    names = _column_names(X)
    obs = X if names is None else np.stack([np.asarray(without_mask(X[name])) for name in names], axis=-1)
    actions, action_names = np.asarray(without_mask(y)), _column_names(y)
    given = {OBSERVATIONS: np.asarray(without_mask(obs)), "actions": actions[:, None] if actions.ndim == 1 else actions}
    given |= {name: np.asarray(without_mask(array)) for name, array in arrays.items() if array is not None}
    return given | {key: [*n] for key, n in (("obs_names", names), ("action_names", action_names)) if n is not None}


def _observations(X: Any, names: Sequence[str]) -> Any:
    """The observation columns of `X` where it has names; otherwise `X` as it is."""
    if isinstance(X, Mapping) and OBSERVATIONS in X and OBSERVATIONS not in names:
        return X[OBSERVATIONS]
    if isinstance(X, list | tuple):
        return [{name: row[name] for name in names if name in row} if isinstance(row, Mapping) else row for row in X]
    given = _column_names(X)
    if given is None or not set(names) & set(given):
        return X
    return {name: X[name] for name in names if name in given}


def _column_names(table: Any) -> list[str] | None:
    """Of a dictionary, a data frame or a structured array; None where columns have no names."""
    if isinstance(table, Mapping):
        return [*table]
    if _is_structured(table):
        return [*table.dtype.names]
    names = getattr(table, "column_names", getattr(table, "columns", None))  # Arrow's `columns` are the values
    return None if names is None or not all(isinstance(name, str) for name in names) else [*names]


def _is_structured(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.names is not None
