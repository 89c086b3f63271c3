"""`pspo inspect RUN`: the policy in one state, from loading to the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pspo.core.compute import keep_compiled_programs
from pspo.core.progress import NO_REPORT, Reporter
from pspo.evaluation.config import EvaluationConfig, evaluation_config
from pspo.evaluation.inspect.action import PolicyAction, action_in, choose_actions
from pspo.evaluation.inspect.action_values import ActionValues, values_of
from pspo.evaluation.inspect.coverage import StateCoverage, compared_transitions, coverage_of
from pspo.evaluation.inspect.dataset_value import Convergence, convergence_of, mean_return_from
from pspo.evaluation.inspect.disagreement import Disagreement, disagreement_at
from pspo.evaluation.inspect.labels import LabelValue, labels_in
from pspo.evaluation.inspect.model_predictions import ModelPredictions, predictions_at
from pspo.evaluation.inspect.networks import Networks, load_networks
from pspo.evaluation.inspect.raw_units import raw_coverage, raw_predictions, raw_transition
from pspo.evaluation.inspect.state_query import LoggedTransition, StateQuery, figure_name, logged_transition, make_query
from pspo.evaluation.inspect.verdict import verdict
from pspo.evaluation.problem import EvaluationProblem, return_without_limit
from pspo.evaluation.run_inputs import (
    dataset_of_run,
    finished_run,
    finite,
    problem_of_run,
    read_config,
    training_gamma,
)
from pspo.runs.directory import Run

OWN = "the critics, the reference policy and the models that it was trained with"
FITTED = "critics, a behaviour density and models fitted to the dataset"
SHORT_STATE = 5  # columns: longer states are not named by their numbers


class Inspection(NamedTuple):
    run: str
    algo: str
    data: str  # the dataset of the run
    evaluated_with: str
    row: int | None
    row_of: str | None  # the dataset of the row
    logged: LoggedTransition | None
    coverage: StateCoverage
    action: PolicyAction
    values: ActionValues
    dataset_return: float | None
    """The dataset's own mean return from the nearest states on, in the unit of Q; None if it shows none."""
    convergence: Convergence
    models: ModelPredictions
    disagreement: Disagreement
    verdict: list[str]
    labels: list[LabelValue] | None
    """Of discrete actions, every label; None where actions are quantities."""
    nearby_actions: np.ndarray
    """(neighbours, action_dim): raw actions of the dataset in the nearest states."""
    figure_name: str
    """A file name that no other state has."""

    @property
    def title(self) -> str:
        if self.row is not None:
            return f"row {self.row} of {self.row_of}"
        values = [f"{column.value:.{column.digits}g}" for column in self.coverage.columns]
        return f"state {', '.join(values)}" if len(values) <= SHORT_STATE else f"a state of {len(values)} columns"

    def as_dict(self) -> dict[str, Any]:
        """For JSON: NaN and infinities are null."""
        content = _plain(self)
        content.pop("figure_name")
        content["action"]["log_ratio"] = self.action.log_ratio
        for column, known in zip(content["coverage"]["columns"], self.coverage.columns, strict=True):
            column["outside"] = known.outside
        for curve, line in zip(content["values"]["curves"], self.values.curves, strict=True):
            curve["indistinguishable_share"] = line.indistinguishable_share
        content["convergence"]["converged"] = self.convergence.converged
        return finite(content)


def inspect_policy(
    run: str | Path,
    state: Any = None,
    row: int | None = None,
    dataset: Any = None,
    *,
    config: EvaluationConfig | None = None,
    reporter: Reporter = NO_REPORT,
) -> Inspection:
    """What the policy of a finished run does in one state, and why; nothing is simulated, nothing written.

    `state` is a raw observation: a dictionary by name, or numbers in the order of the dataset; `row` is instead a row
    of the run's dataset, or of `dataset`, another one with the same columns. Distances and percentiles always refer to
    the run's dataset.
    """
    opened = finished_run(run)
    keep_compiled_programs()
    run_config = read_config(opened)
    data = dataset_of_run(opened, None, reporter.progress)
    other = None if dataset is None else dataset_of_run(opened, dataset, reporter.progress)
    query = make_query(data, other, state, row)
    config = config or evaluation_config(data, run_config["preset"])
    problem = problem_of_run(opened, data, return_without_limit(data, training_gamma(opened, run_config)), config)
    compared = data.obs[compared_transitions(data)]
    networks = load_networks(problem, opened, config, compared, reporter.progress)
    reporter.message(f"evaluating with {_evaluated_with(networks)}")
    return _inspect_state(
        query, problem, networks, run=opened, compared=compared, name=figure_name(query, other is not None)
    )


def _evaluated_with(networks: Networks) -> str:
    return OWN if networks.evaluators.own else FITTED


def _inspect_state(
    query: StateQuery, problem: EvaluationProblem, networks: Networks, *, run: Run, compared: np.ndarray, name: str
) -> Inspection:
    """`compared` are states of the dataset that the state is compared with."""
    data, obs = problem.dataset, query.obs
    logged = logged_transition(query, networks.evaluators.gamma)
    names, action_names = _names(run, "obs", data.obs_dim), _names(run, "action", data.action_dim)
    chosen = choose_actions(problem, networks, obs)
    coverage = coverage_of(data, problem.norm, names, obs)
    logged_action, labels = None if logged is None else np.asarray(logged.action, np.float32), None
    if data.discrete:
        action, values, labels = labels_in(
            problem, networks, obs=obs, chosen=chosen, logged=logged_action, nearest_rows=coverage.nearest_rows
        )
    else:
        action = action_in(problem, networks, action_names, obs, chosen)
        values = values_of(problem, networks, action_names, obs, chosen, logged_action)
    models = predictions_at(networks, names, obs, chosen.policy, logged)
    disagreement = disagreement_at(problem, networks, obs, chosen.policy, compared)
    convergence = convergence_of(problem, networks, compared)
    if data.encoder is not None:
        offsets = data.encoder.offsets
        coverage, models = raw_coverage(coverage, offsets), raw_predictions(models, offsets)
        logged = raw_transition(logged, offsets)
    return Inspection(
        run=str(run.path),
        algo=read_config(run)["algo"],
        data=data.name,
        evaluated_with=_evaluated_with(networks),
        row=query.row,
        row_of=query.of.name if query.of else None,
        logged=logged,
        coverage=coverage,
        action=action,
        values=values,
        dataset_return=mean_return_from(data, np.asarray(coverage.nearest_rows), networks.evaluators.gamma),
        convergence=convergence,
        models=models,
        disagreement=disagreement,
        verdict=verdict(coverage, action, values, models, disagreement, convergence),
        labels=labels,
        nearby_actions=data.action[coverage.nearest_rows],
        figure_name=name,
    )


def _names(run: Run, role: str, columns: int) -> list[str]:
    """The dataset's column names; without any, the role and a number."""
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
