"""`pspo ...`: builds the parser, runs a command, and turns errors into one sentence and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pspo import __version__
from pspo.cli import collect, config, data, evaluate, experiment, export, inspect, listing, ope, report, resume, train
from pspo.cli.signals import Terminated, exit_now, handle_signals
from pspo.core.errors import EXPECTED, exit_code_and_message

INTERRUPTED, TERMINATED = 130, 143
PACKAGE = Path(__file__).parents[1]


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns the exit code. Signals are handled only for the command line of the process itself."""
    arguments = _parser().parse_args(argv)
    try:
        with _one_line_warnings(), contextlib.nullcontext() if argv is not None else handle_signals():
            return arguments.command(arguments) or 0
    except EXPECTED as problem:
        code, message = exit_code_and_message(problem)
        print(f"pspo: {message}", file=sys.stderr)
        return code
    except KeyboardInterrupt as stop:
        print(f"pspo: stopped; {arguments.stopped}.", file=sys.stderr)
        code = TERMINATED if isinstance(stop, Terminated) else INTERRUPTED
        if argv is None:
            exit_now(code)
        return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pspo", description="Learn a policy from logged data.")
    parser.add_argument("--version", action="version", version=f"pspo {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    train.add_train(commands)
    resume.add_resume(commands)
    evaluate.add_evaluate(commands)
    listing.add_list(commands)
    data.add_check_and_data(commands)
    collect.add_collect(commands)
    experiment.add_experiment(commands)
    export.add_export(commands)
    inspect.add_inspect(commands)
    ope.add_ope_and_select(commands)
    report.add_report(commands)
    config.add_config(commands)
    return parser


@contextlib.contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Show warnings of pspo, such as about a renamed setting, in one line each and without a file name."""
    usual, shown = warnings.showwarning, set()

    def show(text: Warning | str, category: type[Warning], filename: str, *more: Any, **named: Any) -> None:
        if not issubclass(category, UserWarning) or not Path(filename).is_relative_to(PACKAGE):
            usual(text, category, filename, *more, **named)
        elif str(text) not in shown:
            shown.add(str(text))
            print(f"pspo: warning: {text}", file=sys.stderr, flush=True)

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual
