"""`pspo inspect` on the command line."""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from pspo.cli.parsing import add_command
from pspo.core.errors import UserError

HELP = "What the policy of a run does in one state, and why: as text and as a figure."
FORMS = (".png", ".svg")


def add_inspect(commands: Any) -> None:
    parser = add_command(commands, "inspect", _inspect, HELP)
    # Without this `--state -1,2` is taken for an option; argparse knows single negative numbers only.
    parser._negative_number_matcher = re.compile(r"^-(\d|\.|inf|nan)", re.IGNORECASE)
    parser.add_argument("run", metavar="RUN", help="directory of a finished run")
    parser.add_argument("--state", metavar="X,X,...", help="a raw observation, columns in the log's order")
    parser.add_argument("--row", type=int, metavar="N", help="a row of the log, from 0; shows also what followed there")
    parser.add_argument("--data", metavar="FILE", help="take the row from this log instead, read with the same columns")
    parser.add_argument(
        "--out", metavar="FILE", help="the figure, .png or .svg (default: a name of its own in the run)"
    )
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="XLA threads (default: 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--quiet", action="store_true", help="no progress display")


def _inspect(arguments: argparse.Namespace) -> None:
    from pspo.core.compute import require_threads, use_threads

    use_threads(require_threads(arguments.threads))
    out = _writable(arguments.out)
    from pspo.core.progress import for_terminal, silent
    from pspo.evaluation.inspect.inspection import inspect_policy

    say = (lambda text: None) if arguments.quiet else (lambda text: print(text, file=sys.stderr))
    with contextlib.nullcontext(silent) if arguments.quiet else for_terminal() as progress:
        found = inspect_policy(arguments.run, arguments.state, arguments.row, arguments.data, progress, say)
    from pspo.evaluation.inspect.figure import write_figure

    path = write_figure(found, out or Path(found.run) / found.figure_name)
    if arguments.json:
        print(json.dumps(found.as_dict() | {"figure": str(path)}, indent=2))
        return
    from pspo.evaluation.inspect.text import show

    show(found)
    print(f"\nfigure: {path}")


def _writable(out: str | None) -> Path | None:
    """Looked at first: the work before a figure takes a minute."""
    if out is None:
        return None
    path = Path(out)
    if path.suffix not in FORMS:
        raise UserError(f"{path} ends neither in .png nor in .svg: give such a name, as state.png.")
    if not path.parent.is_dir():
        raise UserError(f"the folder {path.parent} does not exist: make it first, or write to another.")
    if path.is_dir():
        raise UserError(f"{path} is a folder: give another name.")
    return path
