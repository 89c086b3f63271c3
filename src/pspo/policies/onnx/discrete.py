"""Discrete actions in ONNX: the part of the graph after the features, its description, and the check before writing.

The graph has three outputs: `action`, the index of the most probable label, or -1 where there is none (a NaN in the
observation, or a mask that leaves nothing); `logits`; `probabilities`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pspo.core.errors import UserError
from pspo.nets.bounds import MASKED
from pspo.policies.heads import categorical_logits
from pspo.policies.policy import Policy, to_network

LOGITS, PROBABILITIES, ACTION = "logits", "probabilities", "action"
TOLERANCE = 1e-5  # of the range of a state's logits, at least one
SINGLES = 20  # states that are also passed one at a time

Outputs = Callable[[np.ndarray], dict[str, np.ndarray]]
"""A batch of raw observations to the outputs of the graph by name."""


def add_outputs(graph: Any, policy: Policy, logits: str) -> None:
    """From the network's output to the three outputs; `graph` is a `graph.Graph`."""
    masked = _masked(graph, policy)
    if masked:
        logits = graph("Where", masked, MASKED, logits)
    graph("Identity", logits, to=LOGITS)
    graph("Softmax", logits, axis=1, to=PROBABILITIES)
    defined = graph("Not", graph("IsNaN", graph("ReduceSum", logits, np.array([1]), keepdims=0)))
    if masked:
        highest = graph("ReduceMax", logits, axes=[1], keepdims=0)
        defined = graph("And", defined, graph("Greater", highest, 0.5 * MASKED))
    best = graph("ArgMax", logits, axis=1, keepdims=0)
    graph("Where", defined, best, np.array(-1), to=ACTION)


def _masked(graph: Any, policy: Policy) -> str:
    """(batch, labels) bool: which labels are not available; empty where there is no mask."""
    rules = policy.arrays["mask"]
    if not len(rules):
        return ""
    label, feature = rules[:, 0].astype(np.int64), rules[:, 1].astype(np.int64)
    values = graph("Gather", graph.features, feature, axis=1)
    broken = graph("Or", graph("Less", values, rules[:, 2]), graph("Greater", values, rules[:, 3]))
    counted = graph("MatMul", graph.as_float32(broken), np.eye(policy.action_dim)[label])
    return graph("Greater", counted, 0.5)


def describe_outputs(policy: Policy) -> dict[str, Any]:
    """For the contract."""
    shape = ["batch", policy.action_dim]
    return {
        "name": ACTION,
        "dtype": "int64",
        "shape": ["batch"],
        "meaning": "index of the most probable label; -1 where an observation has a NaN or the mask leaves no label",
        "labels": [*policy.action_labels],
        "also": [{"name": name, "dtype": "float32", "shape": shape} for name in (LOGITS, PROBABILITIES)],
        **({"names": [*policy.action_names]} if policy.action_names else {}),
    }


def check_discrete(policy: Policy, obs: np.ndarray, outputs: Outputs) -> dict[str, Any]:
    """Largest differences of logits from JAX and NumPy; raises UserError if one is too large or an action differs."""
    encoded = policy.encoded(obs)
    by_numpy = categorical_logits(policy.fields, policy.norm.encode(encoded))
    if not np.isfinite(by_numpy).all():
        raise UserError("this policy gives logits that are not finite, and cannot be exported: train it again.")
    together = outputs(obs)
    few = slice(None, None, len(obs) // SINGLES)
    singly = np.concatenate([outputs(one[None])[LOGITS] for one in obs[few]])
    open_labels = np.where(by_numpy > MASKED, by_numpy, np.nan)
    scale = np.maximum(1.0, np.nan_to_num(np.nanmax(np.abs(open_labels), axis=1, initial=0.0)))[:, None]
    differences = {
        "jax": np.abs(together[LOGITS] - _by_jax(policy, encoded)) / scale,
        "numpy": np.abs(together[LOGITS] - by_numpy) / scale,
        "one state at a time": np.abs(singly - by_numpy[few]) / scale[few],
    }
    for what, difference in differences.items():
        if not difference.max() <= TOLERANCE:
            raise UserError(
                f"the exported graph differs from the policy by {difference.max():.1e} of its logits ({what}), and "
                f"{TOLERANCE:.0e} is allowed: nothing was written; please report this policy."
            )
    close = _require_same_actions(together, by_numpy, scale[:, 0])
    _require_undefined(policy, outputs)
    return {
        "tolerance": TOLERANCE,
        "of": "the largest logit",
        "states": len(obs),
        "decided_by_rounding": close,
        "largest_difference": {what: float(difference.max()) for what, difference in differences.items()},
    }


def _require_same_actions(outputs: dict[str, np.ndarray], logits: np.ndarray, scale: np.ndarray) -> int:
    """Returns the number of states where the two best labels are so close that rounding decides."""
    best = np.sort(logits, axis=1)
    close = best[:, -1] - best[:, -2] <= 4.0 * TOLERANCE * scale
    closed = best[:, -1] <= MASKED
    expected = np.where(closed, -1, logits.argmax(axis=1))
    if (outputs[ACTION] != expected)[~close | closed].any():
        raise UserError("the exported graph takes other actions than the policy: please report this policy.")
    return int((close & ~closed).sum())


def _require_undefined(policy: Policy, outputs: Outputs) -> None:
    if policy.encoder is not None:
        return  # for which a missing value may be defined
    undefined = outputs(np.where(np.eye(policy.obs_dim, dtype=bool), np.nan, policy.norm.obs_mean).astype(np.float32))
    if (undefined[ACTION] != -1).any():
        raise UserError("the exported graph hides a NaN in its input: please report this policy.")


def _by_jax(policy: Policy, obs: np.ndarray) -> np.ndarray:
    import jax

    with jax.default_matmul_precision("highest"):  # an accelerator's default may be less than float32
        return np.asarray(jax.jit(lambda net, obs: net.logits(policy.norm.encode(obs)))(to_network(policy), obs))
