"""`pspo collect` on the command line."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import Any

from pspo.cli.parsing import add_command
from pspo.core.errors import UserError

HELP = "Write a dataset of what a behaviour policy or an online learner does in a simulator."


def add_collect(commands: Any) -> None:
    stopped = "the same command goes on from what is in the .partial folder"
    parser = add_command(commands, "collect", _collect, HELP, stopped)
    parser.add_argument(
        "name",
        metavar="TASK-LABEL",
        help="such as hopper-medium; without --policy the label is random, or what to take from a learner: "
        "medium, expert, medium-expert, medium-replay, full-replay",
    )
    parser.add_argument("--policy", action="append", default=[], metavar="FILE", help=".npz; twice for half and half")
    parser.add_argument("--transitions", type=int, metavar="N", help="rows of the dataset (not for a replay)")
    parser.add_argument("--seed", type=int, default=0, help="of starts, noise and learner (default: %(default)s)")
    parser.add_argument("--out", metavar="FILE", help="default: TASK-LABEL.hdf5; the same command goes on after a stop")
    parser.add_argument("--steps", type=int, metavar="N", help="of the learner, at most (default: 1000000)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help="of the learner"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="XLA threads of the learner (default: 1)")
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def _collect(arguments: argparse.Namespace) -> None:
    from pspo.core.compute import use_threads
    from pspo.core.config import parse_settings
    from pspo.core.progress import for_terminal, silent

    settings = parse_settings(arguments.settings)
    if arguments.threads is not None and arguments.threads < 1:
        raise UserError(f"--threads {arguments.threads} is out of range: at least one is needed.")
    use_threads(arguments.threads or int(os.environ.get("NPROC") or 1))
    from pspo.collecting.collect import collect

    with contextlib.nullcontext(silent) if arguments.quiet else for_terminal() as progress:
        summary = collect(
            arguments.name,
            arguments.out or f"{arguments.name}.hdf5",
            arguments.transitions,
            arguments.seed,
            arguments.policy,
            arguments.steps,
            settings,
            progress,
            lambda text: print(text, file=sys.stderr),
        )
    print(summary)
