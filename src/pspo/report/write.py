"""`pspo report DIR...`: the page that fits what the folders hold."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pspo.core.errors import UserError
from pspo.report import records
from pspo.report.run.page import write_report
from pspo.report.summary.page import write_summary


def write_reports(folders: Sequence[Path], out: Path | None = None) -> list[Path]:
    """For one run its page, for one experiment its summary page, for anything else one summary page over all runs."""
    for folder in folders:
        if not folder.exists():
            raise UserError(f"there is no folder {folder}: name a run, an experiment, or folders with runs in them.")
    if len(folders) == 1 and out is None:
        if (folders[0] / "config.json").exists():
            return [write_report(folders[0])]
        if folders[0].is_file() or (folders[0] / records.FILE_NAME).exists():
            return write_summary(records.load(folders[0]), folders[0] if folders[0].is_dir() else folders[0].parent)
    folder = out or folders[0]
    results = records.gather(folders, folder)
    folder.mkdir(parents=True, exist_ok=True)
    return write_summary(results, folder)
