"""Where a value comes from, as far as that says whether it could be a constant."""

from __future__ import annotations

from enum import Enum, auto

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


class Origin(Enum):
    """What could be done about a value that is no constant."""

    CONSTANT = auto()
    OVERRIDABLE = auto()
    """A graph input with an initializer."""
    GIVEN = auto()
    """A graph input that looks like weights."""
    FOLDABLE = auto()
    """Computed at run time, from constants."""
    DEQUANTIZED = auto()
    DATA = auto()
    """Something computed with, rather than a weight."""


def origin_of(value: ir.Value, index: GraphIndex) -> Origin:
    """Where the value comes from."""
    if index.is_constant(value):
        return Origin.CONSTANT
    if value in index.graph_inputs:
        if value.const_value is not None:
            return Origin.OVERRIDABLE
        is_matrix = value.shape is not None and value.shape.is_static() and len(value.shape) <= 2
        return Origin.GIVEN if is_matrix or not index.weighted(value).isdisjoint(_WEIGHTED) else Origin.DATA
    producer = index.producer(value)
    if producer is not None:
        inputs = [v for v in producer.inputs if v is not None]
        if inputs and all(map(index.is_constant, inputs)):
            return Origin.FOLDABLE
        if producer.op_type in QUANTISED:
            return Origin.DEQUANTIZED
    return Origin.DATA
