"""What the training loop asks of an algorithm. An algorithm is a module of functions; this is its type.

The loop calls, in this order:

    setup, info = prepare(config, dataset, seed, progress)            once: fit or load models, normalisers
    state = init(config, setup, data, key)                            once: networks and optimiser states
    for every chunk:
        state, context, metrics = begin_chunk(config, setup, data, state)
        for every iteration of the chunk:
            batch = draw(config, data, key)
            state, metrics = update(config, setup, context, state, batch, key)
    policies(state)["policy"]                                         evaluated, saved, exported

`init`, `begin_chunk`, `draw` and `update` are pure and compiled together; `state` is everything that resuming needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # `pspo list` reads the registry and imports nothing heavy
    from jax import Array

    from pspo.core.progress import Progress
    from pspo.data.batches import DeviceDataset
    from pspo.data.dataset import Dataset
    from pspo.data.normalise import Normaliser


class SetupLike(Protocol):
    """What `prepare` returns: a NamedTuple with at least these fields. `arrays` is passed to compiled programs as an
    argument, everything else is a constant of the program."""

    @property
    def arrays(self) -> Any: ...

    @property
    def norm(self) -> Normaliser: ...

    def _replace(self, **changes: Any) -> Any: ...


class Algorithm(Protocol):
    """Module-level names of an algorithm."""

    Config: type
    """Frozen dataclass of settings, with at least the fields of `LoopConfig`; the string under a field is its help."""

    HEADLINE: tuple[str, ...]
    """Metrics shown in the progress display, the most telling first."""

    def prepare(self, config: Any, dataset: Dataset, seed: int, progress: Progress) -> tuple[SetupLike, dict[str, Any]]:
        """The fixed setup of a run, and what to report about it (written to models.json)."""
        ...

    def init(self, config: Any, setup: Any, data: DeviceDataset, key: Array) -> Any:
        """The first state."""
        ...

    def begin_chunk(
        self, config: Any, setup: Any, data: DeviceDataset, state: Any
    ) -> tuple[Any, Any, dict[str, Array]]:
        """The state, what the updates of this chunk share (`context`), and metrics of the chunk.

        Draws the active models, rolls out into a buffer, or does nothing (`common.model_free.begin_chunk`).
        """
        ...

    def draw(self, config: Any, data: DeviceDataset, key: Array) -> Any:
        """The batch of one iteration."""
        ...

    def update(
        self, config: Any, setup: Any, context: Any, state: Any, batch: Any, key: Array
    ) -> tuple[Any, dict[str, Array]]:
        """One iteration: the next state and its metrics."""
        ...

    def policies(self, state: Any) -> dict[str, Any]:
        """Networks by name. "policy" is the one that is evaluated and saved; others are evaluated beside it."""
        ...


@dataclass(frozen=True)
class Extras:
    """Module-level names that an algorithm may define as well, and what holds without them."""

    UNUSED_IF_DISCRETE: tuple[str, ...] = ()
    """Settings that have no effect on discrete actions: given by hand there, they are refused."""

    DISCRETE: bool = False
    """The module also learns discrete actions. A built-in algorithm has this in its row of the registry."""

    FROM_FILE: bool = False
    """The module learns from batches alone: `prepare` keeps no array with a row per transition, `init`, `begin_chunk`
    and `update` read none, `draw` returns rows as `sample_transitions` picks them, and `update` keeps the key of the
    state and adds one to its step. Transitions that do not fit into memory then stay in their file. A built-in
    algorithm has this in its row of the registry."""

    PRESETS: dict[str, Any] = field(default_factory=dict)
    """Settings by preset and task. A built-in algorithm has a file in presets/."""

    CAUTION: dict[str, int] = field(default_factory=dict)
    """Settings that `--caution` changes (caution.py). A built-in algorithm has this in its row of the registry."""


class Diagnostics(Protocol):
    """Optional companion module: figures and estimates that need a look inside the trained state."""

    METRIC_BOUNDS: dict[str, tuple[float, float]]
    """Lowest and highest value of metrics that the algorithm clips: the report says when one ends at a bound."""

    def make_model_return(self, config: Any, setup: Any, dataset: Dataset) -> Any:
        """(state, arrays) -> the model-estimated return of the present policy."""
        ...

    def model_episode_size(self, dataset: Dataset) -> tuple[int, int]:
        """Episodes and steps of that estimate."""
        ...

    def diagnose(
        self, config: Any, setup: Any, data: DeviceDataset, state: Any
    ) -> tuple[dict[str, Any], dict[str, float]]:
        """Arrays behind the report's figures, and numbers for the result."""
        ...


def extras(module: object) -> Extras:
    """The optional names of a module."""
    names = (option.name for option in fields(Extras))
    return Extras(**{name: getattr(module, name) for name in names if hasattr(module, name)})


def missing_names(module: object) -> list[str]:
    """Names of the contract that a module lacks."""
    members = getattr(Algorithm, "__protocol_attrs__", None) or {
        name for name in (*Algorithm.__annotations__, *vars(Algorithm)) if not name.startswith("_")
    }
    return sorted(name for name in members if getattr(module, name, None) is None)
