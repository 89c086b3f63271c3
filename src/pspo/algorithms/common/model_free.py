"""What algorithms without models share around their updates: normalisation, batches, delayed steps, optimisers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import optax
from jax import Array

from pspo.algorithms.common.discrete import Labels, labels_of
from pspo.algorithms.common.settings import BatchConfig
from pspo.core.progress import Progress
from pspo.data.batches import DeviceDataset, Transitions, sample_transitions
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser, normaliser_in

S = TypeVar("S")


class Setup(NamedTuple):
    """What is fixed during training: no arrays on the device, and the normaliser."""

    arrays: tuple[()]
    norm: Normaliser
    labels: Labels | None = None  # of discrete actions


def prepare(config: BatchConfig, dataset: Dataset, seed: int, progress: Progress) -> tuple[Setup, dict[str, Any]]:
    """The normaliser of this configuration; there is nothing to fit."""
    norm = normaliser_in(dataset, config.states, config.rewards, config.gamma)
    return Setup((), norm, labels_of(dataset, norm)), {}


def draw(config: BatchConfig, data: DeviceDataset, key: Array) -> Transitions:
    """The batch of one iteration."""
    return sample_transitions(data, key, config.batch)


def layer_sizes(config: Any, norm: Normaliser, data: DeviceDataset) -> tuple[int, int, list[int]]:
    """Of the usual networks: inputs of a state, columns of an action, and units of the hidden layers."""
    return norm.features, data.transitions.action.shape[-1], [config.width] * config.depth


def begin_chunk(config: Any, setup: Any, data: DeviceDataset, state: S) -> tuple[S, None, dict[str, Array]]:
    """Nothing happens between chunks."""
    return state, None, {}


def delayed(step: Array, period: int, change: Callable[[S], tuple[S, Array]], state: S) -> tuple[S, Array]:
    """`change` in every `period`-th iteration, counted from one, and its loss; in the others nothing, and zero."""
    if period == 1:
        return change(state)
    return jax.lax.cond((step + 1) % period == 0, change, lambda state: (state, jax.numpy.float32(0.0)), state)


def descend(rule: optax.GradientTransformation, grads: Any, opt: Any, nets: S) -> tuple[S, Any]:
    """One step of an optimiser."""
    changes, opt = rule.update(grads, opt, nets)  # pyright: ignore[reportArgumentType]
    return optax.apply_updates(nets, changes), opt  # pyright: ignore[reportArgumentType, reportReturnType]


def adam_by_part(lrs: Any) -> optax.GradientTransformation:
    """Adam with a learning rate, or a schedule, for each field of a named tuple."""
    names = type(lrs)(*lrs._fields)
    return optax.partition(dict(zip(lrs._fields, map(optax.adam, lrs), strict=True)), names)
