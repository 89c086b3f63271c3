"""The top of the run page: what was run, the result, and how to run it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pspo.report.markup import missing, number, paragraph, percent, text, with_error
from pspo.report.run.contents import Contents
from pspo.report.run.dataset_comparison import verdict_box
from pspo.report.run.reproduce import caveat, command


def headline(contents: Contents) -> str:
    """The run in a few words: also the page's title."""
    config = contents.config
    data = Path(str(config.get("dataset", "unknown data"))).name  # the command has the whole path
    return f"{str(config.get('algo', 'unknown algorithm')).upper()} on {data}"


def run_header(contents: Contents) -> str:
    config = contents.config
    steps = contents.settings.get("steps")
    details = [
        f"preset {config.get('preset', 'unknown')}",
        f"seed {config.get('seed', 'unknown')}",
        f"{steps:,} iterations" if isinstance(steps, int) else "",
    ]
    words = " ".join(f"<span>{text(piece)}</span>" for piece in command(contents))  # lines break between options only
    warning = caveat(contents)
    return (
        f'<header><p class="kicker">pspo run report</p><h1>{text(headline(contents))}</h1>'
        f'<p class="details">{text(" · ".join(filter(None, details)))}</p>'
        f"{verdict_box(contents)}{_cards(contents)}{paragraph(*_summary(contents))}"
        f'<h3>Run it again</h3><pre class="command"><code>{words}</code></pre>'
        f"{missing(warning) if warning else ''}{_notes(contents)}</header>"
    )


def _cards(contents: Contents) -> str:
    """The headline numbers; those that the result lacks are left out."""
    result = contents.result
    cards = []

    def card(name: str, label: str, hint: str, decimals: int | None = 2, error: str = "") -> None:
        if name not in result:
            return
        stderr = f" <small>± {text(number(result[error], decimals))}</small>" if error and error in result else ""
        cards.append(
            f'<div class="card"><dt>{text(label)}</dt><dd>{text(number(result[name], decimals))}{stderr}</dd>'
            f'<p class="hint">{text(hint)}</p></div>'
        )

    card("score", "Score", "mean return; random 0, expert 100", error="score_stderr")
    card("score_by_regret", "Score by exact regret", "optimum minus regret: less noise")
    card("optimal_score", "Optimum", "no policy does better on average")
    card("regret", "Regret", "return lost against the optimum", error="regret_stderr")
    card("cvar10", "Worst tenth", "mean return of the worst 10 %")
    card("return_mean", "Return", "mean, not normalised", error="return_stderr")
    card("episodes", "Episodes", "of the final evaluation", None)
    if "score" not in result:
        card("model_return", "Model-estimated return", f"{_model_return_is(result)}; not verified by a simulator")
        card("dataset_return", "The dataset’s own return", "of its episodes, in the same unit")
        card("posterior_entropy", "Posterior entropy", "1 is uniform")
        card("steps", "Iterations", "of training", None)
    card("seconds", "Seconds", "fitting models and training", 0)
    return f'<dl class="cards">{"".join(cards)}</dl>' if cards else ""


def _model_return_is(result: dict[str, Any]) -> str:
    """Its horizon and discount, and that it has none of the costs that PSPO's values include."""
    steps = f" over at most {result['model_steps']:,} steps" if "model_steps" in result else ""
    return f"plain sum of rewards{steps}, without discount or penalty"


def _summary(contents: Contents) -> list[str]:
    result = contents.result
    if not result:
        return ["This run has no final result yet; the page shows what was logged so far."]
    if "score" not in result:
        return ["This dataset has no simulator, so the policy’s true score is unknown."]
    words = [
        f"Over {result.get('episodes', 0):,} new episodes the final policy, acting by its mode, scores "
        f"{with_error(result['score'], result.get('score_stderr'))}."
    ]
    best, exact, task = result.get("optimal_score"), result.get("score_by_regret"), contents.task
    if best is not None and exact is not None and task and task.optimal_return:
        lost = result.get("regret", 0.0) / task.optimal_return
        words.append(
            f"Measured by the value it loses at each step it scores {number(exact, 2)} of at most {number(best, 2)}: "
            f"{percent(lost, 2)} of the optimal return is lost."
        )
    if best is not None and result["score"] > best:
        words.append("A score above the optimum is due to chance in the simulated episodes.")
    return words


def _notes(contents: Contents) -> str:
    return "".join(missing(note) for note in contents.notes)
