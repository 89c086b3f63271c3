"""`pspo collect`."""

from __future__ import annotations

import argparse
from typing import Any

from pspo.cli import common
from pspo.core.errors import not_empty
from pspo.core.terminal import show

HELP = "Record a dataset in a simulator with a behaviour policy or an online learner."


def add_collect(commands: Any) -> None:
    stopped = "run the same command again to continue from the .partial folder"
    parser = common.add_command(commands, "collect", _collect, HELP, stopped)
    parser.add_argument(
        "name",
        metavar="TASK-LABEL",
        help="such as hopper-medium; without --policy the label is random, or says what to take from a learner: "
        "medium, expert, medium-expert, medium-replay, full-replay",
    )
    parser.add_argument(
        "--policy",
        action="append",
        default=[],
        metavar="FILE",
        help="behaviour policy (.npz); several record equal shares",
    )
    parser.add_argument("--transitions", type=int, metavar="N", help="size of the dataset (not for a replay)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: %(default)s)")
    parser.add_argument("--out", type=not_empty, metavar="FILE", help="default: TASK-LABEL.hdf5")
    parser.add_argument("--steps", type=int, metavar="N", help="maximum number of learner steps (default: 1000000)")
    common.add_settings(parser, "change a setting of the learner")
    common.add_threads(parser)
    common.add_quiet(parser)


def _collect(arguments: argparse.Namespace) -> None:
    from pspo.core.config import parse_settings

    settings = parse_settings(arguments.settings)
    common.set_threads(arguments.threads)
    from pspo.collecting import collect
    from pspo.core.progress import Reporter

    with common.progress(arguments.quiet) as progress:
        summary = collect(
            arguments.name,
            arguments.out or f"{arguments.name}.hdf5",
            transitions=arguments.transitions,
            seed=arguments.seed,
            policies=arguments.policy,
            steps=arguments.steps,
            settings=settings,
            reporter=Reporter(progress, common.message_unless(False)),
        )
    show(summary)
