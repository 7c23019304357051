"""What a Pad adds to a value."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.operands import operand, tensor_of
from fusion_cli.operators.versions import attribute, opset_version

_OPSET = 11
"""The first in which a Pad has its sizes as inputs."""
MIRRORS = ("reflect", "edge")
"""Modes in which it adds what the value has near its ends."""


def has_sizes(node: ir.Node) -> bool:
    """Whether the node is a Pad with its sizes as inputs."""
    return node.op_type == "Pad" and not node.domain and opset_version(node) >= _OPSET


def pads_of(node: ir.Node, *modes: str) -> tuple[list[int], list[int]] | None:
    """How much a Pad of one of these modes adds before and after each axis; None where that is not known, or where it
    cuts off. Whether what it says of it are constants the caller has to ask."""
    result = node.outputs[0].shape
    if not has_sizes(node) or result is None or attribute(node, "mode") not in modes:
        return None
    sizes, axes = tensor_of(node, 1), tensor_of(node, 3)
    if sizes is None or (axes is None and operand(node, 3) is not None):
        return None
    whole = np.zeros((2, len(result)), np.int64)
    whole[:, np.arange(len(result)) if axes is None else axes.numpy()] = sizes.numpy().reshape(2, -1)
    before, after = whole.tolist()
    return None if (whole < 0).any() else (before, after)
