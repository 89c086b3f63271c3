"""`pspo train`."""

from __future__ import annotations

import argparse
from typing import Any

from pspo.algorithms.caution import LEVELS
from pspo.cli import common
from pspo.cli.data import add_dataset, add_holdout, dataset_options
from pspo.core.compute import require_device, use_device
from pspo.core.errors import PROBLEM, not_empty
from pspo.core.terminal import show
from pspo.training.trackers import TRACKERS


def add_train(commands: Any) -> None:
    help = "Train a policy on a dataset: a file or a name."
    parser = common.add_command(commands, "train", _train, help, common.RESUME)
    add_dataset(parser)
    add_holdout(parser)
    parser.add_argument("--algo", default="pspo", help="algorithm (default: %(default)s)")
    parser.add_argument("--preset", default="laptop", help="laptop, paper or smoke (default: %(default)s)")
    parser.add_argument(
        "--caution",
        choices=LEVELS,
        default="normal",
        help="how close the policy stays to the dataset (default: %(default)s, which is the preset itself)",
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="train N seeds from SEED on in parallel, and average them"
    )
    parser.add_argument("--out", type=not_empty, metavar="DIR", help="run directory (default: a new one under runs/)")
    common.add_settings(parser, "change a setting of the preset; `pspo config` lists them")
    parser.add_argument("--dry-run", action="store_true", help="estimate time and memory, and train nothing")
    parser.add_argument(
        "--episodes", type=int, metavar="N", help="episodes of the final evaluation (default: depends on the task)"
    )
    add_run_options(parser, "1, for each seed")


def add_run_options(parser: argparse.ArgumentParser, threads: str) -> None:
    common.add_threads(parser, threads)
    common.add_device(parser)
    parser.add_argument(
        "--track",
        action="append",
        default=[],
        choices=TRACKERS,
        help="also log to tensorboard, wandb or mlflow; may be repeated",
    )
    parser.add_argument(
        "--tensorboard",
        action="append_const",
        const="tensorboard",
        dest="track",
        help="short for --track tensorboard",
    )
    common.add_quiet(parser)


def _train(arguments: argparse.Namespace) -> int | None:
    from pspo.core.config import parse_settings
    from pspo.envs.task import require_episodes

    if arguments.episodes is not None:
        require_episodes(arguments.episodes)
    settings = parse_settings(arguments.settings)
    use_device(arguments.device)
    if arguments.dry_run:
        return _dry_run(arguments, settings)
    if arguments.seeds is not None:
        return _train_seeds(arguments, settings)
    common.set_threads(arguments.threads)
    require_device()
    request = train_request(arguments, settings)
    with common.monitor(arguments.quiet, arguments.track) as monitor:
        run = request.train(arguments.out, monitor)
    common.print_run(run)


def train_request(arguments: argparse.Namespace, settings: dict[str, Any]) -> Any:
    """What the options ask for."""
    from pspo.training.request import TrainRequest

    return TrainRequest(
        arguments.dataset,
        arguments.algo,
        arguments.preset,
        arguments.seed,
        settings,
        episodes=arguments.episodes,
        caution=arguments.caution,
        holdout=arguments.holdout,
        holdout_by=arguments.holdout_by,
        **dataset_options(arguments),
    )


def _train_seeds(arguments: argparse.Namespace, settings: dict[str, Any]) -> int:
    arguments.stopped = common.REPEAT
    from pspo.experiments import RunsFailed, train_seeds

    request = train_request(arguments, settings)
    failures: dict[str, str] = {}
    try:
        with common.monitor(arguments.quiet, arguments.track) as monitor:
            threads = 1 if arguments.threads is None else arguments.threads
            summary = train_seeds(request, seeds=arguments.seeds, out=arguments.out, threads=threads, monitor=monitor)
    except RunsFailed as problem:
        failures, summary = problem.failures, problem.results
    common.print_failures(failures)
    if summary:
        from pspo.report.terminal import seeds_table

        seeds_table(summary.numbers)
        for run in summary.runs:
            common.print_headline(run)
        show(f"runs:    {summary.folder}")
        show(f"summary: {summary.path}")
    return PROBLEM if failures else 0


def _dry_run(arguments: argparse.Namespace, settings: dict[str, Any]) -> None:
    common.set_threads(arguments.threads)
    from pspo.training.dry_run import describe

    options = dataset_options(arguments) | {
        name: getattr(arguments, name) for name in ("caution", "holdout", "holdout_by")
    }
    options |= {"preset_name": arguments.preset, "settings": settings}
    for line in describe(arguments.dataset, arguments.algo, **options):
        show(line)
    if (arguments.seeds or 1) > 1:
        show(f"{'seeds':<17}{arguments.seeds}: each takes this long, except for the dynamics pool, which they share")
