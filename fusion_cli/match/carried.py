"""The shape arithmetic that a region has copies of: exporters compute shapes of its tensors, which it asks for."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex
from fusion_cli.operators.registry import COUNTING
from fusion_cli.operators.versions import SHAPE_INPUTS

_SHAPED = frozenset(op for op, _ in SHAPE_INPUTS)
_MAX_SHAPE_NODES = 64


def carried(index: GraphIndex, nodes: Collection[ir.Node]) -> set[ir.Node]:
    """Everything that leads from the nodes' tensors to their shape operands, where it depends on nothing else."""
    inside = set(nodes)
    shapes = [
        v
        for n in nodes
        if n.op_type in _SHAPED
        for i, v in enumerate(n.inputs)
        if v is not None and (n.op_type, i) in SHAPE_INPUTS and not index.is_constant(v)
    ]
    if not shapes:
        return set()
    tensors = {v for n in nodes for v in (*n.inputs, *n.outputs) if v is not None} - set(shapes)
    copied: set[ir.Node] = set()
    for value in shapes:
        chain = _chain(index, value, inside, tensors)
        if chain is not None:
            copied |= chain
    return copied


def _chain(index: GraphIndex, value: ir.Value, inside: set[ir.Node], tensors: set[ir.Value]) -> set[ir.Node] | None:
    """The nodes that compute a shape value from `tensors`, or None where it depends on anything else."""
    chain: set[ir.Node] = set()
    stack = [value]
    while stack:
        current = stack.pop()
        node = index.producer(current)
        if index.is_constant(current) or node in chain or node in inside:
            continue
        if node is None or node.domain or node.op_type not in COUNTING or len(chain) >= _MAX_SHAPE_NODES:
            return None
        chain.add(node)
        if node.op_type in ("Shape", "Size"):
            if node.inputs[0] not in tensors:
                return None
        else:
            stack += [v for v in node.inputs if v is not None]
    return chain
