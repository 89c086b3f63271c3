"""What several commands share: parsers, common options, displays and printed results."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pspo.core.progress import Progress
    from pspo.runs.directory import Run
    from pspo.training.monitor import Monitor

NOTHING_LOST = "no file was left half-written"
REPEAT = "run the same command again to continue"
RESUME = "`pspo resume` continues from the last checkpoint"


def add_command(
    commands: Any,
    name: str,
    function: Callable[..., Any] | None,
    help: str,
    stopped: str = NOTHING_LOST,
) -> argparse.ArgumentParser:
    """A parser for one command; `function` runs it, or is None where there are subcommands.

    `stopped` is what the user is told when the command is interrupted.
    """
    parser = commands.add_parser(name, help=help, description=help)
    parser.set_defaults(command=function, stopped=stopped)
    return parser


def add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_threads(parser: argparse.ArgumentParser, default: str = "1") -> None:
    parser.add_argument("--threads", type=int, metavar="N", help=f"XLA threads (default: {default})")


def add_settings(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help=help)


def set_threads(wanted: int | None) -> None:
    """Before JAX is imported. One thread by default: the bits then do not depend on how many runs there are."""
    from pspo.core.compute import require_threads, use_threads

    use_threads(require_threads(wanted) if wanted is not None else int(os.environ.get("NPROC") or 1))


def message(text: str) -> None:
    """For people: results go to stdout, and nothing else does."""
    print(text, file=sys.stderr, flush=True)


def message_unless(quiet: bool) -> Callable[[str], None]:
    return (lambda text: None) if quiet else message


@contextlib.contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """The display of a command's progress."""
    from pspo.core.progress import for_terminal, silent

    with contextlib.nullcontext(silent) if quiet else for_terminal() as show:
        yield show


@contextlib.contextmanager
def monitor(quiet: bool, tensorboard: bool = False) -> Iterator[Monitor]:
    """Progress, messages and metrics of a run, as the options say."""
    from pspo.training import trackers
    from pspo.training.monitor import Monitor

    with progress(quiet) as show:
        yield Monitor(show, message, trackers.tensorboard if tensorboard else trackers.no_tracker)


def print_result(result: dict[str, Any]) -> None:
    from pspo.report.terminal import result_table

    result_table(result)


def print_run(run: Run) -> None:
    """Of a finished run: its result and where it is."""
    print_result(run.read("result"))
    print(f"run:    {run.path}")
    print(f"report: {run.path / 'report.html'}")


def print_failures(failures: dict[str, str]) -> None:
    for name, why in failures.items():
        message(f"pspo: {name} failed: {why}")
