"""Means over a softmax of channels, as detectors of objects take for the sides of a box, with the channels last.

A runtime moves channels to the end and back for a softmax over them, and a convolution of one channel that sums them up
is a matrix product then.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.image_axes import to_first, to_last
from fusion_cli.operators.versions import opset_version
from fusion_cli.simplify.algebra.edits import (
    Applied,
    Array,
    add_constant,
    array_of,
    become,
    graph_of,
    is_one_of,
    only_reader,
    permutation,
    producer_of,
    put_before,
)

_OPSET = 13
"""The first whose Softmax is over one axis."""
_RANK = 4
_LAST, _BACK = to_last(_RANK), to_first(_RANK)
"""The permutations that put channels last, and back. One channel is moved at no cost."""


@dataclass(frozen=True, eq=False)
class _Mean:
    """Transpose -> Softmax -> Conv, with `weight` by channel."""

    transpose: ir.Node
    softmax: ir.Node
    conv: ir.Node
    weight: Array


def put_channels_last(graph: ir.Graph) -> Iterator[Applied]:
    """Write a softmax over channels and the convolution that makes one of them with the channels last, in place."""
    for node in list(graph):
        found = _mean(node) if is_one_of(node, "Conv") and opset_version(node) >= _OPSET else None
        if found is None:
            continue
        perm = permutation(found.transpose)
        assert perm is not None
        found.transpose.attributes["perm"] = ir.AttrInt64s("perm", [perm[i] for i in _LAST])
        found.softmax.attributes["axis"] = ir.AttrInt64("axis", -1)
        for value in (found.transpose.outputs[0], found.softmax.outputs[0]):
            if value.shape is not None:
                value.shape = ir.Shape([value.shape[i] for i in _LAST])
        become(node, "Transpose", [_product(found)], ir.AttrInt64s("perm", _BACK))
        yield "SoftmaxConv", [found.transpose, found.softmax, node]


def _product(found: _Mean) -> ir.Value:
    """What the convolution makes, with its channel last."""
    made, graph = found.conv.outputs[0], graph_of(found.conv)
    column = add_constant(graph, f"{made.name}_column", np.ascontiguousarray(found.weight.reshape(-1, 1)))
    shape = None if made.shape is None else ir.Shape([made.shape[i] for i in _LAST])
    inputs = [found.softmax.outputs[0], column]
    return put_before(found.conv, "MatMul", inputs, f"{made.name}_last", made.type, shape)


def _mean(conv: ir.Node) -> _Mean | None:
    softmax = producer_of(conv.inputs[0], "Softmax")
    transpose = None if softmax is None else producer_of(softmax.inputs[0], "Transpose")
    if softmax is None or transpose is None or len(permutation(transpose) or ()) != _RANK:
        return None
    alone = all(only_reader(node.outputs[0]) is not None for node in (transpose, softmax))
    weight = array_of(conv.inputs[1])
    if not alone or weight is None or not _is_sum(conv, weight):
        return None
    return _Mean(transpose, softmax, conv, weight) if softmax.attributes.get_int("axis", -1) in (1, 1 - _RANK) else None


def _is_sum(conv: ir.Node, weight: Array) -> bool:
    """Whether a convolution adds up the channels at each place, and nothing else."""
    bias = conv.inputs[2] if len(conv.inputs) > 2 else None
    steps = (*(conv.attributes.get_ints("strides") or ()), conv.attributes.get_int("group", 1))
    pads = conv.attributes.get_ints("pads") or ()
    is_point = weight.shape[0] == 1 and weight.shape[2:] == (1, 1)
    return bias is None and is_point and not any(pads) and all(step == 1 for step in steps)
