"""`pspo collect` on the command line."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable

INTERRUPTED = 130


def add_collect(command: Callable[..., argparse.ArgumentParser]) -> None:
    parser = command("collect", _collect, "Play a behaviour policy in a simulator and write what it did as a dataset.")
    parser.add_argument("name", metavar="TASK-LABEL", help="such as hopper-medium; hopper-random needs no policy")
    parser.add_argument("--policy", action="append", default=[], metavar="FILE", help=".npz; twice for half and half")
    parser.add_argument("--transitions", type=int, required=True, metavar="N", help="rows of the dataset, exactly")
    parser.add_argument("--seed", type=int, default=0, help="of starts and noise (default: %(default)s)")
    parser.add_argument("--out", metavar="FILE", help="default: TASK-LABEL.hdf5; the same command goes on after a stop")
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def _collect(arguments: argparse.Namespace) -> int | None:
    from pspo.collecting.collect import collect
    from pspo.display import for_terminal, silent

    out = arguments.out or f"{arguments.name}.hdf5"
    try:
        with contextlib.nullcontext(silent) if arguments.quiet else for_terminal() as progress:
            summary = collect(
                arguments.name,
                out,
                arguments.transitions,
                arguments.seed,
                arguments.policy,
                progress,
                lambda text: print(text, file=sys.stderr),
            )
    except KeyboardInterrupt:
        print("pspo: stopped; the same command goes on from what is in the .partial folder.", file=sys.stderr)
        return INTERRUPTED
    print(summary)
