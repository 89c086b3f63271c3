"""The page over many runs: queries.py looks things up in the results, page.py lists the sections, one module each.

A section (section.py) is sentences, figures and tables as data; rendering.py writes tables as HTML, Markdown and LaTeX.
Called through `pspo.report.write_summary`.
"""

from pspo.report.summary.page import write_summary

__all__ = ["write_summary"]
