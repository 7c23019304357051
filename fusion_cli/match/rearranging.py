"""What arranges the channels and pixels of images and computes nothing: joined channels (Inception, DenseNet), some of
them (CSPNet) or all in another order (ShuffleNet), images turned over or made sequences of, and larger ones of them, by
repeated pixels or by channels that become pixels (ESPCN)."""

from __future__ import annotations

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex
from fusion_cli.operators.image_axes import IMAGE, to_first, to_last
from fusion_cli.operators.paddings import MIRRORS, pads_of
from fusion_cli.operators.resizes import repeats_of
from fusion_cli.sizes.dims import dims_of

ARRANGEMENTS = ("Concat", "DepthToSpace", "Pad", "Reshape", "Resize", "Slice", "Split", "Transpose", "Upsample")
"""Operators that may do so."""


def arranges(index: GraphIndex, node: ir.Node) -> bool:
    """Whether the node by itself does so: joins images by channels, takes some channels, puts them last or first, or
    repeats the pixels."""
    if node.domain or node.op_type not in ARRANGEMENTS:
        return False
    turns = any(puts(index, node, IMAGE, first=f) for f in (True, False))
    return (
        turns
        or is_of_channels(index, node, last=False)
        or _repeats(node)
        or _makes_pixels(node)
        or _mirrors(index, node)
    )


def rearranged(index: GraphIndex) -> frozenset[ir.Node]:
    """The nodes that do so together."""
    return _shuffles(index) | _flattened(index)


def _shuffles(index: GraphIndex) -> frozenset[ir.Node]:
    """The nodes that put the channels of images in another order: a Reshape that makes two axes of them, a Transpose of
    these, and a Reshape that makes them one again."""
    found = set[ir.Node]()
    for node in index.nodes:
        rank = len(perm := _permutation(index, node))
        before = index.producer(node.inputs[0]) if rank > IMAGE and perm == (0, 2, 1, *range(3, rank)) else None
        for after in index.consumers(node.outputs[0]):
            if before is not None and are_around(before, after, split=True):
                found |= {before, node, after}
    return frozenset(found)


def _flattened(index: GraphIndex) -> frozenset[ir.Node]:
    """The nodes that make a sequence of the positions of an image, with the channels last, or an image of a sequence: a
    Reshape that makes one axis of all positions, or several of one, and a Transpose."""
    found = set[ir.Node]()
    for node in index.nodes:
        if _permutation(index, node) == to_last(IMAGE):
            before = index.producer(node.inputs[0])
            found |= {before, node} if before is not None and _keeps_channels(before, before.inputs[0]) else set()
            ends = [n for n in index.consumers(node.outputs[0]) if _keeps_channels(n, n.outputs[0])]
            found |= {node, *ends} if ends else set()
    return frozenset(found)


def _keeps_channels(node: ir.Node, image: ir.Value | None) -> bool:
    """Whether a Reshape of an image, or to one, keeps the batch and the channels, of three axes."""
    if node.op_type != "Reshape" or node.inputs[0] is None or image is None:
        return False
    before, after, whole = map(dims_of, (node.inputs[0], node.outputs[0], image))
    if before is None or after is None or whole is None or before[:2] != after[:2]:
        return False
    return len(whole) > IMAGE and IMAGE in (len(before), len(after))


def are_around(before: ir.Node, after: ir.Node, split: bool = False) -> bool:
    """Whether one Reshape makes something else of an image, with `split` two axes of its channels, and the other an
    image again as it was."""
    if not before.op_type == after.op_type == "Reshape" or before.inputs[0] is None:
        return False
    image, other, again = map(dims_of, (before.inputs[0], before.outputs[0], after.outputs[0]))
    if image is None or other is None or image != again or len(image) < IMAGE or other[0] != image[0]:
        return False
    return not split or (other[3:] == image[2:] and len(other) == len(image) + 1)


def is_of_channels(index: GraphIndex, node: ir.Node, *, last: bool) -> bool:
    """Whether the node joins the channels of images, which come first or last, or takes some of them, which ones of all
    it makes images of."""
    shape = node.outputs[0].shape
    if node.domain or node.op_type not in ("Concat", "Split", "Slice") or shape is None or len(shape) < IMAGE:
        return False
    found = index.attributes(node)
    axes = found.get("axes") if node.op_type == "Slice" else (found.get("axis", 0),)
    constant = node.op_type == "Concat" or _is_told(index, node)
    wanted = (-1, len(shape) - 1) if last else (1, 1 - len(shape))
    return constant and axes is not None and all(a in wanted for a in axes)


def _is_told(index: GraphIndex, node: ir.Node) -> bool:
    """Whether all that a node reads but its first operand is constant."""
    return all(v is None or index.is_constant(v) for v in node.inputs[1:])


def _repeats(node: ir.Node) -> bool:
    """Whether the node makes an image larger by repeating its pixels."""
    factors = repeats_of(node)
    return factors is not None and len(factors) >= IMAGE and factors[:2] == (1, 1)


def _makes_pixels(node: ir.Node) -> bool:
    """Whether the node makes pixels of an image's channels."""
    shape = node.inputs[0].shape if node.op_type == "DepthToSpace" and node.inputs[0] is not None else None
    return shape is not None and isinstance(shape[1], int)


def _mirrors(index: GraphIndex, node: ir.Node) -> bool:
    """Whether the node adds to the ends of an image's axes what lies near them."""
    found = pads_of(node, *MIRRORS)
    shape = node.inputs[0].shape if found is not None and node.inputs[0] is not None else None
    if found is None or shape is None or not _is_told(index, node):
        return False
    pads = list(map(max, *found))
    return not any(pads[:2]) and all(isinstance(n, int) and n > p for n, p in zip(shape, pads, strict=True) if p)


def puts(index: GraphIndex, node: ir.Node, least: int, *, first: bool) -> bool:
    """Whether the node is a Transpose that puts the channels of an image, of so many axes at least, first or last."""
    perm = _permutation(index, node)
    rank = len(perm)
    return rank >= least and perm == (to_first(rank) if first else to_last(rank))


def _permutation(index: GraphIndex, node: ir.Node) -> tuple[int, ...]:
    """That of a Transpose that says one, none of other nodes."""
    is_transpose = node.op_type == "Transpose" and not node.domain
    return tuple(index.attributes(node).get("perm", ())) if is_transpose else ()
