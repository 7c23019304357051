"""What nodes read, of which not every one is there."""

from __future__ import annotations

import onnx_ir as ir


def operand(node: ir.Node, index: int) -> ir.Value | None:
    """The operand of this index; None where the node has none."""
    return node.inputs[index] if index < len(node.inputs) else None


def tensor_of(node: ir.Node, index: int) -> ir.TensorProtocol | None:
    """What an operand holds, if that lies in the model."""
    value = operand(node, index)
    return None if value is None else value.const_value
