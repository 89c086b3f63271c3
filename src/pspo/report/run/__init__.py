"""The page of one run: contents.py reads the run directory, page.py lists the sections, one module each.

Called through `pspo.report.write_report`.
"""

from pspo.report.run.page import write_report

__all__ = ["write_report"]
