"""Estimates and rankings as tables in a terminal; notes and warnings go to stderr, as in every command."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.table import Table

from pspo.core.terminal import console as plain_console
from pspo.core.terminal import show_note, show_warning
from pspo.evaluation.ope.estimate_run import RunEstimates
from pspo.evaluation.ope.return_estimate import MODE, ReturnEstimate
from pspo.evaluation.ope.selection import Ranking


def print_estimates(run: RunEstimates) -> None:
    console = plain_console()
    columns = ("method", "estimate", f"{100 * run.confidence:g} % interval", "policy acts", "warnings")
    table = Table(*columns, title=f"Mean {run.quantity}, on {run.data}", title_justify="left")
    for e in run.estimates:
        policy = "by its mode" if e.actions == MODE else "stochastically"
        warnings = "see below" if e.warnings else "none"
        table.add_row(e.method, f"{e.value:.2f}", f"{e.low:.2f} to {e.high:.2f}", policy, warnings)
    table.add_section()
    table.add_row("the dataset's own", _dataset_return(run), "", "", "")
    console.print(table)
    if math.isnan(run.dataset_return):
        console.print(f"No return of the dataset's own episodes: they show too few of the {run.horizon} steps.")
    for e in run.estimates:
        if "model_std" in e.numbers:
            console.print(_uncertainty(e))
    if run.simulator_return is not None:
        console.print(f"In the simulator the policy returns {run.simulator_return:.2f} by its mode.")
    console.file.flush()  # what follows is below the table, also where both streams go to one file
    if run.holdout_difference:
        show_note(run.holdout_difference)
    for method, why in run.unavailable.items():
        show_note(f"no {method}: {why}")
    for e in run.estimates:
        for warning in e.warnings:
            show_warning(f"{e.method}: {warning}")
    for one, other in run.contradictions:
        show_warning(f"{one} and {other} contradict each other: their intervals do not overlap. Trust neither.")


def _dataset_return(run: RunEstimates) -> str:
    return "unknown" if math.isnan(run.dataset_return) else f"{run.dataset_return:.2f}"


def _uncertainty(estimate: ReturnEstimate) -> str:
    n = estimate.numbers
    length = ""
    if "episode_steps" in n:
        length = (
            f" They last {n['episode_steps']:.0f} steps and return {n['return_of_dataset']:.2f} times the dataset's."
        )
    return (
        f"90 % of episodes in the models return {n['return_5']:.2f} to {n['return_95']:.2f}. The standard deviation of "
        f"returns is {n['chance_std']:.2f} by chance, and {n['model_std']:.2f} between models "
        f"({n['effective_models']:.1f} effective models).{length}"
    )


def print_ranking(runs: Sequence[RunEstimates], ranking: Ranking) -> None:
    console = plain_console()
    simulated = ranking.regret is not None
    columns = ("rank", "run", "estimate", "lower end", *(["in the simulator"] if simulated else []))
    table = Table(*columns, title=f"Mean {runs[0].quantity}, on {runs[0].data}", title_justify="left")
    for rank, index in enumerate(ranking.order, start=1):
        truth = [f"{runs[index].simulator_return:.2f}"] if simulated else []
        row = [str(rank), str(runs[index].run), f"{ranking.value[index]:.2f}", f"{ranking.low[index]:.2f}"]
        table.add_row(*row, *truth)
    table.add_section()
    table.add_row("", "the dataset's own episodes", _dataset_return(runs[0]), "", *([""] if simulated else []))
    console.print(f"Ranked by {ranking.method}{', by the lower ends of the intervals' if ranking.cautious else ''}.")
    console.print(table)
    if ranking.rank_correlation is not None:
        console.print(f"Rank correlation with the simulator: {ranking.rank_correlation:.2f}.")
    if simulated:
        console.print(
            f"Choosing the first loses {ranking.regret:.2f} of return against the best in the simulator; a random "
            f"choice loses {ranking.regret_of_random:.2f} on average."
        )
    console.file.flush()
    for index in ranking.order:
        for estimate in runs[index].estimates:
            for warning in estimate.warnings:
                show_warning(f"{runs[index].run}: {warning}")
