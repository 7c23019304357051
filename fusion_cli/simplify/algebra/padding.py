"""Pads with nothing, and those with zeros, as the padding of the convolution behind them; what is cut off a
convolution's end, as padding that it does without.

The library's rule fails on a Pad of older opsets, whose sizes are attributes, and takes sizes that callers may override
for constants.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from fusion_cli.operators.operands import operand
from fusion_cli.operators.paddings import has_sizes, pads_of
from fusion_cli.operators.versions import attribute, opset_version
from fusion_cli.simplify.algebra.edits import Applied, array_of, hand_on, is_one_of, only_reader, producer_of

_SLICE_OPSET = 10
"""The first in which a Slice has its sizes as inputs."""
_MUCH = 1 << 40
"""More than any padding."""


def drop_pads(graph: ir.Graph) -> Iterator[Applied]:
    """Take what a Pad that adds nothing gives for its operand, in place."""
    for node in list(graph):
        value = node.inputs[0] if has_sizes(node) else None
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


def fold_slices(graph: ir.Graph) -> Iterator[Applied]:
    """Let each Conv pad less whose last positions along an axis a Slice cuts off that alone reads them, in place."""
    for node in list(graph):
        conv = producer_of(node.inputs[0], "Conv") if is_one_of(node, "Slice") else None
        if conv is None or only_reader(conv.outputs[0]) is None or attribute(conv, "auto_pad") != "NOTSET":
            continue
        pads, whole, cut = conv.attributes.get_ints("pads"), conv.outputs[0].shape, _ends(node)
        if not pads or whole is None or cut is None:
            continue
        strides = conv.attributes.get_ints("strides") or [1] * (len(whole) - 2)
        left = list(pads)
        for axis, end in cut.items():
            gone = _cut_off(whole[axis], end)
            left[len(pads) // 2 + axis - 2] -= _MUCH if gone is None else gone * strides[axis - 2]
        if min(left) >= 0:
            conv.attributes["pads"] = ir.AttrInt64s("pads", left)
            conv.outputs[0].shape = node.outputs[0].shape
            hand_on(node, conv.outputs[0])
            yield "ConvSlice", [conv, node]


def _cut_off(size: int | ir.SymbolicDim, end: int) -> int | None:
    """How many positions lie behind an end; None where that is not known."""
    if not isinstance(size, int):
        return -end if end < 0 else None
    return size - min(end if end >= 0 else size + end, size)


def _ends(node: ir.Node) -> dict[int, int] | None:
    """Where a Slice ends, by axis behind the first two; None where it does not begin at the start or leaves something
    out."""
    shape = node.outputs[0].shape
    if opset_version(node) < _SLICE_OPSET or shape is None or len(node.inputs) < 4:
        return None
    starts, ends, axes, steps = (array_of(operand(node, i)) for i in range(1, 5))
    if starts is None or ends is None or axes is None or (len(node.inputs) > 4 and steps is None):
        return None
    if starts.any() or (steps is not None and (steps != 1).any()):
        return None
    found = {int(a) % len(shape): int(e) for a, e in zip(axes, ends, strict=True)}
    return found if min(found, default=0) > 1 else None


def _sizes(pad: ir.Node) -> list[int] | None:
    """How many zeros a Pad adds before and after the axes behind the first two; None where it does anything else."""
    pads, value, axes = (operand(pad, i) for i in (1, 2, 3))
    found, zero = pads_of(pad, "constant"), array_of(value)
    if found is None or any(v is not None and array_of(v) is None for v in (pads, value, axes)):
        return None
    if (zero is not None and zero.any()) or any(n for sizes in found for n in sizes[:2]):
        return None
    return [n for sizes in found for n in sizes[2:]]
