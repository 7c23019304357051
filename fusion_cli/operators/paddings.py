"""What a Pad adds to a value."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import attribute, opset_version

_OPSET = 11
"""The first in which a Pad has its sizes as inputs."""
MIRRORS = ("reflect", "edge")
"""Modes in which it adds what the value has near its ends."""


def pads_of(node: ir.Node, *modes: str) -> tuple[list[int], list[int]] | None:
    """How much a Pad of one of these modes adds before and after each axis; None where that is not known, or where it
    cuts off. Whether what it says of it are constants the caller has to ask."""
    result = node.outputs[0].shape
    if node.op_type != "Pad" or node.domain or opset_version(node) < _OPSET or result is None:
        return None
    sizes, axes = (_numbers(node, i) for i in (1, 3))
    if attribute(node, "mode") not in modes or sizes is None or (axes is None and _has(node, 3)):
        return None
    whole = np.zeros((2, len(result)), np.int64)
    whole[:, np.arange(len(result)) if axes is None else axes] = sizes.reshape(2, -1)
    before, after = whole.tolist()
    return None if (whole < 0).any() else (before, after)


def _has(node: ir.Node, index: int) -> bool:
    return index < len(node.inputs) and node.inputs[index] is not None


def _numbers(node: ir.Node, index: int) -> np.ndarray | None:
    value = node.inputs[index] if index < len(node.inputs) else None
    tensor = None if value is None else value.const_value
    return None if tensor is None else tensor.numpy()
