"""Images beside what a gate by channel leaves of them: x + x * gate is x * (gate + 1), where the gate is small and x is
not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from fusion_cli.simplify.algebra.edits import Applied, add_constant, become, graph_of, is_one_of, only_reader

_TYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16)
_GATES = ("HardSigmoid", "Sigmoid")
"""What is known to be between 0 and 1, so that one more loses nothing to speak of."""
_RANK = 4


def combine_gates(graph: ir.Graph) -> Iterator[Applied]:
    """Write an image plus the same image behind a gate by channel as one product, in place."""
    for node in list(graph):
        if is_one_of(node, "Add") and node.outputs[0].dtype in _TYPES and (found := _gated(node)) is not None:
            product, value, gate = found
            dtype = node.outputs[0].dtype
            assert dtype is not None
            name = product.outputs[0].name
            one = add_constant(graph_of(node), f"{name}_one", np.ones((), dtype.numpy()))
            become(product, "Add", [gate, one])
            product.outputs[0].shape = gate.shape
            become(node, "Mul", [value, product.outputs[0]])
            yield "AddMul", [product, node]


def _gated(node: ir.Node) -> tuple[ir.Node, ir.Value, ir.Value] | None:
    """The product, the image and the gate of an image plus the two's product."""
    first, second = node.inputs
    for value, other in ((first, second), (second, first)):
        product = None if other is None else other.producer()
        if value is None or other is None or product is None or not is_one_of(product, "Mul"):
            continue
        gates = [v for v in product.inputs if v is not value]
        if only_reader(other) is not None and len(gates) == 1 and gates[0] is not None and _is_gate(gates[0], value):
            return product, value, gates[0]
    return None


def _is_gate(gate: ir.Value, image: ir.Value) -> bool:
    """Whether a value is a number between 0 and 1 for every channel of an image that has as many."""
    producer, sizes, whole = gate.producer(), gate.shape, image.shape
    if producer is None or not is_one_of(producer, *_GATES) or sizes is None or whole is None:
        return False
    if len(sizes) != _RANK or len(whole) != _RANK or sizes[2] != 1 or sizes[3] != 1:
        return False
    return isinstance(sizes[1], int) and sizes[1] == whole[1]
