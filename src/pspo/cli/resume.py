"""`pspo resume`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from pspo.cli import common
from pspo.cli.train import add_run_options
from pspo.core.compute import require_device, use_device
from pspo.core.terminal import show

if TYPE_CHECKING:
    from pspo.runs.directory import Run


def add_resume(commands: Any) -> None:
    help = "Resume a run that was stopped, bit for bit."
    parser = common.add_command(commands, "resume", _resume, help, common.RESUME)
    parser.add_argument("run", metavar="DIR", help="run directory")
    add_run_options(parser, "those that the run was started with")


def _resume(arguments: argparse.Namespace) -> None:
    from pspo.runs.directory import open_run

    run = open_run(arguments.run)
    if run.complete:
        return _complete(run, arguments)
    threads = arguments.threads if arguments.threads is not None else run.read("manifest", "threads")["threads"]
    common.set_threads(threads)
    use_device(arguments.device)
    require_device()
    from pspo.training.train import resume

    with common.monitor(arguments.quiet, arguments.track) as monitor:
        common.print_run(resume(arguments.run, monitor=monitor))


def _complete(run: Run, arguments: argparse.Namespace) -> None:
    common.set_threads(arguments.threads)
    use_device(arguments.device)
    from pspo.training.train import write_missing

    with common.reporter(arguments.quiet) as reporter:
        written = ", ".join(write_missing(run, reporter=reporter))
    show(f"{run.path} is finished already{f'; {written} was missing and is written again' if written else ''}.")
