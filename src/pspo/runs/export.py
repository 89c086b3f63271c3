"""`pspo.export_policy`: the policy of a finished run, or of a policy file, as an ONNX graph with its contract."""

from __future__ import annotations

import shlex
from pathlib import Path

from pspo.core.errors import UserError
from pspo.policies.onnx.export import write_onnx
from pspo.policies.policy import Policy, load_policy
from pspo.runs.directory import open_run


def export_policy(source: str | Path | Policy, out: str | Path) -> Path:
    """Write the policy of a run directory or a policy file as OUT.onnx, and its contract as OUT.json.

    The graph is run and compared with the policy first; one that disagrees is not written. Both files are replaced if
    they exist. Returns the path of the graph.
    """
    if isinstance(source, Policy):
        return write_onnx(source, Path(out))
    _require_finished(Path(source))
    return write_onnx(load_policy(source), Path(out))


def _require_finished(path: Path) -> None:
    if (path / "config.json").exists() and not open_run(path).finished:
        word = shlex.quote(str(path))
        raise UserError(f"{path} is not finished: continue it with `pspo resume {word}`, then export it.")
