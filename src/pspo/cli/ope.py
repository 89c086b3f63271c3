"""`pspo ope` and `pspo select`: policies judged and chosen without a simulator."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from pspo.cli.parsing import add_command
from pspo.evaluation.ope import METHODS

NAMES = ", ".join(METHODS)


def add_ope(commands: Any) -> None:
    ope = add_command(commands, "ope", _ope, "What a policy would earn, by the log alone, with intervals and doubts.")
    ope.add_argument("run", metavar="RUN", help="directory of a finished run")
    ope.add_argument("--data", metavar="FILE", help="judge by this log instead of the one it was trained on")
    ope.add_argument("--methods", nargs="+", default=tuple(METHODS), metavar="METHOD", help=f"default: {NAMES}")
    _common(ope)

    select = add_command(commands, "select", _select, "Rank the policies of several runs by the log alone.")
    select.add_argument("runs", nargs="+", metavar="RUN", help="directories of finished runs on the same data")
    select.add_argument("--by", default="models", metavar="METHOD", help=f"{NAMES} (default: %(default)s)")
    select.add_argument("--cautious", action="store_true", help="rank by the lower ends of the intervals")
    _common(select)


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--gamma", type=float, help="discount of the return that is meant (default: 1 where episodes end by themselves)"
    )
    parser.add_argument("--confidence", type=float, default=0.9, help="of the intervals (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="XLA threads (default: 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def _ope(arguments: argparse.Namespace) -> None:
    judged = _judge(arguments, arguments.methods, arguments.data)(arguments.run)
    if arguments.data is None:
        judged.write()
    if arguments.json:
        print(json.dumps(judged.as_dict(), indent=2))
        return
    from pspo.evaluation.ope.text import judgement_table

    judgement_table(judged)


def _select(arguments: argparse.Namespace) -> None:
    judge = _judge(arguments, [arguments.by], None)
    from pspo.evaluation.ope.of_run import finite
    from pspo.evaluation.ope.selection import judge_runs, rank

    judged = judge_runs(arguments.runs, judge)
    ranking = rank(judged, METHODS[arguments.by], arguments.cautious)
    if arguments.json:
        found = {"runs": [str(j.run) for j in judged], "judgements": [j.as_dict() for j in judged]}
        print(json.dumps(finite(found | ranking.as_dict()), indent=2))
        return
    from pspo.evaluation.ope.text import ranking_table

    ranking_table(judged, ranking)


def _judge(arguments: argparse.Namespace, methods: Sequence[str], data: str | None) -> Callable[[Any], Any]:
    """(run) -> Judgement, as the arguments say."""
    from pspo.core.compute import require_threads, use_threads

    use_threads(require_threads(arguments.threads))
    from pspo.core.progress import for_terminal, silent
    from pspo.evaluation.ope.of_run import judge_run

    say = (lambda text: None) if arguments.quiet else (lambda text: print(text, file=sys.stderr))

    def judge(run: Any) -> Any:
        with contextlib.nullcontext(silent) if arguments.quiet else for_terminal() as show:
            return judge_run(run, data, arguments.gamma, arguments.confidence, methods, show, say)

    return judge
