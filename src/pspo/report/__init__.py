"""Pages and tables: one page per run (run/), one page over many runs (summary/), and what both are drawn with.

canvas.py, charts.py and markup.py draw, records.py holds many runs as one table, statistics.py compares methods,
published.py has the paper's numbers, terminal.py prints tables. Called by evaluation, training, experiments and cli. A
new figure is a module of run/ or summary/ and one row of the table SECTIONS in the page.py beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pspo.core.lazy import lazy_names

_HOMES = {
    "write_report": "run.page",
    "write_summary": "summary.page",
    "write_reports": "write",
    "Record": "records",
    "Results": "records",
}

__all__ = ["Record", "Results", "write_report", "write_reports", "write_summary"]

if TYPE_CHECKING:
    from pspo.report.records import Record, Results
    from pspo.report.run.page import write_report
    from pspo.report.summary.page import write_summary
    from pspo.report.write import write_reports

__getattr__ = lazy_names(__name__, _HOMES)
