"""`pspo ope` and `pspo select`: off-policy evaluation of one run, and a ranking of several."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

from pspo.cli import common
from pspo.core.compute import require_device, use_device
from pspo.core.terminal import show
from pspo.evaluation.ope import ESTIMATORS

NAMES = ", ".join(ESTIMATORS)
KEPT = "the verdict on the run is unchanged: it follows `pspo ope RUN` with posterior models and no other option"


def add_ope_and_select(commands: Any) -> None:
    help = "Estimate the return of a run's policy from the dataset alone, with intervals and warnings."
    ope = common.add_command(commands, "ope", _ope, help)
    ope.add_argument("run", metavar="RUN", help="directory of a finished run")
    ope.add_argument(
        "--data",
        metavar="FILE",
        help="estimate from this dataset instead of the run's own (its hold-out, if it has one)",
    )
    ope.add_argument("--methods", nargs="+", default=tuple(ESTIMATORS), metavar="METHOD", help=f"default: {NAMES}")
    _add_common(ope)

    help = "Rank the policies of several runs by their estimated return, without a simulator."
    select = common.add_command(commands, "select", _select, help)
    select.add_argument("runs", nargs="+", metavar="RUN", help="directories of finished runs")
    select.add_argument(
        "--data",
        metavar="FILE",
        help="estimate from this dataset instead of the runs' own, which then may differ (their hold-outs, if any)",
    )
    select.add_argument("--by", default="models", metavar="METHOD", help=f"{NAMES} (default: %(default)s)")
    select.add_argument("--cautious", action="store_true", help="rank by the lower ends of the intervals")
    _add_common(select)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--horizon",
        type=int,
        metavar="STEPS",
        help="estimate the return over so many steps (default: the length of the dataset's episodes if all were cut at "
        "the same length; otherwise until the episode ends)",
    )
    parser.add_argument(
        "--gamma",
        type=float,
        help="discount of the estimated return (default: 1, but that of training where episodes were cut at different "
        "lengths, or where it makes the cut negligible)",
    )
    parser.add_argument(
        "--confidence", type=float, default=0.9, help="confidence level of the intervals (default: %(default)s)"
    )
    common.add_threads(parser)
    common.add_device(parser)
    common.add_json(parser)
    common.add_quiet(parser)


def _ope(arguments: argparse.Namespace) -> None:
    estimates = _estimator(arguments, arguments.methods, arguments.data)(arguments.run)
    if arguments.data is None:
        estimates.write()
        if not estimates.decides_verdict:
            common.message_unless(arguments.quiet)(KEPT)
    if arguments.json:
        show(json.dumps(estimates.as_dict(), indent=2))
        return
    from pspo.evaluation.ope.print_estimates import print_estimates

    print_estimates(estimates)


def _select(arguments: argparse.Namespace) -> None:
    estimate = _estimator(arguments, [arguments.by], arguments.data)
    from pspo.evaluation.ope.selection import estimate_runs, rank
    from pspo.evaluation.run_inputs import finite

    runs = estimate_runs(arguments.runs, estimate, on_own_data=arguments.data is None)
    ranking = rank(runs, ESTIMATORS[arguments.by].title, arguments.cautious)
    if arguments.json:
        content = {"runs": [str(run.run) for run in runs], "estimates": [run.as_dict() for run in runs]}
        show(json.dumps(finite(content | ranking.as_dict()), indent=2))
        return
    from pspo.evaluation.ope.print_estimates import print_ranking

    print_ranking(runs, ranking)


def _estimator(arguments: argparse.Namespace, methods: Sequence[str], data: str | None) -> Callable[[Any], Any]:
    """(run) -> RunEstimates, as the arguments say."""
    common.set_threads(1 if arguments.threads is None else arguments.threads)
    use_device(arguments.device)
    require_device()
    from pspo.evaluation.ope.estimate_run import estimate_return

    options = {
        "gamma": arguments.gamma,
        "horizon": arguments.horizon,
        "confidence": arguments.confidence,
        "methods": methods,
    }

    def estimate(run: Any) -> Any:
        with common.reporter(arguments.quiet) as reporter:
            return estimate_return(run, data, **options, reporter=reporter)

    return estimate
