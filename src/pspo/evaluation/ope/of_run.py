"""`pspo ope RUN`: the estimates for a finished run by its own log or by another, kept beside it as ope.json."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pspo.core.compute import keep_compiled_programs
from pspo.core.errors import UserError
from pspo.core.files import write_json
from pspo.core.progress import Progress, silent
from pspo.data.check import require_trainable
from pspo.data.dataset import Dataset
from pspo.data.load import BUILT_IN, is_name, load_dataset
from pspo.evaluation.ope import METHODS
from pspo.evaluation.ope.density import BEHAVIOURS, Density
from pspo.evaluation.ope.estimates import Estimate, contradictions
from pspo.evaluation.ope.importance import mean_logged_return
from pspo.evaluation.ope.judge import judge, require_judgeable
from pspo.evaluation.ope.recipe import Recipe, recipe_for
from pspo.evaluation.ope.subject import make_subject
from pspo.policies.policy import load_policy
from pspo.runs.directory import Run, open_run

FILE_NAME = "ope"


@dataclass(frozen=True)
class Judgement:
    """All estimates of one run by one log."""

    run: Path
    data: str
    gamma: float
    confidence: float
    horizon: int
    estimates: list[Estimate]
    lacking: dict[str, str]
    """Methods that give no estimate, and why."""
    logged: float
    """The mean return of the log's own episodes, discounted in the same way."""
    truth: float | None
    """The mean return in the simulator, where the run was judged in one and returns are not discounted."""

    @property
    def contradictions(self) -> list[tuple[str, str]]:
        """Methods whose intervals do not meet: at least one of each two is wrong, and nobody knows which."""
        return [(one.method, other.method) for one, other in contradictions(self.estimates)]

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        estimates = [estimate.as_dict() for estimate in self.estimates]
        pairs = [list(pair) for pair in self.contradictions]
        return finite(vars(self) | {"run": str(self.run), "estimates": estimates, "contradictions": pairs})

    def write(self) -> None:
        """Beside the run."""
        write_json(self.run / f"{FILE_NAME}.json", self.as_dict())


def judge_run(
    place: str | Path,
    dataset: Any = None,
    gamma: float | None = None,
    confidence: float = 0.9,
    methods: Collection[str] = tuple(METHODS),
    progress: Progress = silent,
    say: Callable[[str], None] = lambda text: None,
    behaviour: Density | None = None,
    recipe: Recipe | None = None,
) -> Judgement:
    """Judge a run's policy by the log it was trained on, or by `dataset`; nothing is simulated, nothing written.

    `gamma` is the discount of the return that is meant: by default 1 where episodes end by themselves, and else the
    one of training. `methods` are keys of `pspo.evaluation.ope.METHODS`. `behaviour` is the density that wrote the log, a function
    from raw states and actions in [-1, 1] to log densities; that of a built-in log is known. `recipe` sets the models
    and critics that judge.
    """
    require_judgeable(methods, confidence)
    run = finished_run(place)
    keep_compiled_programs()
    facts = run.read("config", "algo", "dataset", "preset", "seed", "settings")
    data = data_of_run(run, facts, dataset, progress)
    recipe = recipe or recipe_for(data, facts["preset"])
    policy, trained_with = load_policy(run.path), discount_of_run(run, facts["settings"])
    subject = make_subject(policy, data, gamma, trained_with, units=recipe.pspo.gamma)
    say(f"judging by {data.size:,} transitions of '{data.name}', gamma {subject.gamma:g}")
    known = behaviour or _known_behaviour(facts["dataset"] if dataset is None else dataset)
    estimates, lacking = judge(subject, recipe, run, methods, confidence, known, progress)
    return Judgement(
        run=run.path,
        data=data.name,
        gamma=subject.gamma,
        confidence=confidence,
        horizon=subject.horizon,
        estimates=estimates,
        lacking=lacking,
        logged=mean_logged_return(subject),
        truth=run.result.get("return_mean") if subject.gamma == 1.0 else None,
    )


def finished_run(place: str | Path) -> Run:
    run = open_run(place)
    if not run.finished:
        raise UserError(f"{run.path} is not finished: `pspo resume {run.path}` first.")
    return run


def discount_of_run(run: Run, settings: dict[str, Any]) -> float:
    """What the run was trained with."""
    gamma = settings.get("gamma")
    if not isinstance(gamma, int | float) or not 0 <= gamma <= 1:
        raise UserError(f"the settings in {run.path / 'config.json'} name no discount (gamma is {gamma}): restore it.")
    return float(gamma)


def data_of_run(run: Run, facts: dict[str, Any], dataset: Any, progress: Progress) -> Dataset:
    """The log that judges: another one is read as the run's own was."""
    source = facts["dataset"] if dataset is None else dataset
    by_name = isinstance(source, str) and is_name(source)
    columns = None if by_name or isinstance(source, Dataset) else facts.get("columns")
    data = load_dataset(source, columns, facts.get("task"), progress)
    if dataset is None and data.hash != run.read("manifest", "data_hash")["data_hash"]:
        raise UserError(f"the data of {run.path} have changed since it was trained: restore them, or name others.")
    require_trainable(data)
    return data


def _known_behaviour(source: Any) -> Density | None:
    """Of built-in data alone: a file of the same name may hold anything."""
    return BEHAVIOURS.get(source) if isinstance(source, str) and source in BUILT_IN else None


def finite(value: Any) -> Any:
    """JSON has neither infinity nor NaN: an open interval has no end, and what is not a number is none."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [finite(part) for part in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None
