"""A finished run back in memory, to inspect what it had learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax

from pspo.algorithms.pspo import algorithm as pspo
from pspo.core import checkpoint
from pspo.core.config import build
from pspo.core.progress import silent
from pspo.data import load_dataset
from pspo.data.batches import DeviceDataset, device_dataset
from pspo.data.dataset import Dataset
from pspo.runs.directory import open_run


class Restored(NamedTuple):
    config: pspo.Config
    setup: pspo.Setup
    state: pspo.State
    device_data: DeviceDataset
    data: Dataset


def restore(run_path: Path, same_pool: bool = True) -> Restored:
    """Configuration, setup, last checkpoint and data. Models come from the cache, which must still hold the run's."""
    run = open_run(run_path)
    description = run.read("config")
    columns: dict[str, Any] | None = description.get("columns")
    config, data = (
        build(pspo.Config, description["settings"]),
        load_dataset(description["dataset"], columns, description.get("task")),
    )
    setup, models = pspo.prepare(config, data, description["seed"], silent)
    if same_pool and models["pool"]["digest"] != run.read("manifest")["models"]["pool"]:
        raise SystemExit(
            f"the cache does not hold the pool of {run_path}: set PSPO_CACHE to the folder that it was trained with."
        )
    device_data = device_dataset(data, setup.norm, config.gamma)
    like = jax.eval_shape(
        lambda device_data, key: pspo.init(config, setup, device_data, key), device_data, jax.random.PRNGKey(0)
    )
    newest = checkpoint.load_newest(run.checkpoints, like, print)
    if newest is None:
        raise SystemExit(f"{run_path} has no checkpoint.")
    return Restored(config, setup, newest[1], device_data, data)
