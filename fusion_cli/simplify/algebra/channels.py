"""Channels of zeros, so that those of images between convolutions are whole blocks.

ONNX Runtime's convolutions on CPUs with AVX-512 take channels in blocks of 16. It adds channels of zeros itself, but
not where what reads an image is a pool, or finds fewer than a block or no multiple of four: there the image leaves the
layout. Only weights and biases change: those that make a new channel are zeros, and so are those that read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import opset_version
from fusion_cli.simplify.algebra.blocked import BLOCK, IMAGE_RANK, LINKS, PADDED_THERE, POOLS
from fusion_cli.simplify.algebra.edits import Applied, add_constant, array_of, graph_of, is_one_of, put_before
from fusion_cli.simplify.algebra.layers import Layer, layer_of

_MOST = 2
"""How many times as many channels there may be at the most: what reads them multiplies as many more zeros."""
_PAD_INPUT = 11
"""The first opset in which a Pad has its sizes as an input."""
_LARGEST = 1e3
"""Larger numbers might make one of zeros in the end."""


@dataclass(eq=False)
class _Images:
    """Values whose channels belong together, and the convolutions that make, keep and read these; `is_known` unless
    something else does."""

    count: int
    values: dict[ir.Value, None] = field(default_factory=dict)
    makers: dict[ir.Node, Layer] = field(default_factory=dict)
    keepers: dict[ir.Node, Layer] = field(default_factory=dict)
    readers: dict[ir.Node, Layer] = field(default_factory=dict)
    is_pooled: bool = False
    is_known: bool = True

    @property
    def added(self) -> int:
        return -self.count % BLOCK

    @property
    def gains(self) -> bool:
        """Whether channels of zeros let some operator have the blocked layout, and are not too many."""
        leaves = self.count < BLOCK or self.count % PADDED_THERE > 0
        return 0 < self.added <= (_MOST - 1) * self.count and (self.is_pooled or (leaves and bool(self.readers)))


def pad_channels(graph: ir.Graph) -> Iterator[Applied]:
    """Give images between convolutions channels of zeros, up to whole blocks, in place."""
    seen: set[ir.Value] = set()
    for node in list(graph):
        if not is_one_of(node, "Conv") or node.outputs[0] in seen or not _is_image(node.outputs[0]):
            continue
        images = _images(node.outputs[0])
        seen.update(images.values)
        if images.is_known and images.makers and images.gains:
            _pad(images)
            yield "PadChannels", [*images.makers, *images.keepers, *images.readers]


def pad_read_channels(graph: ir.Graph) -> Iterator[Applied]:
    """Put a Pad before each Conv that finds no multiple of four channels in an image that something else makes."""
    for node in list(graph):
        layer, image = _unaligned(node), node.inputs[0] if node.inputs else None
        if layer is not None and image is not None:
            added = -layer.source.count % PADDED_THERE
            node.replace_input_with(0, _padded(image, layer.source.count, added, node))
            layer.pad(read=added)
            yield "PadConvChannels", [node]


def _unaligned(node: ir.Node) -> Layer | None:
    """A Conv that the blocked layout would take if it read more channels, and read each of them more than once."""
    is_conv = is_one_of(node, "Conv") and opset_version(node) >= _PAD_INPUT
    layer = layer_of(node) if is_conv and node.outputs[0].dtype == ir.DataType.FLOAT else None
    if layer is None or len(layer.shape) != IMAGE_RANK or layer.groups > 1 or layer.result.count < BLOCK:
        return None
    is_unaligned = layer.source.count > BLOCK and layer.source.count % PADDED_THERE > 0
    return layer if is_unaligned and math.prod(layer.shape[2:]) > 1 else None


def _padded(image: ir.Value, count: int, added: int, reader: ir.Node) -> ir.Value:
    """An image of `count` channels with so many channels of zeros more."""
    graph, name = graph_of(reader), f"{image.name}_padded"
    sizes = add_constant(graph, f"{name}_sizes", np.array([0, 0, 0, 0, 0, added, 0, 0]))
    shape = None if image.shape is None else ir.Shape([image.shape[0], count + added, *image.shape[2:]])
    return put_before(reader, "Pad", [image, sizes], name, image.type, shape)


def _pad(images: _Images) -> None:
    for layer in (*images.makers.values(), *images.keepers.values()):
        layer.pad(made=images.added)
    for layer in images.readers.values():
        layer.pad(read=images.added)
    for value in images.values:
        assert value.shape is not None
        value.shape = ir.Shape([value.shape[0], images.count + images.added, *value.shape[2:]])


def _is_image(value: ir.Value | None) -> bool:
    """Whether a value has a known number of channels, and nobody sees them but nodes."""
    if value is None or value.producer() is None or value.is_graph_output() or value.dtype != ir.DataType.FLOAT:
        return False
    return value.shape is not None and len(value.shape) == IMAGE_RANK and isinstance(value.shape[1], int)


def _images(start: ir.Value) -> _Images:
    """All values whose channels are as those of one that a Conv makes, as far as operators are known."""
    assert start.shape is not None
    count = start.shape[1]
    assert isinstance(count, int)
    images = _Images(count)
    pending: list[ir.Value | None] = [start]
    while pending:
        value = pending.pop()
        if value in images.values:
            continue
        if value is None or not _is_image(value) or value.shape is None or value.shape[1] != images.count:
            images.is_known = False
            continue
        images.values[value] = None
        node = value.producer()
        assert node is not None
        pending += _around(node, None, images)
        for reader, index in value.uses():
            pending += _around(reader, index, images)
    return images


def _around(node: ir.Node, index: int | None, images: _Images) -> list[ir.Value | None]:
    """The values with the same channels of a node that reads them as its operand `index`, or with None makes them."""
    if is_one_of(node, "Conv"):
        return _around_conv(node, index, images)
    if not is_one_of(node, *LINKS) or not _is_moderate(node):
        images.is_known = False
        return []
    images.is_pooled |= node.op_type in POOLS
    return [*(v for v in node.inputs if v is not None and array_of(v) is None), *node.outputs]


def _around_conv(node: ir.Node, index: int | None, images: _Images) -> list[ir.Value | None]:
    layer = layer_of(node)
    if layer is None or len(layer.shape) != IMAGE_RANK or layer.bias() is None:
        images.is_known = False
    elif layer.is_depthwise:
        images.keepers[node] = layer
        return [node.inputs[0], node.outputs[0]]
    elif layer.groups > 1:
        images.is_known = False
    else:
        (images.makers if index is None else images.readers)[node] = layer
    return []


def _is_moderate(node: ir.Node) -> bool:
    """Whether the constants of a node are single numbers from which zeros become no infinity."""
    constants = [array for v in node.inputs if (array := array_of(v)) is not None]
    numbers = [a.as_float() for a in node.attributes.values() if a.type == ir.AttributeType.FLOAT]
    return all(a.size == 1 and a.ndim <= IMAGE_RANK for a in constants) and bool(
        (np.abs([*numbers, *(a.item() for a in constants)]) <= _LARGEST).all()
    )
