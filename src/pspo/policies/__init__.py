"""Trained policies without their training code: the policy file (policy.py), its NumPy heads (heads.py), ONNX (onnx/).

Called by runs, report, evaluation, training, experiments and cli. Names are imported when they are first used: a policy
file is served with NumPy and safetensors alone, an exported one with NumPy and onnxruntime.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "Policy": "pspo.policies.policy",
    "load_policy": "pspo.policies.policy",
    "from_network": "pspo.policies.policy",
    "to_network": "pspo.policies.policy",
    "OnnxPolicy": "pspo.policies.onnx.runtime",
}

__all__ = ["OnnxPolicy", "Policy", "from_network", "load_policy", "to_network"]

if TYPE_CHECKING:
    from pspo.policies.onnx.runtime import OnnxPolicy
    from pspo.policies.policy import Policy, from_network, load_policy, to_network


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'pspo.policies' has no attribute '{name}'")
