"""The pool of models: fitted once per dataset, settings and seed, then cached and shared by all runs."""

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

RECIPE = 1  # version of the fit, see pspo.core.cache


class Pool(NamedTuple):
    models: Ensemble
    holdout_nll: Array  # (M,): per transition and target


def load_or_fit_pool(
    dataset: Dataset, norm: Normaliser, config: ModelConfig, run_seed: int, progress: Callable[..., None]
) -> tuple[Pool, dict[str, Any]]:
    """The pool, and its quality for the report: hold-out likelihood, calibration, k-step error."""
    seed = pool_seed(config, run_seed)
    key = content_key("pool", RECIPE, dataset, norm, dataclasses.replace(config, seed=0), seed)

    def make() -> tuple[Pool, dict[str, Any]]:
        models, record = fit(dataset, norm, config, seed, progress)
        quality = model_quality(dataset, norm, models, dataset.split(config.holdout, seed)[1])
        curve = [[step, round(loss, 5), round(nll, 5)] for step, loss, nll in record.curve]
        return Pool(models, jax.numpy.asarray(record.holdout_nll, "float32")), {
            **quality,
            "steps": record.steps,
            "curve": curve,
        }

    pool, metadata, cached = remember(key, lambda: _shapes(dataset, norm, config), make)
    return pool, {**metadata, "key": key, "cached": cached}


class Seeded(Protocol):
    """Settings with a seed."""

    @property
    def seed(self) -> int: ...


def pool_seed(config: Seeded, run_seed: int) -> int:
    """The seed of the models: that of the settings, or that of the run if it is -1."""
    return run_seed if config.seed == -1 else config.seed


def _shapes(dataset: Dataset, norm: Normaliser, config: ModelConfig) -> Pool:
    """Shapes of a pool, without computing anything."""
    scale = np.zeros(dataset.obs_dim + 1, np.float32)
    inputs = norm.features + dataset.action_dim
    shape: dict[str, Any] = {"members": config.pool, "inputs": inputs, "width": config.width, "depth": config.depth}
    shape["layer_norm"] = config.layer_norm
    models = jax.eval_shape(lambda: ensemble(jax.random.PRNGKey(0), **shape, target_mean=scale, target_std=scale))
    return Pool(models, jax.ShapeDtypeStruct((config.pool,), "float32"))  # pyright: ignore[reportArgumentType]
