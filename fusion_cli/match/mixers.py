"""What networks of convolutions compute besides: norms and products over the channels, which are put last for it and
first again behind (ConvNeXt), one number of all positions of a channel (squeeze and excitation) or of those in a window
(ResNet's pool), joined channels (Inception, DenseNet), some of them (CSPNet) or all in another order (ShuffleNet), and
norms of them that no convolution takes in."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex
from fusion_cli.operators.image_axes import IMAGE, to_first, to_last
from fusion_cli.operators.registry import GLOBAL_POOLS, POOLS
from fusion_cli.operators.resizes import repeats_of
from fusion_cli.sizes.dims import dims_of

PRODUCTS = ("MatMul", "Gemm")
"""Operators of products, which may be over channels."""
ARRANGEMENTS = ("Concat", "Reshape", "Resize", "Slice", "Split", "Transpose", "Upsample")
"""Operators that may put channels or pixels in another place."""
_NORMS = ("BatchNormalization", "GroupNormalization", "InstanceNormalization")
_REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceSum")


def mixers(index: GraphIndex, is_rowwise: Callable[[ir.Node], bool]) -> frozenset[ir.Node]:
    """The nodes on the ways from a Transpose that puts the channels of images last to one that puts them first again,
    both included, if all between is elementwise or of rows (`is_rowwise`), or a product with a constant."""
    starts, ends, turned = set[ir.Node](), set[ir.Node](), set[ir.Node]()
    for node in index.nodes:
        within = any(index.producer(v) in turned for v in node.inputs)
        if within and _puts(index, node, first=True):
            ends.add(node)
        if _puts(index, node, first=False):
            starts.add(node)
        if node in starts or (within and (node in ends or is_rowwise(node) or _is_product(index, node))):
            turned.add(node)
    ways: set[ir.Node] = set()
    for node in reversed(index.nodes):
        leads = any(n in ends or (n in ways and n not in starts) for n in index.consumers(node.outputs[0]))
        if node in ends or (node in turned and leads):
            ways.add(node)
    return frozenset(ways)


def shuffles(index: GraphIndex) -> frozenset[ir.Node]:
    """The nodes that put the channels of images in another order: a Reshape that makes two axes of them, a Transpose of
    these, and a Reshape that makes them one again."""
    found = set[ir.Node]()
    for node in index.nodes:
        rank = len(perm := _permutation(index, node))
        before = index.producer(node.inputs[0]) if rank > IMAGE and perm == (0, 2, 1, *range(3, rank)) else None
        for after in index.consumers(node.outputs[0]):
            if before is not None and _are_around(before, after, split=True):
                found |= {before, node, after}
    return frozenset(found)


def group_norms(index: GraphIndex) -> frozenset[ir.Node]:
    """The nodes that norm groups of channels as exporters write it: a Reshape that makes channels of the groups, an
    InstanceNormalization, and a Reshape that makes an image of it again."""
    found = set[ir.Node]()
    for node in index.nodes:
        before = index.producer(node.inputs[0]) if _is_norm(index, node, "InstanceNormalization") else None
        for after in index.consumers(node.outputs[0]):
            if before is not None and _are_around(before, after):
                found |= {before, node, after}
    return frozenset(found)


def _are_around(before: ir.Node, after: ir.Node, split: bool = False) -> bool:
    """Whether one Reshape makes something else of an image, with `split` two axes of its channels, and the other an
    image again as it was."""
    if not before.op_type == after.op_type == "Reshape" or before.inputs[0] is None:
        return False
    image, other, again = map(dims_of, (before.inputs[0], before.outputs[0], after.outputs[0]))
    if image is None or other is None or image != again or len(image) < IMAGE or other[0] != image[0]:
        return False
    return not split or (other[3:] == image[2:] and len(other) == len(image) + 1)


def mixes(index: GraphIndex, node: ir.Node) -> bool:
    """Whether the node makes an image of others by channels: joins them, takes some, puts them last or first, repeats
    their pixels, norms them by constants, or makes one number of several positions of each."""
    if node.domain:
        return False
    arranges = _joins(index, node) or _cuts(index, node) or any(_puts(index, node, first=f) for f in (True, False))
    return (
        node.op_type in POOLS
        or arranges
        or _repeats(node)
        or _is_norm(index, node, *_NORMS)
        or _is_global_pool(index, node)
    )


def _joins(index: GraphIndex, node: ir.Node) -> bool:
    shape = node.outputs[0].shape
    if node.op_type != "Concat" or shape is None or len(shape) < IMAGE:
        return False
    return index.attributes(node).get("axis") in (1, 1 - len(shape))


def _repeats(node: ir.Node) -> bool:
    """Whether the node makes an image larger by repeating its pixels."""
    factors = repeats_of(node)
    return factors is not None and len(factors) >= IMAGE and factors[:2] == (1, 1)


def _cuts(index: GraphIndex, node: ir.Node) -> bool:
    """Whether the node takes some channels, which ones of all it makes images of."""
    shape = node.outputs[0].shape
    if node.op_type not in ("Split", "Slice") or shape is None or len(shape) < IMAGE:
        return False
    found = index.attributes(node)
    axes = found.get("axes") if node.op_type == "Slice" else (found.get("axis", 0),)
    constant = all(v is None or index.is_constant(v) for v in node.inputs[1:])
    return constant and axes is not None and all(a in (1, 1 - len(shape)) for a in axes)


def _is_norm(index: GraphIndex, node: ir.Node, *operators: str) -> bool:
    """Whether the node is one of these, as a BatchNormalization is for inference."""
    constant = all(v is not None and index.is_constant(v) for v in node.inputs[1:])
    return node.op_type in operators and not node.domain and constant and len(node.outputs) == 1


def _is_global_pool(index: GraphIndex, node: ir.Node) -> bool:
    """Whether the node makes one number of all positions of each channel of an image, as an image of one position."""
    if node.op_type not in GLOBAL_POOLS.union(_REDUCTIONS) or node.inputs[0] is None:
        return False
    shape = node.inputs[0].shape
    if node.op_type in GLOBAL_POOLS or shape is None:
        return shape is not None
    attributes = index.attributes(node)
    axes = [a % len(shape) for a in attributes.get("axes") or ()]
    return len(shape) > IMAGE and sorted(axes) == list(range(2, len(shape))) and attributes.get("keepdims", 1) == 1


def _puts(index: GraphIndex, node: ir.Node, *, first: bool) -> bool:
    """Whether the node is a Transpose that puts the channels of an image first, or last. What has one axis beside them
    is rather a sequence, of layers with kernels of their own."""
    perm = _permutation(index, node)
    rank = len(perm)
    return rank > IMAGE and perm == (to_first(rank) if first else to_last(rank))


def _permutation(index: GraphIndex, node: ir.Node) -> tuple[int, ...]:
    """That of a Transpose that says one, none of other nodes."""
    is_transpose = node.op_type == "Transpose" and not node.domain
    return tuple(index.attributes(node).get("perm", ())) if is_transpose else ()


def _is_product(index: GraphIndex, node: ir.Node) -> bool:
    """Whether the node multiplies by a constant from the right."""
    return node.op_type in PRODUCTS and not node.domain and index.is_constant(node.inputs[1])
