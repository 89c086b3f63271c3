"""`pspo inspect`."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from pspo.cli import common
from pspo.core.compute import require_device, use_device
from pspo.core.errors import UserError, not_empty
from pspo.core.terminal import show

HELP = "Show what the policy of a run does in one state, and why: as text and as a figure."
FORMATS = (".png", ".svg")


def add_inspect(commands: Any) -> None:
    parser = common.add_command(commands, "inspect", _inspect, HELP)
    common.allow_negative_lists(parser)
    parser.add_argument("run", metavar="RUN", help="directory of a finished run")
    parser.add_argument(
        "--state",
        metavar="X,X,...",
        help="a raw observation: by name in any order (price=1.2,stock=30), or numbers in the order of the dataset",
    )
    parser.add_argument(
        "--row", type=int, metavar="N", help="a row of the dataset, from 0; also shows what followed in the data"
    )
    parser.add_argument("--data", metavar="FILE", help="take the row from this file, read with the same columns")
    parser.add_argument(
        "--out", type=not_empty, metavar="FILE", help="figure, .png or .svg (default: a new name in the run directory)"
    )
    common.add_threads(parser)
    common.add_device(parser)
    common.add_json(parser)
    common.add_quiet(parser)


def _inspect(arguments: argparse.Namespace) -> None:
    common.set_threads(1 if arguments.threads is None else arguments.threads)
    use_device(arguments.device)
    require_device()
    out = _checked_output(arguments.out)
    _require_writable(out.parent if out else Path(arguments.run))
    from pspo.evaluation.inspect.inspection import inspect_policy

    with common.reporter(arguments.quiet) as reporter:
        inspection = inspect_policy(arguments.run, arguments.state, arguments.row, arguments.data, reporter=reporter)
    from pspo.evaluation.inspect.figure import write_figure

    path = write_figure(inspection, out or Path(inspection.run) / inspection.figure_name)
    if arguments.json:
        show(json.dumps(inspection.as_dict() | {"figure": str(path)}, indent=2))
        return
    from pspo.evaluation.inspect.print_inspection import print_inspection

    print_inspection(inspection)
    show(f"\nfigure: {path}")


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


def _require_writable(folder: Path) -> None:
    """For the figure; tried first as well, as the run may be somebody else's."""
    if not folder.is_dir():
        return  # `inspect_policy` refuses what is no run
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise UserError(f"no figure can be written to {folder} ({problem.strerror}): give --out.") from None
