"""A policy as ONNX: graph.py builds it, check.py compares it with the policy, export.py writes it, runtime.py runs it.

Called by runs/export.py and cli. Names are imported when they are first used: runtime.py needs no onnx and no JAX.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pspo.core.lazy import lazy_names

_HOMES = {
    "OnnxPolicy": "runtime",
    "contract_path": "runtime",
    "write_onnx": "export",
}

__all__ = ["OnnxPolicy", "contract_path", "write_onnx"]

if TYPE_CHECKING:
    from pspo.policies.onnx.export import write_onnx
    from pspo.policies.onnx.runtime import OnnxPolicy, contract_path

__getattr__ = lazy_names(__name__, _HOMES)
