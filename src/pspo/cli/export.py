"""`pspo export`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from pspo.cli import common
from pspo.core.terminal import show

HELP = "Export the policy of a run as one ONNX file, with a description of its inputs and outputs as JSON."


def add_export(commands: Any) -> None:
    parser = common.add_command(commands, "export", _export, HELP)
    parser.add_argument("run", metavar="RUN", help="a run directory or a policy file")
    parser.add_argument("out", metavar="OUT.onnx", help="the description is OUT.json; both are replaced if they exist")


def _export(arguments: argparse.Namespace) -> None:
    from pspo.policies.onnx.runtime import contract_path
    from pspo.runs.export import export_policy

    out = export_policy(arguments.run, arguments.out)
    checked = json.loads(contract_path(out).read_text())["checked"]
    difference = max(checked["largest_difference"].values())
    of = "the action's range" if "width" in checked["of"] else checked["of"]
    show(f"policy:   {out}")
    show(f"contract: {contract_path(out)}")
    show(f"checked:  {checked['states']} states, at most {difference:.1e} of {of} from JAX and NumPy")
