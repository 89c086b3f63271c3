"""An inspection as text in a terminal."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table

from pspo.core.terminal import console as plain_console
from pspo.evaluation.inspect.action_values import LOGGED, POLICY
from pspo.evaluation.inspect.coverage import NEIGHBOURS
from pspo.evaluation.inspect.inspection import Inspection
from pspo.evaluation.inspect.labels import LabelValue
from pspo.evaluation.inspect.model_predictions import ModelPredictions, PredictedColumn

SHOWN_MODELS = (3, 2)  # with the highest and the lowest weight


def print_inspection(inspection: Inspection) -> None:
    console = plain_console()
    policy = f"The policy of {inspection.run} ({inspection.algo})"
    console.print(f"{policy} in {inspection.title}, evaluated with {inspection.evaluated_with}.")
    _state(console, inspection)
    if inspection.labels:
        _labels(console, inspection, inspection.labels)
    else:
        _action(console, inspection)
        _values(console, inspection)
    _models(console, inspection)
    _disagreement(console, inspection)
    _heading(console, "Verdict")
    for sentence in inspection.verdict:
        console.print(f"- {sentence}")


def _heading(console: Console, words: str) -> None:
    console.print(f"\n{words}", style="bold")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number == 0 else "right", no_wrap=number == 0)
    return table


def _g(number: float | None, digits: int = 4) -> str:
    return "-" if number is None else f"{number:.{digits}g}"


def _state(console: Console, inspection: Inspection) -> None:
    coverage = inspection.coverage
    _heading(console, "The state in the dataset")
    table = _table("column", "value", "percentile", "range of the data")
    for c in coverage.columns:
        note = "outside" if c.outside else f"{c.percentile:.1f}"
        value, low, high = (_g(number, c.digits) for number in (c.value, c.low, c.high))
        table.add_row(c.name, value, note, f"{low} to {high}")
    console.print(table)
    console.print(
        f"The {NEIGHBOURS}th nearest state of the dataset is {coverage.distance:.2g} standard deviations away (median: "
        f"{coverage.median_distance:.2g}; percentile {coverage.distance_percentile:.1f}). {coverage.neighbours:,} of "
        f"{coverage.searched:,} states lie within the median distance; a typical state has {NEIGHBOURS}."
    )


def _labels(console: Console, inspection: Inspection, labels: list[LabelValue]) -> None:
    """A row per label: what the policy does and why, in one table."""
    _heading(console, "What the policy does, and why")
    marks = {mark.name: mark.action[0] for mark in inspection.values.marks}
    table = _table("action", "policy", "mu", "nearby", "Q", "± critics", "gain", "± critics", "")
    for label in labels:
        row = [str(label.label), f"{label.probability:.3f}", f"{label.reference:.3f}", str(label.nearby)]
        is_chosen = label.label == marks[POLICY]
        gain = ["", ""] if is_chosen else [f"{label.gain:+.3g}", _g(label.gain_std, 2)]
        words = ["policy"] * is_chosen + ["logged"] * (marks.get(LOGGED) == label.label)
        note = ", ".join([*words, *["not available"] * (not label.available)])
        table.add_row(*row, _g(label.q), _g(label.std, 2), *gain, note)
    console.print(table)
    console.print(
        "policy and mu: probabilities; mu is the behaviour that produced the dataset. nearby: how often the action was "
        f"taken in the nearest states of the dataset. Q is {q_meaning(inspection)}; the "
        f"{inspection.values.critic_value} of {inspection.values.critics} critics. Gain: over the policy's Q."
    )
    _returns_from_here(console, inspection)


def _action(console: Console, inspection: Inspection) -> None:
    action = inspection.action
    _heading(console, "What the policy does")
    logged = ["logged"] if inspection.logged else []
    table = _table("column", "action", "std", "bounds", "mu's mode", "90 % of mu", *logged)
    for i, c in enumerate(action.columns):
        reference = f"{_g(c.reference_range[0], 2)} to {_g(c.reference_range[1], 2)}"
        row = [c.name, _g(c.value), f"± {c.noise:.2g}" if c.noise > 0 else "none", f"{_g(c.low)} to {_g(c.high)}"]
        done = [_g(inspection.logged.action[i])] if inspection.logged else []
        table.add_row(*row, _g(c.reference), reference, *done)
    console.print(table)
    away = f"{abs(action.below_mode):.1f} nats {'below' if action.below_mode >= 0 else 'above'}"
    ratio = (
        "" if action.log_ratio is None else f" The policy's density there is exp({action.log_ratio:.1f}) times mu's."
    )
    console.print(
        f"mu is the behaviour that produced the dataset. Its density at the policy's action is {away} that at its "
        f"mode; {action.percentile:.1f} % of mu's actions are as unlikely or more.{ratio}"
    )


def _values(console: Console, inspection: Inspection) -> None:
    values = inspection.values
    _heading(console, "Why: Q by action")
    table = _table("action", "value", "Q", "± critics", "gain", "± critics")
    for mark in values.marks:
        first = mark is values.marks[0]
        gain = ["", ""] if first else [f"{mark.gain:+.3g}", _g(mark.gain_std, 2)]
        table.add_row(mark.name, ", ".join(_g(a, 3) for a in mark.action), _g(mark.q), _g(mark.std, 2), *gain)
    console.print(table)
    console.print(
        f"Q is {q_meaning(inspection)}; the {values.critic_value} of {values.critics} critics. "
        "Gain: over the policy's Q."
    )
    _returns_from_here(console, inspection)


def _returns_from_here(console: Console, inspection: Inspection) -> None:
    if inspection.dataset_return is not None:
        console.print(
            f"The dataset's own return from the {len(inspection.nearby_actions)} nearest states, in the same unit: "
            f"{inspection.dataset_return:.4g} on average{_continued(inspection)}."
        )
    if inspection.logged:
        known = "" if inspection.logged.return_to_go_known else " up to a time-out"
        console.print(f"The return from here in the dataset was {inspection.logged.return_to_go:.4g}{known}.")


def q_meaning(inspection: Inspection) -> str:
    gamma = inspection.values.gamma
    what = "the sum of rewards from here until the episode ends"
    what += "" if gamma == 1.0 else f", discounted by {gamma:g}"
    if (penalty := inspection.values.penalty) is None:
        return what
    return f"{what}, minus PSPO's penalty of {penalty:.2g} per nat for deviating from mu at each later step"


def _continued(inspection: Inspection) -> str:
    return "" if inspection.values.gamma == 1.0 else ", cut episodes continued at the dataset's mean reward"


def _models(console: Console, inspection: Inspection) -> None:
    models, digits = inspection.models, {c.name: c.digits for c in inspection.coverage.columns}
    _heading(console, "What the models predict")
    logged = ["observed", "predicted*"] if inspection.logged else []
    table = _table("column", "now", "predicted", "± models", "± chance", *logged)
    for c in models.columns:
        shown = digits.get(c.name, 4)
        then = [_g(c.observed, shown), _then(c)] if inspection.logged else []
        expected = _beside(c.expected, max(c.model_std, c.chance_std))
        table.add_row(c.name, _g(c.now, shown), expected, _g(c.model_std, 2), _g(c.chance_std, 2), *then)
    console.print(table)
    if inspection.logged:
        then = "ended" if inspection.logged.terminal else "continued"
        console.print(f"*: after the logged action, which may differ from the policy's. The episode {then}.")
    _members(console, models)


def _then(column: PredictedColumn) -> str:
    if column.expected_after_logged is None or column.std_after_logged is None:
        return "-"
    return f"{_beside(column.expected_after_logged, column.std_after_logged)} ± {_g(column.std_after_logged, 2)}"


def _beside(value: float, std: float) -> str:
    """Rounded to two digits of its standard deviation."""
    if not (math.isfinite(std) and std > 0):
        return _g(value)
    return f"{value:.{min(max(0, 1 - math.floor(math.log10(std))), 4)}f}"


def _members(console: Console, models: ModelPredictions) -> None:
    members, reward_column, (most, least) = models.members, models.columns[-1], SHOWN_MODELS
    shown = members if len(members) <= most + least else [*members[:most], *members[-least:]]
    table = _table("model", "weight", "reward", "ends", "backup")
    for m in shown:
        reward = _beside(m.reward, max(reward_column.model_std, reward_column.chance_std))
        table.add_row(str(m.number), f"{100 * m.weight:.1f} %", reward, f"{100 * m.termination:.0f} %", _g(m.backup))
    console.print(
        f"{models.effective_models:.1f} effective of {len(members)} models, entropy {models.entropy:.3f} (1: "
        f"uniform weights); the episode ends with probability {100 * models.termination:.0f} %."
    )
    if len(shown) < len(members):
        console.print("With the highest and the lowest weights:")
    console.print(table)


def _disagreement(console: Console, inspection: Inspection) -> None:
    disagreement = inspection.disagreement
    _heading(console, "Disagreement, compared with states of the dataset")
    table = _table("of", "std", "median", "percentile")
    table.add_row(
        "models, next state",
        f"{disagreement.models:.2g} std of data",
        _g(disagreement.models_median, 2),
        _p(disagreement.models_percentile),
    )
    table.add_row(
        "critics, Q",
        _g(disagreement.critics, 2),
        _g(disagreement.critics_median, 2),
        _p(disagreement.critics_percentile),
    )
    console.print(table)


def _p(percentile: float) -> str:
    return "nan" if math.isnan(percentile) else f"{percentile:.1f}"
