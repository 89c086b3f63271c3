"""`pspo inspect`."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from pspo.cli import common
from pspo.core.errors import UserError

HELP = "Show what the policy of a run does in one state, and why: as text and as a figure."
FORMATS = (".png", ".svg")


def add_inspect(commands: Any) -> None:
    parser = common.add_command(commands, "inspect", _inspect, HELP)
    # Otherwise `--state -1,2` is taken for an option: argparse only recognises single negative numbers.
    parser._negative_number_matcher = re.compile(r"^-(\d|\.|inf|nan)", re.IGNORECASE)
    parser.add_argument("run", metavar="RUN", help="directory of a finished run")
    parser.add_argument("--state", metavar="X,X,...", help="a raw observation, columns in the order of the dataset")
    parser.add_argument(
        "--row", type=int, metavar="N", help="a row of the dataset, from 0; also shows what followed in the data"
    )
    parser.add_argument("--data", metavar="FILE", help="take the row from this file, read with the same columns")
    parser.add_argument("--out", metavar="FILE", help="figure, .png or .svg (default: a new name in the run directory)")
    common.add_threads(parser)
    common.add_json(parser)
    common.add_quiet(parser)


def _inspect(arguments: argparse.Namespace) -> None:
    common.set_threads(1 if arguments.threads is None else arguments.threads)
    out = _checked_output(arguments.out)
    from pspo.evaluation.inspect.inspection import inspect_policy

    say = common.message_unless(arguments.quiet)
    with common.progress(arguments.quiet) as progress:
        found = inspect_policy(
            arguments.run, arguments.state, arguments.row, arguments.data, progress=progress, say=say
        )
    from pspo.evaluation.inspect.figure import write_figure

    path = write_figure(found, out or Path(found.run) / found.figure_name)
    if arguments.json:
        print(json.dumps(found.as_dict() | {"figure": str(path)}, indent=2))
        return
    from pspo.evaluation.inspect.print_inspection import print_inspection

    print_inspection(found)
    print(f"\nfigure: {path}")


def _checked_output(out: str | None) -> Path | None:
    """Checked first: what comes before the figure takes a minute."""
    if out is None:
        return None
    path = Path(out)
    if path.suffix not in FORMATS:
        raise UserError(f"{path} ends neither in .png nor in .svg: give a name such as state.png.")
    if not path.parent.is_dir():
        raise UserError(f"the folder {path.parent} does not exist: create it first, or write to another.")
    if path.is_dir():
        raise UserError(f"{path} is a folder: give another name.")
    return path
