"""`pspo report`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pspo.cli import common
from pspo.core.errors import not_empty
from pspo.core.terminal import show


def add_report(commands: Any) -> None:
    help = "Write the report page of a run or an experiment again, or one page about several runs."
    parser = common.add_command(commands, "report", _report, help)
    parser.add_argument("folders", nargs="+", metavar="DIR", help="a run, an experiment, or folders that contain runs")
    parser.add_argument(
        "--out", type=not_empty, metavar="DIR", help="folder for a page about several runs (default: the first DIR)"
    )


def _report(arguments: argparse.Namespace) -> None:
    from pspo.report.write import write_reports

    for path in write_reports([Path(folder) for folder in arguments.folders], arguments.out and Path(arguments.out)):
        show(path)
