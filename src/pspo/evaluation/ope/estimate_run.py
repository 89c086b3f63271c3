"""`pspo ope RUN`: estimates of a finished run's return on its own dataset or another, kept in the run as ope.json."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pspo.core.compute import keep_compiled_programs
from pspo.core.files import write_json
from pspo.core.progress import NO_REPORT, Reporter
from pspo.data.load import BUILT_IN
from pspo.evaluation.config import EvaluationConfig, evaluation_config
from pspo.evaluation.dataset_return import CONFIDENCE, dataset_return
from pspo.evaluation.density import BEHAVIOURS, Density
from pspo.evaluation.ope.estimate import estimate, require_valid
from pspo.evaluation.ope.estimator import EstimatorInputs
from pspo.evaluation.ope.registry import ESTIMATORS
from pspo.evaluation.ope.return_estimate import ReturnEstimate, contradictions
from pspo.evaluation.problem import EvaluatedReturn, return_to_evaluate
from pspo.evaluation.run_inputs import (
    dataset_of_run,
    finished_run,
    finite,
    problem_of_run,
    read_config,
    training_gamma,
)
from pspo.evaluation.verdict_update import update_verdict

FILE_NAME = "ope"
OLD_NAMES = {"lacking": "unavailable", "logged": "dataset_return", "truth": "simulator_return"}


@dataclass(frozen=True)
class RunEstimates:
    """All estimates of one run's return on one dataset."""

    run: Path
    data: str
    gamma: float
    confidence: float
    horizon: int
    """Steps of an episode: those that count, or the longest that is simulated."""
    estimates: list[ReturnEstimate]
    unavailable: dict[str, str]
    """Methods that give no estimate, and why."""
    dataset_return: float
    """The mean return of the dataset's own episodes, in the same quantity; NaN if they have too few steps for it."""
    simulator_return: float | None
    """The mean return in the simulator, if the run was evaluated in one and the plain sum of rewards is estimated."""
    bounded: bool = False
    """Rewards after `horizon` steps do not count."""
    dataset_low: float = float("-inf")
    dataset_high: float = float("inf")
    """Ends of the 90 % interval of `dataset_return`, whatever the confidence of the estimates."""
    holdout_difference: str = ""
    """That the held-out episodes return more or less than the others, by more than chance; empty if they do not."""
    by_default: bool = False
    """Of the run's own data, with the return and the confidence that are the defaults."""

    @property
    def quantity(self) -> str:
        """What is estimated, in words: the same for all methods and for the dataset's own episodes."""
        return EvaluatedReturn(self.gamma, self.horizon, self.bounded).words

    @property
    def contradictions(self) -> list[tuple[str, str]]:
        """Pairs of methods whose intervals do not overlap: at least one of the two is wrong."""
        return [(one.method, other.method) for one, other in contradictions(self.estimates)]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        estimates = [estimate.as_dict() for estimate in self.estimates]
        pairs = [list(pair) for pair in self.contradictions]
        content = {"run": str(self.run), "estimates": estimates, "contradictions": pairs, "quantity": self.quantity}
        return finite(vars(self) | content)

    @property
    def decides_verdict(self) -> bool:
        """Whether the verdict on the run follows these estimates: those by default, with posterior models among them.

        Of other data, over another horizon or without the models, they answer another question.
        """
        return self.by_default and any(e.method == ESTIMATORS["models"].title for e in self.estimates)

    def write(self) -> None:
        """Into the run directory; where they decide the verdict on the run, that and the report follow them."""
        write_json(self.run / f"{FILE_NAME}.json", self.as_dict())
        if self.decides_verdict:
            update_verdict(self)

    def __getattr__(self, name: str) -> Any:
        """Attributes of version 0.1."""
        if name in OLD_NAMES:
            warnings.warn(f"{name} is now called {OLD_NAMES[name]}", DeprecationWarning, stacklevel=2)
            return getattr(self, OLD_NAMES[name])
        raise AttributeError(f"'RunEstimates' object has no attribute '{name}'")


def estimate_return(
    run: str | Path,
    dataset: Any = None,
    *,
    gamma: float | None = None,
    horizon: int | None = None,
    confidence: float = 0.9,
    methods: Collection[str] = tuple(ESTIMATORS),
    behaviour: Density | None = None,
    config: EvaluationConfig | None = None,
    reporter: Reporter = NO_REPORT,
) -> RunEstimates:
    """Estimate the return of a run's policy from the dataset it was trained on, or from `dataset`.

    Nothing is simulated and nothing is written. `horizon` is the number of steps whose rewards count, and `gamma` their
    discount. By default that is the plain sum of rewards until the episode ends, where episodes end in terminal states;
    over the length of the episodes, where all were cut at the same; and otherwise the return discounted as in training.
    All methods estimate the same, and `quantity` says what. `methods` are keys of `pspo.evaluation.ope.ESTIMATORS`.
    `behaviour` is the density that the dataset's actions were drawn from, a function of raw states and actions in
    [-1, 1] that returns log densities; by default the dataset's propensities are used, and that of built-in data is
    known. `config` holds the settings of the models and critics behind the estimates. A run with a hold-out is
    evaluated on that part. `reporter` receives progress and messages.
    """
    require_valid(methods, confidence)
    opened = finished_run(run)
    keep_compiled_programs()
    run_config = read_config(opened)
    data = dataset_of_run(opened, dataset, reporter.progress, part="holdout")
    config = config or evaluation_config(data, run_config["preset"])
    trained_with = training_gamma(opened, run_config)
    evaluated = return_to_evaluate(data, trained_with, gamma, horizon)
    problem = problem_of_run(opened, data, evaluated, config)
    held_out = "held-out " if dataset is None and opened.holdout else ""
    reporter.message(f"evaluating on {data.size:,} {held_out}transitions of '{data.name}': {evaluated.words}")
    known = behaviour
    if known is None and data.propensity is None:
        known = _known_behaviour(run_config["dataset"] if dataset is None else dataset)
    inputs = EstimatorInputs(problem, config, opened, confidence, known, reporter.progress)
    estimates, unavailable = estimate(inputs, methods)
    of_data = dataset_return(data, evaluated)
    return RunEstimates(
        run=opened.path,
        data=data.name,
        gamma=problem.gamma,
        confidence=confidence,
        horizon=problem.horizon,
        estimates=estimates,
        unavailable=unavailable,
        dataset_return=of_data.value,
        simulator_return=opened.result.get("return_mean") if _as_in_the_simulator(evaluated, horizon) else None,
        bounded=problem.bounded,
        dataset_low=of_data.low,
        dataset_high=of_data.high,
        holdout_difference=opened.read("manifest").get("holdout_difference", "") if held_out else "",
        by_default=dataset is None and confidence == CONFIDENCE and evaluated == return_to_evaluate(data, trained_with),
    )


def judge_run(
    place: str | Path, dataset: Any = None, gamma: float | None = None, confidence: float = 0.9, **options: Any
) -> RunEstimates:
    """The name of `estimate_return` in version 0.1."""
    warnings.warn("judge_run is now called estimate_return", DeprecationWarning, stacklevel=2)
    if "recipe" in options:
        options["config"] = options.pop("recipe")
    names = {"progress": "progress", "say": "message"}
    if reporting := {new: options.pop(old) for old, new in names.items() if old in options}:
        options["reporter"] = replace(NO_REPORT, **reporting)
    return estimate_return(place, dataset, gamma=gamma, confidence=confidence, **options)


def _as_in_the_simulator(evaluated: EvaluatedReturn, horizon: int | None) -> bool:
    """Its episodes are not discounted, and as long as those of the dataset."""
    return evaluated.gamma == 1.0 and horizon is None


def _known_behaviour(source: Any) -> Density | None:
    """Of built-in data only: a file of the same name may hold anything."""
    return BEHAVIOURS.get(source) if isinstance(source, str) and source in BUILT_IN else None
