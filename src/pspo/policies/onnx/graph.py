"""A policy as an ONNX graph: normaliser, network and action scaling in one, from raw observation to raw action.

Written by hand, one function per kind, matching those in pspo.policies.heads without their noise. What only noise needs
(standard deviations, a latent that is zero) is left out of the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper

from pspo.data.normalise import ACTION_MARGIN, Normaliser
from pspo.nets.bounds import MEAN_MAX
from pspo.policies.heads import Fields, Net
from pspo.policies.onnx.discrete import ACTION, LOGITS, PROBABILITIES, add_outputs
from pspo.policies.onnx.encoding import TEXT_OPSET, encoded, graph_inputs
from pspo.policies.onnx.runtime import INPUT, OUTPUT
from pspo.policies.policy import Policy

OPSET, IR_VERSION = 17, 8  # of 2022: old enough for older runtimes, and nothing newer is needed


class Graph:
    """Nodes and constants in the order they are added. Names are numbers, and reveal nothing about the user."""

    def __init__(self) -> None:
        self.features = ""  # the output that holds them
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []

    def __call__(self, operator: str, *inputs: str | np.ndarray | float, to: str = "", **attributes: Any) -> str:
        """Add a node; inputs are earlier outputs, or arrays and numbers stored as constants. Returns its output."""
        output = to or f"{operator}_{len(self.nodes)}"
        if "to_type" in attributes:  # of a cast, whose attribute is called `to`
            attributes["to"] = attributes.pop("to_type")
        names = [given if isinstance(given, str) else self._constant(given) for given in inputs]
        self.nodes.append(helper.make_node(operator, names, [output], **attributes))
        return output

    def _constant(self, value: np.ndarray | float) -> str:
        array = np.asarray(value)
        kind = np.int64 if array.dtype.kind == "i" else np.float32
        return self.store(np.ascontiguousarray(array, kind).reshape(array.shape))

    def store(self, value: np.ndarray | np.float64) -> str:
        """A constant in the type that it has."""
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"constant_{len(self.constants)}"))
        return self.constants[-1].name

    def as_float32(self, given: str) -> str:
        return self("Cast", given, to_type=TensorProto.FLOAT)


def model_bytes(policy: Policy) -> bytes:
    """The whole policy; equal policies give equal bytes."""
    graph = Graph()
    graph.features = encode(graph, policy.norm, encoded(graph, policy.encoder))
    if policy.discrete:
        add_outputs(graph, policy, network(graph, policy.nets["net"], graph.features))
    else:
        unit = GRAPHS[policy.kind](graph, policy.fields, graph.features)
        from_unit(graph, policy.norm, unit)
    made = helper.make_graph(
        graph.nodes,
        "policy",
        graph_inputs(policy.encoder, policy.obs_dim),
        _outputs(policy),
        graph.constants,
    )
    opsets = [helper.make_opsetid("", OPSET)]
    if policy.encoder is not None and policy.encoder.takes_texts:
        opsets.append(TEXT_OPSET)
    model = helper.make_model(made, opset_imports=opsets, ir_version=IR_VERSION, producer_name="pspo")
    return model.SerializeToString(deterministic=True)


def _outputs(policy: Policy) -> list[Any]:
    wide = ["batch", policy.action_dim]
    if not policy.discrete:
        return [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, wide)]
    others = [helper.make_tensor_value_info(name, TensorProto.FLOAT, wide) for name in (LOGITS, PROBABILITIES)]
    return [helper.make_tensor_value_info(ACTION, TensorProto.INT64, ["batch"]), *others]


# Observations to features


def encode(graph: Graph, norm: Normaliser, obs: str = INPUT) -> str:
    """`Normaliser.encode`: z-scores, then the hats of all grid columns."""
    scores = graph("Div", graph("Sub", obs, norm.obs_mean), norm.obs_std)
    if not norm.grid_column.size:
        return scores
    return graph("Concat", scores, _hats(graph, norm, obs), axis=1)


def _hats(graph: Graph, norm: Normaliser, obs: str) -> str:
    """A hat is the rise on its left minus the rise on its right, each between 0 and 1: a matrix of 1, -1 and 0.

    The first point of a grid has no left, so that its constant is 1; points that repeat the last one have no hat.
    """
    points = np.asarray(norm.grid_points)
    grids, width = points.shape
    gap = points[:, 1:] - points[:, :-1]
    column = np.repeat(np.asarray(norm.grid_column, np.int64), width - 1)
    rise = graph("Sub", graph("Gather", obs, column, axis=1), points[:, :-1].reshape(-1))
    rise = graph("Clip", graph("Div", rise, np.where(gap > 0, gap, 1.0).reshape(-1)), 0.0, 1.0)
    real = gap > 0  # whether the right one of two neighbours is a distinct point
    mixing, constant = np.zeros((grids, width - 1, grids, width)), np.zeros((grids, width))
    constant[:, 0] = 1.0
    for g in range(grids):
        for i in np.flatnonzero(real[g]):
            mixing[g, i, g, i + 1], mixing[g, i, g, i] = 1.0, -1.0
    return graph("Gemm", rise, mixing.reshape(grids * (width - 1), grids * width), constant.reshape(-1))


# Features to an action in [-1, 1]


def network(graph: Graph, net: Net, x: str) -> str:
    hidden = hidden_layers(graph, net, x)
    return graph("Gemm", hidden, net.weights[-1], net.biases[-1])


def hidden_layers(graph: Graph, net: Net, x: str) -> str:
    for w, b in zip(net.weights[:-1], net.biases[:-1], strict=True):
        x = ACTIVATIONS[net.activation](graph, graph("Gemm", x, w, b))
    return x


ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "silu": lambda graph, x: graph("Mul", x, graph("Sigmoid", x)),
    "relu": lambda graph, x: graph("Relu", x),
    "tanh": lambda graph, x: graph("Tanh", x),
}


def mixture(graph: Graph, fields: Fields, features: str) -> str:
    """The mean of the heaviest component, chosen before the two tanh."""
    k, d, net = fields["components"], fields["action_dim"], fields["net"]
    hidden = hidden_layers(graph, net, features)
    w, b = net.weights[-1], net.biases[-1]
    means = graph("Gemm", hidden, w[:, k : k + k * d], b[k : k + k * d])
    if k > 1:
        heaviest = graph("ArgMax", graph("Gemm", hidden, w[:, :k], b[:k]), axis=1, keepdims=1)
        each = graph("Reshape", means, np.array([0, k, d]))  # 0: keep the batch size
        means = graph("GatherND", each, heaviest, batch_dims=1)
    mean = graph("Mul", graph("Tanh", graph("Div", means, MEAN_MAX)), MEAN_MAX)
    return graph("Clip", graph("Mul", graph("Tanh", mean), 1.0 + ACTION_MARGIN), -1.0, 1.0)


def tanh_gaussian(graph: Graph, fields: Fields, features: str) -> str:
    net: Net = fields["net"]
    d = net.biases[-1].shape[0] // 2  # the other half are log standard deviations
    w, b = net.weights[-1][:, :d], net.biases[-1][:d]
    means = replace(net, weights=(*net.weights[:-1], w), biases=(*net.biases[:-1], b))
    return graph("Tanh", network(graph, means, features))


def clipped_gaussian(graph: Graph, fields: Fields, features: str) -> str:
    return graph("Tanh", network(graph, fields["net"], features))


def linear_gaussian(graph: Graph, fields: Fields, features: str) -> str:
    return graph("Clip", network(graph, fields["net"], features), -1.0, 1.0)


def deterministic(graph: Graph, fields: Fields, features: str) -> str:
    return graph("Tanh", network(graph, fields["net"], features))


def perturbed(graph: Graph, fields: Fields, features: str) -> str:
    """The decoder's first layer without the rows of the latent, which is zero."""
    decoder: Net = fields["decoder"]
    obs_features = decoder.weights[0].shape[0] - fields["latent_dim"]
    decoder = replace(decoder, weights=(decoder.weights[0][:obs_features], *decoder.weights[1:]))
    imitated = graph("Tanh", network(graph, decoder, features))
    move = graph("Tanh", network(graph, fields["net"], graph("Concat", features, imitated, axis=1)))
    return graph("Clip", graph("Add", imitated, graph("Mul", move, fields["reach"])), -1.0, 1.0)


GRAPHS: dict[str, Callable[[Graph, Fields, str], str]] = {
    "mixture": mixture,
    "tanh-gaussian": tanh_gaussian,
    "clipped-gaussian": clipped_gaussian,
    "linear-gaussian": linear_gaussian,
    "deterministic": deterministic,
    "perturbed": perturbed,
}


# Unit actions to the bounds


def from_unit(graph: Graph, norm: Normaliser, unit: str) -> str:
    """`Normaliser.from_unit`: never past the bounds, and exactly at them at the ends."""
    low, high = np.asarray(norm.action_low), np.asarray(norm.action_high)
    between = graph("Add", graph("Mul", graph("Add", unit, 1.0), np.float32(0.5) * (high - low)), low)
    between = graph("Min", graph("Max", between, low), high)
    below = graph("Where", graph("LessOrEqual", unit, -1.0), low, between)
    return graph("Where", graph("GreaterOrEqual", unit, 1.0), high, below, to=OUTPUT)
