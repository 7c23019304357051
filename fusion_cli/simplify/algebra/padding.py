"""Pads with nothing, and those with zeros, as the padding of the convolution behind them.

The library's rule fails on a Pad of older opsets, whose sizes are attributes, and takes sizes that callers may override
for constants.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import attribute, opset_version
from fusion_cli.simplify.algebra.edits import Applied, array_of, hand_on, is_one_of, only_reader, producer_of

_OPSET = 11
"""The first in which a Pad has its sizes as inputs."""


def drop_pads(graph: ir.Graph) -> Iterator[Applied]:
    """Take what a Pad that adds nothing gives for its operand, in place."""
    for node in list(graph):
        value = node.inputs[0] if is_one_of(node, "Pad") and opset_version(node) >= _OPSET else None
        sizes = array_of(node.inputs[1]) if value is not None else None
        if value is not None and sizes is not None and not sizes.any():
            hand_on(node, value)
            yield "PadNothing", [node]


def fold_pads(graph: ir.Graph) -> Iterator[Applied]:
    """Fold each Pad that only a Conv reads into it, in place."""
    for node in list(graph):
        pad = producer_of(node.inputs[0], "Pad") if is_one_of(node, "Conv") else None
        if pad is None or only_reader(pad.outputs[0]) is None or pad.inputs[0] is None:
            continue
        sizes = _sizes(pad)
        padding = attribute(node, "auto_pad")
        given = node.attributes.get_ints("pads") if padding == "NOTSET" else ()
        own = given or [0] * (0 if sizes is None else len(sizes))
        if sizes is None or padding not in ("NOTSET", "VALID") or len(own) != len(sizes):
            continue
        node.attributes.pop("auto_pad", None)
        node.attributes["pads"] = ir.AttrInt64s("pads", [a + b for a, b in zip(own, sizes, strict=True)])
        node.replace_input_with(0, pad.inputs[0])
        yield "PadConv", [pad, node]


def _sizes(pad: ir.Node) -> list[int] | None:
    """How many zeros a Pad adds before and after the axes behind the first two; None where it does anything else."""
    result = pad.outputs[0].shape
    pads, value, axes = (pad.inputs[i] if i < len(pad.inputs) else None for i in (1, 2, 3))
    if opset_version(pad) < _OPSET or attribute(pad, "mode") != "constant" or result is None:
        return None
    sizes, zero = array_of(pads), array_of(value)
    if sizes is None or (value is not None and (zero is None or zero.any())):
        return None
    rank = len(result)
    chosen = np.arange(rank) if axes is None else array_of(axes)
    if chosen is None:
        return None
    whole = np.zeros((2, rank), np.int64)
    whole[:, chosen] = sizes.reshape(2, -1)
    return None if whole[:, :2].any() or (whole < 0).any() else [int(n) for n in whole[:, 2:].ravel()]
