"""The parts of a page over many runs: tables as data, figures, and how both become HTML, Markdown and LaTeX."""
