"""What networks of convolutions compute besides: norms and products over the channels, which are put last for it and
first again behind (ConvNeXt; with one number of all positions in between ConvNeXt V2), one number of all positions of a
channel (squeeze and excitation) or of those in a window (ResNet's pool), and norms of channels or groups that no
convolution takes in."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex
from fusion_cli.match.rearranging import are_around, is_of_channels, puts
from fusion_cli.operators.image_axes import IMAGE
from fusion_cli.operators.registry import GLOBAL_POOLS, POOLS
from fusion_cli.operators.versions import has_weights_by_group

PRODUCTS = ("MatMul", "Gemm")
"""Operators of products, which may be over channels."""
_NORMS = ("BatchNormalization", "GroupNormalization", "InstanceNormalization")
_REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceSum", "ReduceL2")


def mixers(index: GraphIndex, is_rowwise: Callable[[ir.Node], bool]) -> frozenset[ir.Node]:
    """The nodes on the ways from a Transpose that puts the channels of images last to one that puts them first again,
    both included, if all between is elementwise or of rows (`is_rowwise`), a product with a constant, or one number of
    all positions. What has one axis beside the channels, and products over them, is rather a sequence, of layers with
    kernels of their own."""

    def mixes_rows(node: ir.Node) -> bool:
        computes = is_rowwise(node) or _is_product(index, node) or _reduces_positions(index, node, first=1)
        return computes or is_of_channels(index, node, last=True)

    images = _ways(index, IMAGE + 1, mixes_rows)
    return images | _ways(index, IMAGE, is_rowwise)


def _ways(index: GraphIndex, least: int, is_between: Callable[[ir.Node], bool]) -> frozenset[ir.Node]:
    starts, ends, turned = set[ir.Node](), set[ir.Node](), set[ir.Node]()
    for node in index.nodes:
        within = any(index.producer(v) in turned for v in node.inputs)
        if within and puts(index, node, least, first=True):
            ends.add(node)
        if puts(index, node, least, first=False):
            starts.add(node)
        if node in starts or (within and (node in ends or is_between(node))):
            turned.add(node)
    ways: set[ir.Node] = set()
    for node in reversed(index.nodes):
        after = (n for v in node.outputs for n in index.consumers(v))
        leads = any(n in ends or (n in ways and n not in starts) for n in after)
        if node in ends or (node in turned and leads):
            ways.add(node)
    return frozenset(ways)


def group_norms(index: GraphIndex) -> frozenset[ir.Node]:
    """The nodes that norm groups of channels as exporters write it: a Reshape that makes channels of the groups, an
    InstanceNormalization, and a Reshape that makes an image of it again."""
    found = set[ir.Node]()
    for node in index.nodes:
        before = index.producer(node.inputs[0]) if _is_norm(index, node, "InstanceNormalization") else None
        for after in index.consumers(node.outputs[0]):
            if before is not None and are_around(before, after):
                found |= {before, node, after}
    return frozenset(found)


def mixes(index: GraphIndex, node: ir.Node) -> bool:
    """Whether the node computes an image of another by channels: norms them by constants, or makes one number of
    several positions of each."""
    if node.domain:
        return False
    return node.op_type in POOLS or _is_norm(index, node, *_NORMS) or _is_global_pool(index, node)


def _is_norm(index: GraphIndex, node: ir.Node, *operators: str) -> bool:
    """Whether the node is one of these, as a BatchNormalization is for inference."""
    constant = all(v is not None and index.is_constant(v) for v in node.inputs[1:])
    is_one = node.op_type in operators and not node.domain and len(node.outputs) == 1
    return is_one and constant and not has_weights_by_group(node)


def _is_global_pool(index: GraphIndex, node: ir.Node) -> bool:
    """Whether the node makes one number of all positions of each channel of an image, as an image of one position."""
    if node.op_type in GLOBAL_POOLS:
        return node.inputs[0] is not None and node.inputs[0].shape is not None
    return _reduces_positions(index, node, first=2)


def _reduces_positions(index: GraphIndex, node: ir.Node, first: int) -> bool:
    """The same of a reduction, of an image whose positions are its axes from the `first` one on: 1 with the channels
    last, else 2."""
    if node.domain or node.op_type not in _REDUCTIONS or node.inputs[0] is None or node.inputs[0].shape is None:
        return False
    rank, attributes = len(node.inputs[0].shape), index.attributes(node)
    axes = [a % rank for a in attributes.get("axes") or ()]
    positions = list(range(first, first + rank - 2))
    return rank > IMAGE and sorted(axes) == positions and attributes.get("keepdims", 1) == 1


def _is_product(index: GraphIndex, node: ir.Node) -> bool:
    """Whether the node multiplies by a constant from the right."""
    return node.op_type in PRODUCTS and not node.domain and index.is_constant(node.inputs[1])
