"""PSPO as it stood when its run ended: the critics, the reference and the models that its policy was trained with."""

from __future__ import annotations

from typing import NamedTuple

import jax

from pspo import checkpoint
from pspo.algorithms import pspo
from pspo.config import build
from pspo.data.batches import device_log
from pspo.data.dataset import Dataset
from pspo.display import Progress
from pspo.runs import Run


class Trained(NamedTuple):
    config: pspo.Config
    parts: pspo.Parts
    state: pspo.State


def last_state(run: Run, data: Dataset, progress: Progress) -> Trained | None:
    """None where it is no run of PSPO, was trained on other data, or keeps no state."""
    facts = run.read("config", "algo", "seed", "settings")
    if facts["algo"] != "pspo" or run.read("manifest", "data_hash")["data_hash"] != data.hash:
        return None
    config = build(pspo.Config, facts["settings"])
    parts, _ = pspo.prepare(config, data, facts["seed"], progress)
    log = device_log(data, parts.norm, config.gamma)
    shapes = jax.eval_shape(lambda log, key: pspo.init(config, parts, log, key), log, jax.random.PRNGKey(0))
    found = checkpoint.load_newest(run.checkpoints, shapes, lambda text: None)
    return None if found is None else Trained(config, parts, found[1])
