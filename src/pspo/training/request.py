"""A training run as plain data: what `train` takes, in a form that can be written down and sent to another process."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pspo.core.errors import UserError
from pspo.data.columns import as_columns
from pspo.data.load import source_text

if TYPE_CHECKING:
    from pspo.runs.directory import Run
    from pspo.training.monitor import Monitor

SINCE_0_1: dict[str, Any] = {"caution": "normal", "holdout": None, "holdout_by": None}
"""Fields that version 0.1 did not know, with their defaults."""


AFTER_LAST_SEED, MOST_SEEDS = 2**31, 10_000


def require_seed(seed: int) -> None:
    if not 0 <= seed < AFTER_LAST_SEED:
        raise UserError(f"seed={seed} is out of range: it must be a whole number from 0 to {AFTER_LAST_SEED - 1}.")


def require_seeds(first: int, count: int) -> None:
    """So many seeds from the first on."""
    if count < 1:
        raise UserError(f"--seeds {count} is out of range: at least one is needed.")
    if count > MOST_SEEDS:
        raise UserError(f"--seeds {count} is out of range: at most {MOST_SEEDS} are trained in one call.")
    require_seed(first)
    require_seed(first + count - 1)


@dataclass(frozen=True)
class TrainRequest:
    """What to train on which data. `dataset` is a name or a path: data in memory cannot be sent to another process."""

    dataset: str
    algo: str = "pspo"
    preset: str = "laptop"
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)
    """Changes to single keys of the preset, as in {"alpha": 0.01}."""
    columns: dict[str, Any] | None = None
    """Columns of the user's own file by role, as `load_dataset` takes them."""
    task: str | None = None
    episodes: int | None = None
    """Episodes of the final evaluation; None is the task's own number."""
    caution: str = "normal"
    """"low", "normal" or "high"."""
    holdout: float | None = None
    """Fraction of the data that is kept apart for off-policy evaluation."""
    holdout_by: str | None = None
    """"time" or "episode"."""

    def __post_init__(self) -> None:
        source = source_text(self.dataset)
        if source is None:
            raise UserError("a request needs a dataset by name or path: save data that are in memory to a file first.")
        object.__setattr__(self, "dataset", source)
        columns = {role: list(patterns) for role, patterns in as_columns(self.columns).given().items()}
        object.__setattr__(self, "columns", columns or None)

    def as_dict(self) -> dict[str, Any]:
        """As JSON holds it; what version 0.1 did not know is left out at its default, so that it reads the rest."""
        values = dataclasses.asdict(self)
        return {name: v for name, v in values.items() if not (name in SINCE_0_1 and v == SINCE_0_1[name])}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrainRequest:
        """The inverse of `as_dict`."""
        return cls(**values)

    def train(self, out: str | Path | None, monitor: Monitor) -> Run:
        """Train in this process; returns the finished run."""
        from pspo.training.train import train

        return train(
            self.dataset,
            self.algo,
            preset=self.preset,
            seed=self.seed,
            out=out,
            settings=self.settings,
            episodes=self.episodes,
            columns=self.columns,
            task=self.task,
            caution=self.caution,
            holdout=self.holdout,
            holdout_by=self.holdout_by,
            monitor=monitor,
        )
