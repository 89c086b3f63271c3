"""Trained policies without their training code: the policy file (policy.py), its NumPy heads (heads.py), ONNX (onnx/).

Called by runs, report, evaluation, training, experiments and cli. Names are imported when they are first used: a policy
file is served with NumPy and safetensors alone, an exported one with NumPy and onnxruntime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pspo.core.lazy import lazy_names

_HOMES = {
    "Policy": "policy",
    "load_policy": "policy",
    "from_network": "policy",
    "to_network": "policy",
    "OnnxPolicy": "onnx.runtime",
    "JaxPolicy": "jax_policy",
}

__all__ = ["JaxPolicy", "OnnxPolicy", "Policy", "from_network", "load_policy", "to_network"]

if TYPE_CHECKING:
    from pspo.policies.jax_policy import JaxPolicy
    from pspo.policies.onnx.runtime import OnnxPolicy
    from pspo.policies.policy import Policy, from_network, load_policy, to_network

__getattr__ = lazy_names(__name__, _HOMES)
