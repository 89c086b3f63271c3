"""A finished run back in memory, for a look at what it had learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax

from pspo import checkpoint
from pspo.algorithms import pspo
from pspo.config import build
from pspo.data import load_dataset
from pspo.data.batches import Log, device_log
from pspo.data.dataset import Dataset
from pspo.display import silent
from pspo.runs import open_run


class Restored(NamedTuple):
    config: pspo.Config
    parts: pspo.Parts
    state: pspo.State
    log: Log
    data: Dataset


def restore(run_path: Path, same_pool: bool = True) -> Restored:
    """Configuration, parts, last checkpoint and data. Models come from the cache, which must still hold the run's."""
    run = open_run(run_path)
    facts = run.read("config")
    columns: dict[str, Any] | None = facts.get("columns")
    config, data = build(pspo.Config, facts["settings"]), load_dataset(facts["dataset"], columns, facts.get("task"))
    parts, models = pspo.prepare(config, data, facts["seed"], silent)
    if same_pool and models["pool"]["digest"] != run.read("manifest")["models"]["pool"]:
        raise SystemExit(
            f"the cache does not hold the pool of {run_path}: set PSPO_CACHE to where it was trained with."
        )
    log = device_log(data, parts.norm, config.gamma)
    like = jax.eval_shape(lambda log, key: pspo.init(config, parts, log, key), log, jax.random.PRNGKey(0))
    found = checkpoint.load_newest(run.checkpoints, like, print)
    if found is None:
        raise SystemExit(f"{run_path} has no checkpoint.")
    return Restored(config, parts, found[1], log, data)
