"""Estimates and rankings as tables in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from pspo.evaluation.ope.estimate_run import RunEstimates
from pspo.evaluation.ope.return_estimate import MODE, ReturnEstimate
from pspo.evaluation.ope.selection import Ranking


def print_estimates(found: RunEstimates) -> None:
    console = Console(highlight=False)
    what = "sum of rewards" if found.gamma == 1.0 else f"sum of rewards discounted by {found.gamma:g}"
    table = Table("method", "estimate", f"{100 * found.confidence:g} % interval", "policy acts", "warnings")
    for e in found.estimates:
        policy = "by its mode" if e.actions == MODE else "stochastically"
        warnings = "see below" if e.warnings else "none"
        table.add_row(e.method, f"{e.value:.2f}", f"{e.low:.2f} to {e.high:.2f}", policy, warnings)
    console.print(
        f"Mean return ({what}) on {found.data}; the dataset's own episodes return {found.dataset_return:.2f}."
    )
    console.print(table)
    for e in found.estimates:
        if "model_std" in e.numbers:
            console.print(_uncertainty(e))
    for method, why in found.unavailable.items():
        console.print(f"No {method}: {why}")
    for e in found.estimates:
        for warning in e.warnings:
            console.print(f"Warning for {e.method}: {warning}")
    for one, other in found.contradictions:
        console.print(
            f"{one.capitalize()} and {other} contradict each other: their intervals do not overlap. Trust neither."
        )
    if found.simulator_return is not None:
        console.print(f"In the simulator the policy returns {found.simulator_return:.2f} by its mode.")


def _uncertainty(estimate: ReturnEstimate) -> str:
    n = estimate.numbers
    return (
        f"90 % of episodes in the models return {n['return_5']:.2f} to {n['return_95']:.2f}. The standard deviation of "
        f"returns is {n['chance_std']:.2f} by chance, and {n['model_std']:.2f} between models "
        f"({n['effective_models']:.1f} effective models)."
    )


def print_ranking(runs: Sequence[RunEstimates], ranking: Ranking) -> None:
    console = Console(highlight=False)
    simulated = ranking.regret is not None
    table = Table("rank", "run", "estimate", "lower end", *(["in the simulator"] if simulated else []))
    for place, index in enumerate(ranking.order, start=1):
        truth = [f"{runs[index].simulator_return:.2f}"] if simulated else []
        row = [str(place), str(runs[index].run), f"{ranking.value[index]:.2f}", f"{ranking.low[index]:.2f}"]
        table.add_row(*row, *truth)
    console.print(f"Ranked by {ranking.method}{', by the lower ends of the intervals' if ranking.cautious else ''}.")
    console.print(table)
    if ranking.rank_correlation is not None:
        console.print(f"Rank correlation with the simulator: {ranking.rank_correlation:.2f}.")
    if simulated:
        console.print(
            f"Choosing the first loses {ranking.regret:.2f} of return against the best in the simulator; a random "
            f"choice loses {ranking.regret_of_random:.2f} on average."
        )
    for index in ranking.order:
        for estimate in runs[index].estimates:
            for warning in estimate.warnings:
                console.print(f"Warning for {runs[index].run}: {warning}")
