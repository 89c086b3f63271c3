"""PSPO as it stood when its run ended: the critics, the reference and the models that its policy was trained with."""

from __future__ import annotations

from typing import NamedTuple

import jax

from pspo.algorithms.pspo import algorithm as pspo
from pspo.core import checkpoint
from pspo.core.config import build
from pspo.core.progress import Progress
from pspo.data.batches import device_dataset
from pspo.data.dataset import Dataset
from pspo.runs.directory import Run


class Trained(NamedTuple):
    config: pspo.Config
    setup: pspo.Setup
    state: pspo.State


def last_state(run: Run, data: Dataset, progress: Progress) -> Trained | None:
    """None where it is no run of PSPO, was trained on other data, or keeps no state."""
    facts = run.read("config", "algo", "seed", "settings")
    if facts["algo"] != "pspo" or run.read("manifest", "data_hash")["data_hash"] != data.hash:
        return None
    config = build(pspo.Config, facts["settings"])
    setup, _ = pspo.prepare(config, data, facts["seed"], progress)
    device_data = device_dataset(data, setup.norm, config.gamma)
    shapes = jax.eval_shape(
        lambda device_data, key: pspo.init(config, setup, device_data, key), device_data, jax.random.PRNGKey(0)
    )
    found = checkpoint.load_newest(run.checkpoints, shapes, lambda text: None)
    return None if found is None else Trained(config, setup, found[1])
