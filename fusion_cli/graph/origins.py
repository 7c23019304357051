"""Where a value comes from, as far as that says whether it could be a constant."""

from __future__ import annotations

from typing import Literal

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex

QUANTISED = frozenset(
    """
    ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul QuantizeLinear
    """.split()
)
FILTERS = frozenset({"Conv", "ConvTranspose"})
"""Operators whose second operand is weights, wherever they come from..."""
_WEIGHTED = FILTERS | {"Gemm"}
"""...and those where it is, if the caller gives it."""


Origin = Literal["constant", "overridable", "given", "foldable", "dequantized", "data"]
"""A graph input is overridable if it has an initializer, and given if it looks like weights; what is computed is
foldable if it is from constants; data is what is computed with, rather than a weight."""


def origin_of(value: ir.Value, index: GraphIndex) -> Origin:
    """What could be done about a value that is no constant, by where it comes from."""
    if index.is_constant(value):
        return "constant"
    if value in index.graph_inputs:
        if value.const_value is not None:
            return "overridable"
        is_matrix = value.shape is not None and value.shape.is_static() and len(value.shape) <= 2
        return "given" if is_matrix or not index.weighted(value).isdisjoint(_WEIGHTED) else "data"
    producer = index.producer(value)
    if producer is not None:
        inputs = [v for v in producer.inputs if v is not None]
        if inputs and all(map(index.is_constant, inputs)):
            return "foldable"
        if producer.op_type in QUANTISED:
            return "dequantized"
    return "data"
