"""An inspection as a person reads it in a terminal."""

from __future__ import annotations

import math

from rich.console import Console
from rich.table import Table

from pspo.evaluation.inspect.beliefs import Beliefs, Following
from pspo.evaluation.inspect.inspection import OWN, Inspection
from pspo.evaluation.inspect.place import NEIGHBOURS

SHOWN_MODELS = (3, 2)  # the most and the least believed


def show(found: Inspection) -> None:
    console = Console(highlight=False)
    console.print(f"The policy of {found.run} ({found.algo}) in {found.title}, judged by {found.judged_by}.")
    _state(console, found)
    _action(console, found)
    _values(console, found)
    _models(console, found)
    _doubt(console, found)
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
    place = found.place
    _heading(console, "Where the state lies in the log")
    table = _table("column", "value", "percentile", "log's range")
    for c in place.columns:
        note = "outside" if c.outside else f"{c.percentile:.1f}"
        table.add_row(c.name, _g(c.value), note, f"{_g(c.low)} to {_g(c.high)}")
    console.print(table)
    console.print(
        f"Its {NEIGHBOURS}th nearest logged state is {place.distance:.2g} spreads away (usual: "
        f"{place.usual_distance:.2g}; percentile {place.distance_percentile:.1f}). {place.near:,} of "
        f"{place.searched:,} logged states are near; a typical state has {NEIGHBOURS}."
    )


def _action(console: Console, found: Inspection) -> None:
    act = found.act
    _heading(console, "What the policy does")
    logged = ["logged"] if found.logged else []
    table = _table("column", "action", "its noise", "bounds", "mu's mode", "90 % of mu", *logged)
    for i, c in enumerate(act.columns):
        reference = f"{_g(c.reference_range[0], 2)} to {_g(c.reference_range[1], 2)}"
        row = [c.name, _g(c.value), f"± {c.noise:.2g}" if c.noise > 0 else "none", f"{_g(c.low)} to {_g(c.high)}"]
        done = [_g(found.logged.action[i])] if found.logged else []
        table.add_row(*row, _g(c.reference), reference, *done)
    console.print(table)
    away = f"{abs(act.below_mode):.1f} nats {'below' if act.below_mode >= 0 else 'above'}"
    ratio = "" if act.log_ratio is None else f" The policy's density there is exp({act.log_ratio:.1f}) times mu's."
    console.print(
        f"mu is the behaviour that wrote the log. Its density at the policy's action is {away} that at its mode; "
        f"{act.percentile:.1f} % of mu's own actions are as unlikely or more.{ratio}"
    )


def _values(console: Console, found: Inspection) -> None:
    values = found.values
    _heading(console, "Why: Q by action")
    table = _table("action", "is", "Q", "± critics", "gain", "± critics")
    for mark in values.marks:
        first = mark is values.marks[0]
        gain = ["", ""] if first else [f"{mark.gain:+.3g}", _g(mark.gain_spread, 2)]
        table.add_row(mark.name, ", ".join(_g(a, 3) for a in mark.action), _g(mark.q), _g(mark.spread, 2), *gain)
    console.print(table)
    console.print(
        f"Q is {q_meaning(found)}; the {values.together} of {values.critics} critics. Gain: over the policy's."
    )
    if found.logged:
        known = "" if found.logged.to_go_known else ", before a time-out cut it off"
        console.print(f"The log's own return from here was {found.logged.to_go:.4g}{known}.")


def q_meaning(found: Inspection) -> str:
    gamma = found.values.gamma
    what = "the sum of rewards from here" if gamma == 1.0 else f"the sum of rewards from here, discounted by {gamma:g}"
    return what + (", less PSPO's cost of leaving mu later on" if found.judged_by == OWN else "")


def _models(console: Console, found: Inspection) -> None:
    beliefs = found.beliefs
    _heading(console, "What the models say follows")
    logged = ["followed", "expected*"] if found.logged else []
    table = _table("column", "now", "expected", "± models", "± chance", *logged)
    for c in beliefs.following:
        then = [_g(c.followed), _then(c)] if found.logged else []
        expected = _beside(c.expected, max(c.between, c.chance))
        table.add_row(c.name, _g(c.now), expected, _g(c.between, 2), _g(c.chance, 2), *then)
    console.print(table)
    if found.logged:
        then = "ended" if found.logged.ended else "went on"
        console.print(f"*: after the logged action, which need not be the policy's. The episode {then}.")
    _believed(console, beliefs)


def _then(column: Following) -> str:
    if column.then_expected is None or column.then_spread is None:
        return "-"
    return f"{_beside(column.then_expected, column.then_spread)} ± {_g(column.then_spread, 2)}"


def _beside(value: float, spread: float) -> str:
    """Rounded to where its spread begins: what is further right says nothing."""
    if not (math.isfinite(spread) and spread > 0):
        return _g(value)
    return f"{value:.{min(max(0, 1 - math.floor(math.log10(spread))), 4)}f}"


def _believed(console: Console, beliefs: Beliefs) -> None:
    members, said, (most, least) = beliefs.members, beliefs.following[-1], SHOWN_MODELS
    shown = members if len(members) <= most + least else [*members[:most], *members[-least:]]
    table = _table("model", "weight", "reward", "ends", "Q it implies")
    for m in shown:
        reward = _beside(m.reward, max(said.between, said.chance))
        table.add_row(str(m.number), f"{100 * m.weight:.1f} %", reward, f"{100 * m.ends:.0f} %", _g(m.backup))
    console.print(
        f"{beliefs.effective:.1f} effective of {len(members)} models, entropy {beliefs.entropy:.3f} (1: all believed "
        f"alike); after {100 * beliefs.ends:.0f} % of what follows the episode is over."
    )
    if len(shown) < len(members):
        console.print("The most and the least believed:")
    console.print(table)


def _doubt(console: Console, found: Inspection) -> None:
    doubt = found.doubt
    _heading(console, "How unsure they are, among logged states")
    table = _table("who", "disagree by", "usual", "percentile")
    table.add_row(
        "models, next state", f"{doubt.models:.2g} spreads", _g(doubt.models_usual, 2), _p(doubt.models_percentile)
    )
    table.add_row("critics, Q", _g(doubt.critics, 2), _g(doubt.critics_usual, 2), _p(doubt.critics_percentile))
    console.print(table)


def _p(percentile: float) -> str:
    return "nan" if math.isnan(percentile) else f"{percentile:.1f}"
