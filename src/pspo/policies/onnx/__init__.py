"""A policy as ONNX: graph.py builds it, check.py compares it with the policy, export.py writes it, runtime.py runs it.

Called by runs/export.py and cli. Names are imported when they are first used: runtime.py needs no onnx and no JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "OnnxPolicy": "pspo.policies.onnx.runtime",
    "contract_path": "pspo.policies.onnx.runtime",
    "write_onnx": "pspo.policies.onnx.export",
}

__all__ = ["OnnxPolicy", "contract_path", "write_onnx"]

if TYPE_CHECKING:
    from pspo.policies.onnx.export import write_onnx
    from pspo.policies.onnx.runtime import OnnxPolicy, contract_path


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pspo.policies.onnx' has no attribute '{name}'")
