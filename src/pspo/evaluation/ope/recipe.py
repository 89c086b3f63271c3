"""How much work a judgement takes: PSPO's own recipe for models of these data, and critics to match."""

from __future__ import annotations

from dataclasses import dataclass

from pspo.algorithms.pspo.algorithm import Config
from pspo.algorithms.registry import preset
from pspo.core.config import build
from pspo.data.dataset import Dataset
from pspo.evaluation.ope.fitted_q import FittedQConfig

SMOKE = FittedQConfig(critics=3, width=16, steps=200, batch=64)


@dataclass(frozen=True)
class Recipe:
    pspo: Config
    """Of the models and of how much each is believed, for whoever trained the policy: other algorithms' models are
    looser, and a policy has had its way with its own. One recipe for all, so that all meet the same models."""
    fitted_q: FittedQConfig


def recipe_for(data: Dataset, trained_by: str = "laptop") -> Recipe:
    """`trained_by` is the preset of the run: one of seconds is judged in seconds, all others by minutes of work."""
    size = "smoke" if trained_by == "smoke" else "laptop"
    config = build(Config, preset("pspo", size, data.task, data.name))
    return Recipe(config, SMOKE if size == "smoke" else FittedQConfig())
