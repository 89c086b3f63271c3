"""The encoder of a policy as nodes of its graph: raw numbers, times and texts in, float32 columns out.

Numbers are subtracted and filled in double precision, as NumPy does it. Without texts the graph has one input with all
columns; with texts it has one input for every column, as a tensor has one type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto, helper

from pspo.data.encoder import CYCLES, EncodedColumn, Encoder
from pspo.policies.onnx.runtime import INPUT

if TYPE_CHECKING:
    from pspo.policies.onnx.graph import Graph

TEXT_OPSET = helper.make_opsetid("ai.onnx.ml", 1)  # one-hot of texts


def graph_inputs(encoder: Encoder | None, obs_dim: int) -> list[Any]:
    """The inputs of the graph, with their types and shapes."""
    if encoder is None:
        return [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", obs_dim])]
    if not encoder.takes_texts:
        return [helper.make_tensor_value_info(INPUT, TensorProto.DOUBLE, ["batch", len(encoder.columns)])]
    types = (TensorProto.STRING if column.categories else TensorProto.DOUBLE for column in encoder.columns)
    names = zip(encoder.raw_names, types, strict=True)
    return [helper.make_tensor_value_info(name, kind, ["batch", 1]) for name, kind in names]


def encoded(graph: Graph, encoder: Encoder | None) -> str:
    """`Encoder.encode`: (batch, width) float32."""
    if encoder is None:
        return INPUT
    if encoder.only_offsets:
        return graph.as_float32(graph("Sub", INPUT, graph.store(encoder.offsets)))
    parts: list[str] = []
    for number, column in enumerate(encoder.columns):
        raw = column.name if encoder.takes_texts else graph("Gather", INPUT, np.array([number]), axis=1)
        parts += _column(graph, column, raw)
    return graph("Concat", *parts, axis=1)


def _column(graph: Graph, column: EncodedColumn, raw: str) -> list[str]:
    """(batch, 1) raw values as (batch, columns) parts."""
    if column.categories:
        # All zeros for a text that is not among the categories.
        ones = graph("OneHotEncoder", raw, domain="ai.onnx.ml", cats_strings=[*column.categories], zeros=1)
        return [graph("Reshape", ones, np.array([-1, len(column.categories)]))]
    missing = graph("IsNaN", raw)
    if column.fill is not None:
        raw = graph("Where", missing, graph.store(np.float64(column.fill)), raw)
    parts = [part for name in column.cyclic for part in _cycle(graph, name, raw)]
    parts = parts or [graph.as_float32(graph("Sub", raw, graph.store(np.float64(column.offset))))]
    return [*parts, graph.as_float32(missing)] if column.fill is not None else parts


def _cycle(graph: Graph, name: str, seconds: str) -> list[str]:
    period, start = (graph.store(np.float64(number)) for number in CYCLES[name])
    turns = graph("Div", graph("Sub", seconds, start), period)
    turn = graph("Sub", turns, graph("Floor", turns))
    angle = graph.as_float32(graph("Mul", turn, graph.store(np.float64(2.0 * np.pi))))
    return [graph("Sin", angle), graph("Cos", angle)]
