"""What several commands share: parsers, common options, displays and printed results."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pspo.core.compute import DEVICES, threads_of_environment
from pspo.core.terminal import show, show_error, show_note

if TYPE_CHECKING:
    from pspo.core.progress import Progress, Reporter
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


def allow_negative_lists(parser: argparse.ArgumentParser) -> None:
    """Otherwise `--state -1,2` is taken for two options: argparse only recognises single negative numbers."""
    parser._negative_number_matcher = re.compile(r"^-(\d|\.|inf|nan)", re.IGNORECASE)


def add_quiet(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_threads(parser: argparse.ArgumentParser, default: str = "1") -> None:
    parser.add_argument("--threads", type=int, metavar="N", help=f"XLA threads (default: {default})")


def add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        choices=DEVICES,
        default="auto",
        help="auto (default: a GPU if JAX finds one), cpu or gpu",
    )


def add_settings(parser: argparse.ArgumentParser, help: str) -> None:
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="settings", help=help)


def set_threads(wanted: int | None) -> None:
    """Before JAX is imported. One thread by default: the bits then do not depend on how many runs there are."""
    from pspo.core.compute import require_threads, use_threads

    use_threads(require_threads(wanted) if wanted is not None else threads_of_environment(1))


def message_unless(quiet: bool) -> Callable[[str], None]:
    """For people: results go to stdout, and nothing else does."""
    return (lambda text: None) if quiet else show_note


@contextlib.contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """The display of a command's progress."""
    from pspo.core.progress import for_terminal, silent

    with contextlib.nullcontext(silent) if quiet else for_terminal() as show:
        yield show


@contextlib.contextmanager
def reporter(quiet: bool) -> Iterator[Reporter]:
    """Progress and messages of a command that trains nothing."""
    from pspo.core.progress import Reporter

    with progress(quiet) as show:
        yield Reporter(show, message_unless(quiet))


@contextlib.contextmanager
def monitor(quiet: bool, trackers: Sequence[str] = ()) -> Iterator[Monitor]:
    """Progress, messages and metrics of a run, as the options say."""
    from pspo.training.monitor import Monitor
    from pspo.training.trackers import named_trackers

    with progress(quiet) as show:
        yield Monitor(show, show_note, named_trackers(trackers))


def print_result(result: dict[str, Any]) -> None:
    from pspo.report.terminal import result_table

    result_table(result)


def print_run(run: Run) -> None:
    """Of a finished run: its result and where it is."""
    print_result(run.read("result"))
    print_verdict(run)
    show(f"run:    {run.path}")
    show(f"report: {run.path / 'report.html'}")


def print_verdict(run: Run) -> None:
    """Whether the policy is better than the dataset, and why."""
    if (run.path / "comparison.json").exists():
        comparison = run.read("comparison", "headline", "reasons")
        show(f"verdict: {comparison['headline']}")
        for reason in comparison["reasons"]:
            show(f"  {reason}")


def print_headline(run: Run) -> None:
    """The verdict on one of several runs, in one line."""
    if (run.path / "comparison.json").exists():
        show(f"{run.path.name}: {run.read('comparison', 'headline')['headline']}")


def print_failures(failures: dict[str, str]) -> None:
    for name, why in failures.items():
        show_error(f"{name} failed: {why}")
