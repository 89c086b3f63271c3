"""An inspection as text in a terminal."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table

from pspo.evaluation.inspect.coverage import NEIGHBOURS
from pspo.evaluation.inspect.inspection import OWN, Inspection
from pspo.evaluation.inspect.model_predictions import ModelPredictions, PredictedColumn

SHOWN_MODELS = (3, 2)  # with the highest and the lowest weight


def print_inspection(found: Inspection) -> None:
    console = Console(highlight=False)
    console.print(f"The policy of {found.run} ({found.algo}) in {found.title}, evaluated with {found.evaluated_with}.")
    _state(console, found)
    _action(console, found)
    _values(console, found)
    _models(console, found)
    _disagreement(console, found)
    _heading(console, "Verdict")
    for sentence in found.verdict:
        console.print(f"- {sentence}")


def _heading(console: Console, words: str) -> None:
    console.print(f"\n[bold]{words}[/bold]")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number == 0 else "right", no_wrap=number == 0)
    return table


def _g(number: float | None, digits: int = 4) -> str:
    return "-" if number is None else f"{number:.{digits}g}"


def _state(console: Console, found: Inspection) -> None:
    coverage = found.coverage
    _heading(console, "The state in the dataset")
    table = _table("column", "value", "percentile", "range of the data")
    for c in coverage.columns:
        note = "outside" if c.outside else f"{c.percentile:.1f}"
        table.add_row(c.name, _g(c.value), note, f"{_g(c.low)} to {_g(c.high)}")
    console.print(table)
    console.print(
        f"The {NEIGHBOURS}th nearest state of the dataset is {coverage.distance:.2g} standard deviations away (median: "
        f"{coverage.median_distance:.2g}; percentile {coverage.distance_percentile:.1f}). {coverage.neighbours:,} of "
        f"{coverage.searched:,} states lie within the median distance; a typical state has {NEIGHBOURS}."
    )


def _action(console: Console, found: Inspection) -> None:
    action = found.action
    _heading(console, "What the policy does")
    logged = ["logged"] if found.logged else []
    table = _table("column", "action", "std", "bounds", "mu's mode", "90 % of mu", *logged)
    for i, c in enumerate(action.columns):
        reference = f"{_g(c.reference_range[0], 2)} to {_g(c.reference_range[1], 2)}"
        row = [c.name, _g(c.value), f"± {c.noise:.2g}" if c.noise > 0 else "none", f"{_g(c.low)} to {_g(c.high)}"]
        done = [_g(found.logged.action[i])] if found.logged else []
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


def _values(console: Console, found: Inspection) -> None:
    values = found.values
    _heading(console, "Why: Q by action")
    table = _table("action", "value", "Q", "± critics", "gain", "± critics")
    for mark in values.marks:
        first = mark is values.marks[0]
        gain = ["", ""] if first else [f"{mark.gain:+.3g}", _g(mark.gain_std, 2)]
        table.add_row(mark.name, ", ".join(_g(a, 3) for a in mark.action), _g(mark.q), _g(mark.std, 2), *gain)
    console.print(table)
    console.print(
        f"Q is {q_meaning(found)}; the {values.critic_value} of {values.critics} critics. Gain: over the policy's Q."
    )
    if found.logged:
        known = "" if found.logged.return_to_go_known else " up to a time-out"
        console.print(f"The return from here in the dataset was {found.logged.return_to_go:.4g}{known}.")


def q_meaning(found: Inspection) -> str:
    gamma = found.values.gamma
    what = "the sum of rewards from here" if gamma == 1.0 else f"the sum of rewards from here, discounted by {gamma:g}"
    return what + (", minus PSPO's penalty for deviating from mu later on" if found.evaluated_with == OWN else "")


def _models(console: Console, found: Inspection) -> None:
    models = found.models
    _heading(console, "What the models predict")
    logged = ["observed", "predicted*"] if found.logged else []
    table = _table("column", "now", "predicted", "± models", "± chance", *logged)
    for c in models.columns:
        then = [_g(c.observed), _then(c)] if found.logged else []
        expected = _beside(c.expected, max(c.model_std, c.chance_std))
        table.add_row(c.name, _g(c.now), expected, _g(c.model_std, 2), _g(c.chance_std, 2), *then)
    console.print(table)
    if found.logged:
        then = "ended" if found.logged.terminal else "continued"
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


def _disagreement(console: Console, found: Inspection) -> None:
    disagreement = found.disagreement
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
