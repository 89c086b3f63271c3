"""`pspo ...`: builds the parser, runs a command, and turns errors into one sentence and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from pspo import __version__
from pspo.cli import (
    collect,
    common,
    config,
    data,
    evaluate,
    experiment,
    export,
    inspect,
    listing,
    ope,
    report,
    resume,
    train,
)
from pspo.cli.signals import Terminated, exit_now, handle_signals
from pspo.core.errors import EXPECTED, PROBLEM, exit_code_and_message
from pspo.core.terminal import readable_output, show_error, show_note, show_warning

BROKEN_PIPE, INTERRUPTED, TERMINATED = 141, 130, 143
PACKAGE = Path(__file__).parents[1]


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns the exit code. Signals are handled only for the command line of the process itself."""
    try:
        with readable_output():
            return _run(argv)
    except BrokenPipeError:  # the reader closed the pipe: `pspo list | head`
        return BROKEN_PIPE
    finally:
        if argv is None:
            _drop_unwritten()


def _run(argv: list[str] | None) -> int:
    arguments = argparse.Namespace(stopped=common.NOTHING_LOST)
    try:
        try:
            _parser().parse_args(argv, arguments)
            with _one_line_warnings(), contextlib.nullcontext() if argv is not None else handle_signals():
                return arguments.command(arguments) or 0
        finally:
            _flush()
    except BrokenPipeError:
        raise
    except EXPECTED as problem:
        code, message = exit_code_and_message(problem)
        show_error(message)
        return code
    except KeyboardInterrupt as stop:
        show_note(f"stopped; {arguments.stopped}.")
        code = TERMINATED if isinstance(stop, Terminated) else INTERRUPTED
        if argv is None:
            exit_now(code)
        return code


def _flush() -> None:
    """While a full disk or a closed pipe can still be reported; without a stdout (`>&-`) there is nothing to do."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _drop_unwritten() -> None:
    """What could not be written would be tried again at the end of the process, and fail without a sentence."""
    try:
        _flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Parser(argparse.ArgumentParser):
    """Reports a mistake in the command line as any other error: in one line."""

    def error(self, message: str) -> NoReturn:
        show_error(f"{message.removesuffix('.')}: `{self.prog} --help` shows the options.")
        raise SystemExit(PROBLEM)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="pspo", description="Learn a policy from logged data.")
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
            show_warning(str(text))

    warnings.showwarning = show
    try:
        yield
    finally:
        warnings.showwarning = usual
