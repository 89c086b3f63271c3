"""What an OPE estimator is given, and what it has to offer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from pspo.core.progress import Progress, silent
from pspo.evaluation.config import EvaluationConfig
from pspo.evaluation.density import Density, fitted_behaviour, log_ratios
from pspo.evaluation.fitted_critics import FittedQ, fit_q
from pspo.evaluation.models_and_critics import (
    ModelsAndCritics,
    fitted_models_and_critics,
    own_models_and_critics,
    trained_pspo,
)
from pspo.evaluation.ope.return_estimate import ReturnEstimate
from pspo.evaluation.problem import EvaluationProblem
from pspo.runs.directory import Run


@dataclass
class EstimatorInputs:
    """The problem, and what several estimators share: each part is computed once, when it is first used."""

    problem: EvaluationProblem
    config: EvaluationConfig
    run: Run | None = None
    confidence: float = 0.9
    behaviour: Density | None = None  # where it is known
    progress: Progress = silent

    @cached_property
    def critics(self) -> FittedQ:
        """Of the policy's mode."""
        return fit_q(self.problem, self.config.fitted_q, progress=self.progress)

    @cached_property
    def sampled_critics(self) -> FittedQ:
        """Of the stochastic policy."""
        return fit_q(self.problem, self.config.fitted_q, sampled=True, progress=self.progress)

    @cached_property
    def models_and_critics(self) -> ModelsAndCritics:
        """PSPO's own, where it trained the policy on these data and its checkpoint is there; else fitted ones."""
        trained = trained_pspo(self.run, self.problem.dataset, self.progress) if self.run else None
        if trained:
            return own_models_and_critics(trained)
        return fitted_models_and_critics(self.problem, self.config.pspo, self.critics, self.progress)

    @property
    def behaviour_is_known(self) -> bool:
        """Whether it is given, or logged as propensities."""
        return self.behaviour is not None or self.problem.dataset.propensity is not None

    @cached_property
    def log_ratios(self) -> np.ndarray:
        """(transitions,) log pi(a|s) - log b(a|s); b is fitted to the dataset where it is not known."""
        behaviour = self.behaviour
        if not self.behaviour_is_known:
            behaviour = fitted_behaviour(self.problem, self.config.pspo.reference, self.progress)
        return log_ratios(self.problem, behaviour)


class Estimator(Protocol):
    """A module with these functions."""

    def estimate(self, inputs: EstimatorInputs) -> ReturnEstimate:
        """The mean return over the dataset's first states, with an interval."""
        ...

    def warnings(self, problem: EvaluationProblem) -> list[str]:
        """Why this method should not be trusted on this problem, before any number is known."""
        ...
