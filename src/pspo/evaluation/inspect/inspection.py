"""`pspo inspect RUN`: everything there is to say of the policy in one state, from loading to the verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pspo.core.compute import keep_compiled_programs
from pspo.core.progress import Progress, silent
from pspo.evaluation.inspect.acts import Act, act_in, choose
from pspo.evaluation.inspect.beliefs import Beliefs, beliefs_at
from pspo.evaluation.inspect.doubt import Doubt, doubt_at
from pspo.evaluation.inspect.judges import find_judges
from pspo.evaluation.inspect.place import Place, compared_rows, place_in
from pspo.evaluation.inspect.question import Logged, ask, figure_name, logged_at
from pspo.evaluation.inspect.values import Values, values_in
from pspo.evaluation.inspect.verdict import verdict
from pspo.evaluation.ope.of_run import data_of_run, discount_of_run, finished_run, finite
from pspo.evaluation.ope.recipe import Recipe, recipe_for
from pspo.evaluation.ope.subject import make_subject
from pspo.policies.policy import load_policy
from pspo.runs.directory import Run

OWN = "the critics, the reference and the models that the policy was trained with"
FITTED = "critics of this policy, a behaviour density and models that were fitted to the log"


SHORT_STATE = 5  # columns: longer ones are not named by their numbers


class Inspection(NamedTuple):
    run: str
    algo: str
    data: str  # the log that judges
    judged_by: str
    row: int | None
    row_of: str | None  # the log that the row is of
    logged: Logged | None
    place: Place
    act: Act
    values: Values
    beliefs: Beliefs
    doubt: Doubt
    verdict: list[str]
    nearby_actions: np.ndarray
    """(neighbours, action_dim): what the log did in the nearest states, raw."""
    figure_name: str
    """A name for its figure that no other state has."""

    @property
    def title(self) -> str:
        if self.row is not None:
            return f"row {self.row} of {self.row_of}"
        values = [f"{column.value:.4g}" for column in self.place.columns]
        return f"state {', '.join(values)}" if len(values) <= SHORT_STATE else f"a state of {len(values)} columns"

    def as_dict(self) -> dict[str, Any]:
        """As JSON has it: what is not a finite number is null."""
        found = _plain(self)
        found.pop("figure_name")
        found["act"]["log_ratio"] = self.act.log_ratio
        for column, place in zip(found["place"]["columns"], self.place.columns, strict=True):
            column["outside"] = place.outside
        for curve, line in zip(found["values"]["curves"], self.values.curves, strict=True):
            curve["share_alike"] = line.share_alike
        return finite(found)


def inspect_policy(
    run: str | Path,
    state: Any = None,
    row: int | None = None,
    dataset: Any = None,
    progress: Progress = silent,
    say: Callable[[str], None] = lambda text: None,
    recipe: Recipe | None = None,
) -> Inspection:
    """What the policy of a finished run does in one state, and why; nothing is simulated, nothing written.

    `state` is a raw observation, its columns in the log's order; `row` is instead a row of the run's log, or of
    `dataset`, another one with the same columns. What is large or far is told by the log that the run was trained on.
    """
    opened = finished_run(run)
    keep_compiled_programs()
    facts = opened.read("config", "algo", "dataset", "preset", "seed", "settings")
    data = data_of_run(opened, facts, None, progress)
    other = None if dataset is None else data_of_run(opened, facts, dataset, progress)
    question = ask(data, other, state, row)
    recipe = recipe or recipe_for(data, facts["preset"])
    policy = load_policy(opened.path)
    subject = make_subject(policy, data, None, discount_of_run(opened, facts["settings"]), units=recipe.pspo.gamma)
    compared = data.obs[compared_rows(data)]
    judges = find_judges(subject, opened, recipe, compared, progress)
    say(f"judged by {OWN if judges.own else FITTED}")

    obs, logged = question.obs, logged_at(question, judges.gamma)
    names, action_names = _names(opened, "obs", policy.obs_dim), _names(opened, "action", policy.action_dim)
    chosen = choose(subject, judges, obs)
    place = place_in(data, subject.norm, names, obs)
    act = act_in(subject, judges, action_names, obs, chosen)
    logged_action = None if logged is None else np.asarray(logged.action, np.float32)
    values = values_in(subject, judges, action_names, obs, chosen, logged_action)
    beliefs = beliefs_at(judges, names, obs, chosen.policy, logged)
    doubt = doubt_at(subject, judges, obs, chosen.policy, compared)
    return Inspection(
        run=str(opened.path),
        algo=facts["algo"],
        data=data.name,
        judged_by=OWN if judges.own else FITTED,
        row=question.row,
        row_of=question.of.name if question.of else None,
        logged=logged,
        place=place,
        act=act,
        values=values,
        beliefs=beliefs,
        doubt=doubt,
        verdict=verdict(place, act, values, beliefs, doubt),
        nearby_actions=data.action[place.nearest_rows],
        figure_name=figure_name(question, other is not None),
    )


def _names(run: Run, role: str, columns: int) -> list[str]:
    """Those that the run's data had; else the role, numbered where there are several."""
    return run.column_names(role) or ([role] if columns == 1 else [f"{role} {i}" for i in range(columns)])


def _plain(value: Any) -> Any:
    """Named tuples as dictionaries, arrays as lists."""
    if hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value
