"""How much work an evaluation takes: the settings of the models and critics that evaluate a policy."""

from __future__ import annotations

from dataclasses import dataclass

from pspo.algorithms.pspo.config import Config
from pspo.algorithms.registry import preset
from pspo.core.config import build
from pspo.data.dataset import Dataset
from pspo.evaluation.fitted_critics import FittedQConfig

SMOKE = FittedQConfig(critics=3, width=16, steps=200, batch=64)


@dataclass(frozen=True)
class EvaluationConfig:
    pspo: Config
    """Settings of the model pool and of its posterior. They are PSPO's, whichever algorithm trained the policy: other
    algorithms' models are looser, and a policy exploits the errors of those it was trained with. All policies are
    evaluated on the same models."""
    fitted_q: FittedQConfig


def evaluation_config(dataset: Dataset, training_preset: str = "laptop") -> EvaluationConfig:
    """A run of the smoke preset is evaluated in seconds, every other one in minutes."""
    size = "smoke" if training_preset == "smoke" else "laptop"
    config = build(Config, preset("pspo", size, dataset.task, dataset.name, dataset.discrete))
    return EvaluationConfig(config, SMOKE if size == "smoke" else FittedQConfig())
