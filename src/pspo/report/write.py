"""`pspo report DIR...`: whatever the folders hold, the page that fits it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pspo.core.errors import UserError
from pspo.report import records
from pspo.report.run.contents import drawing
from pspo.report.run.page import write_report
from pspo.report.summary.page import write_summary


def write_reports(folders: Sequence[Path], out: Path | None = None) -> list[Path]:
    """One run: its own page. One experiment: its page. Anything else: one page over all runs in it."""
    for folder in folders:
        if not folder.exists():
            raise UserError(f"there is no folder {folder}: name a run, an experiment, or folders with runs in them.")
    if len(folders) == 1 and out is None:
        if (folders[0] / "config.json").exists():
            return [write_report(folders[0])]
        if folders[0].is_file() or (folders[0] / records.FILE_NAME).exists():
            with drawing(folders[0]):
                return write_summary(records.load(folders[0]), folders[0] if folders[0].is_dir() else folders[0].parent)
    place = out or folders[0]
    found = records.gather(folders, place)
    place.mkdir(parents=True, exist_ok=True)
    with drawing(place):
        return write_summary(found, place)
