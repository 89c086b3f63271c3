"""The top of the page: what was run, what came out, how to run it again."""

from __future__ import annotations

from pathlib import Path

from pspo.report.markup import missing, number, paragraph, percent, text, with_error
from pspo.report.run.contents import Contents
from pspo.report.run.reproduce import caveat, command


def headline(contents: Contents) -> str:
    """The run in a few words: also the page's title."""
    facts = contents.facts
    data = Path(str(facts.get("dataset", "unknown data"))).name  # the whole path stands in the command
    return f"{str(facts.get('algo', 'unknown algorithm')).upper()} on {data}"


def header(contents: Contents) -> str:
    facts = contents.facts
    steps = contents.settings.get("steps")
    details = [
        f"preset {facts.get('preset', 'unknown')}",
        f"seed {facts.get('seed', 'unknown')}",
        f"{steps:,} iterations" if isinstance(steps, int) else "",
    ]
    words = " ".join(f"<span>{text(piece)}</span>" for piece in command(contents))  # lines break between options only
    warning = caveat(contents)
    return (
        f'<header><p class="kicker">pspo run report</p><h1>{text(headline(contents))}</h1>'
        f'<p class="details">{text(" · ".join(filter(None, details)))}</p>'
        f"{_cards(contents)}{paragraph(*_summary(contents))}"
        f'<h3>Run it again</h3><pre class="command"><code>{words}</code></pre>'
        f"{missing(warning) if warning else ''}{_notes(contents)}</header>"
    )


def _cards(contents: Contents) -> str:
    """The headline numbers; those that the result lacks are left out."""
    found = contents.result
    cards = []

    def card(name: str, label: str, hint: str, decimals: int | None = 2, error: str = "") -> None:
        if name not in found:
            return
        spread = f" <small>± {text(number(found[error], decimals))}</small>" if error in found else ""
        cards.append(
            f'<div class="card"><dt>{text(label)}</dt><dd>{text(number(found[name], decimals))}{spread}</dd>'
            f'<p class="hint">{text(hint)}</p></div>'
        )

    card("score", "Score", "mean return; random 0, expert 100", error="score_stderr")
    card("score_by_regret", "Score by exact regret", "optimum minus regret: far less noise")
    card("optimal_score", "Optimum", "no policy does better on average")
    card("regret", "Regret", "return below the optimum", error="regret_stderr")
    card("cvar10", "Worst tenth", "mean return of the worst 10 %")
    card("return_mean", "Return", "mean, as the task pays it", error="return_stderr")
    card("episodes", "Episodes", "simulated for this judgement", None)
    if "score" not in found:
        card("imagined_return", "Promised return", "what the models say; not verified")
        card("posterior_entropy", "Posterior entropy", "1 is uniform")
        card("steps", "Iterations", "of training", None)
    card("seconds", "Seconds", "fitting models and training", 0)
    return f'<dl class="cards">{"".join(cards)}</dl>' if cards else ""


def _summary(contents: Contents) -> list[str]:
    found = contents.result
    if not found:
        return ["This run has no final result yet; the page shows what is there."]
    if "score" not in found:
        return ["These data have no simulator, so the policy’s true score is unknown."]
    words = [
        f"Over {found.get('episodes', 0):,} fresh episodes the final policy scores "
        f"{with_error(found['score'], found.get('score_stderr'))}, acting by its mode."
    ]
    best, exact, task = found.get("optimal_score"), found.get("score_by_regret"), contents.task
    if best is not None and exact is not None and task and task.optimal_return:
        lost = found.get("regret", 0.0) / task.optimal_return
        words.append(
            f"Measured by the value it loses at each step it reaches {number(exact, 2)} of at most {number(best, 2)}: "
            f"{percent(lost, 2)} of the optimal return is given away."
        )
    if best is not None and found["score"] > best:
        words.append("A score above the optimum is luck of the simulated episodes, not skill.")
    return words


def _notes(contents: Contents) -> str:
    return "".join(missing(note) for note in contents.notes)
