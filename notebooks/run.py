"""Run the notebook again and store its outputs: `make notebook`, some minutes of one core."""

from pathlib import Path

import nbclient
import nbformat

path = Path(__file__).with_name("liquidation.ipynb")
book = nbformat.read(path, as_version=4)
# No times of execution: they would be the only difference between two runs.
nbclient.NotebookClient(
    book, timeout=3600, startup_timeout=600, record_timing=False, resources={"metadata": {"path": str(path.parent)}}
).execute()
nbformat.write(book, path)
