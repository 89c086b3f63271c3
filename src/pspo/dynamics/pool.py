"""The pool of models, fitted once per data, recipe and seed, and shared by every run that asks for the same."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np
from jax import Array

from pspo.core.cache import content_key, remember
from pspo.data.dataset import Dataset
from pspo.data.normalise import Normaliser
from pspo.dynamics.ensemble import Ensemble, ensemble
from pspo.dynamics.fit import ModelConfig, fit
from pspo.dynamics.quality import model_quality

RECIPE = 1


class Pool(NamedTuple):
    models: Ensemble
    holdout_nll: Array  # (M,): per row and target


def load_or_fit_pool(
    dataset: Dataset, norm: Normaliser, config: ModelConfig, run_seed: int, progress: Callable[..., None]
) -> tuple[Pool, dict[str, Any]]:
    """The pool, and what the report says about it: hold-out likelihood, calibration, k-step error."""
    seed = pool_seed(config, run_seed)
    key = content_key("pool", RECIPE, dataset, norm, dataclasses.replace(config, seed=0), seed)

    def make() -> tuple[Pool, dict[str, Any]]:
        models, record = fit(dataset, norm, config, seed, progress)
        quality = model_quality(dataset, norm, models, dataset.split(config.holdout, seed)[1])
        curve = [[step, round(loss, 5), round(held, 5)] for step, loss, held in record.curve]
        return Pool(models, jax.numpy.asarray(record.holdout_nll, "float32")), {
            **quality,
            "steps": record.steps,
            "curve": curve,
        }

    pool, facts, cached = remember(key, lambda: _shapes(dataset, norm, config), make)
    return pool, {**facts, "key": key, "cached": cached}


class Seeded(Protocol):
    @property
    def seed(self) -> int: ...


def pool_seed(config: Seeded, run_seed: int) -> int:
    """The models' own seed, which all runs share, or the run's."""
    return run_seed if config.seed == -1 else config.seed


def _shapes(dataset: Dataset, norm: Normaliser, config: ModelConfig) -> Pool:
    """Shapes of a pool, without computing anything."""
    scale = np.zeros(dataset.obs_dim + 1, np.float32)
    inputs = norm.features + dataset.action_dim
    models = jax.eval_shape(
        lambda: ensemble(jax.random.PRNGKey(0), config.pool, inputs, config.width, config.depth, scale, scale)
    )
    return Pool(models, jax.ShapeDtypeStruct((config.pool,), "float32"))  # pyright: ignore[reportArgumentType]
