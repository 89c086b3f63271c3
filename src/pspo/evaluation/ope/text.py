"""Judgements and rankings as a person reads them in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from pspo.evaluation.ope.estimates import Estimate
from pspo.evaluation.ope.of_run import Judgement
from pspo.evaluation.ope.selection import Ranking


def judgement_table(judged: Judgement) -> None:
    console = Console(highlight=False)
    meant = "sum of rewards" if judged.gamma == 1.0 else f"sum of rewards discounted by {judged.gamma:g}"
    table = Table("method", "estimate", f"{100 * judged.confidence:g} % interval", "of the policy", "doubts")
    for e in judged.estimates:
        policy = "as it acts" if e.judges == "mode" else "with its noise"
        doubts = "see below" if e.warnings else "none"
        table.add_row(e.method, f"{e.value:.2f}", f"{e.low:.2f} to {e.high:.2f}", policy, doubts)
    console.print(f"Mean return ({meant}) by {judged.data}: the log's own episodes have {judged.logged:.2f}.")
    console.print(table)
    for e in judged.estimates:
        if "model_std" in e.numbers:
            console.print(_spread(e))
    for method, why in judged.lacking.items():
        console.print(f"No {method}: {why}")
    for e in judged.estimates:
        for doubt in e.warnings:
            console.print(f"Do not trust {e.method}: {doubt}")
    for one, other in judged.contradictions:
        console.print(
            f"{one.capitalize()} and {other} contradict each other: their intervals do not meet. Trust neither."
        )
    if judged.truth is not None:
        console.print(f"In the simulator the policy as it acts has {judged.truth:.2f}.")


def _spread(estimate: Estimate) -> str:
    n = estimate.numbers
    return (
        f"Nine tenths of imagined episodes return {n['return_5']:.2f} to {n['return_95']:.2f}. Of their spread "
        f"{n['chance_std']:.2f} is chance, and {n['model_std']:.2f} is what the models disagree about "
        f"({n['effective_models']:.1f} effective models)."
    )


def ranking_table(judged: Sequence[Judgement], ranking: Ranking) -> None:
    console = Console(highlight=False)
    with_truth = ranking.regret is not None
    table = Table("rank", "run", "estimate", "lower end", *(["in the simulator"] if with_truth else []))
    for place, number in enumerate(ranking.order, start=1):
        truth = [f"{judged[number].truth:.2f}"] if with_truth else []
        row = [str(place), str(judged[number].run), f"{ranking.value[number]:.2f}", f"{ranking.low[number]:.2f}"]
        table.add_row(*row, *truth)
    console.print(f"Ranked by {ranking.method}{', by the lower ends of the intervals' if ranking.cautious else ''}.")
    console.print(table)
    if ranking.rank_correlation is not None:
        console.print(f"Rank correlation with the simulator: {ranking.rank_correlation:.2f}.")
    if with_truth:
        console.print(
            f"The first gives up {ranking.regret:.2f} of return to the truly best; one taken blindly "
            f"{ranking.regret_of_random:.2f} on average."
        )
    for number in ranking.order:
        for estimate in judged[number].estimates:
            for doubt in estimate.warnings:
                console.print(f"Do not trust that of {judged[number].run}: {doubt}")
