"""Transposed convolutions that make images larger without a pixel that is made of two."""

from __future__ import annotations

import onnx_ir as ir

from fusion_cli.operators.versions import attribute, windows


def is_unfolding(node: ir.Node) -> bool:
    """Whether the node is a ConvTranspose in one group, each of whose results is of one pixel: its kernel covers as
    much as it moves by, and nothing is cut off or left out."""
    w = node.inputs[1] if node.op_type == "ConvTranspose" and not node.domain else None
    if w is None or w.shape is None or not w.shape.is_static() or node.attributes.get("output_shape") is not None:
        return False
    kernel = tuple(w.shape.numpy()[2:])
    strides, dilations, pads = windows(node, len(kernel))
    is_whole = attribute(node, "auto_pad") in ("NOTSET", "VALID") and not any(pads)
    is_plain = attribute(node, "group") == 1 and not any(node.attributes.get_ints("output_padding", ()) or ())
    return strides == kernel and is_whole and is_plain and all(d == 1 for d in dilations)
