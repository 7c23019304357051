"""Which kernels of ONNX Runtime's work on images with their channels in blocks on CPUs: its convolutions and pools, and
what between them needs no order of channels. Read off the graphs that 1.31 saves, with which tests compare it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.operators.registry import GLOBAL_POOLS
from fusion_cli.operators.versions import attribute
from fusion_cli.score.vendor_fusions import Kernel, edges
from fusion_cli.sizes.dims import dims_of

_BLOCK = 16
"""Channels of a block on CPUs with AVX-512; where it is 8, whole blocks of 16 are whole blocks too."""
_ALIGNED = 4
"""Multiples of this are filled up to whole blocks by what reads or makes them, but by no pool and no Concat."""
_RANK = 4
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
"""Orders of axes that a reorder can bring about at once."""
_ACTIVATIONS = frozenset(
    {"Dropout", "Gelu", "HardSigmoid", "HardSwish", "Identity", "QuickGelu", "Relu", "Sigmoid", "Tanh"}
)
_POOLS = frozenset({"AveragePool", "MaxPool"})

IsBlocked = Callable[[ir.Value], bool]


@dataclass(frozen=True)
class Access:
    """The values that a kernel reads in blocks, or reorders itself, and those it makes so."""

    reads: frozenset[ir.Value] = frozenset()
    makes: frozenset[ir.Value] = frozenset()


def access_of(kernel: Kernel, is_blocked: IsBlocked) -> Access:
    """What a kernel reads and makes in blocks, where `is_blocked` says it of the values before it."""
    first = kernel.nodes[0]
    if first.op_type == "Conv":
        return _of_conv(kernel, first, is_blocked)
    read, written = edges(kernel.nodes)
    images = frozenset(v for v in read if not is_constant(v))
    if first.op_type in _POOLS:
        return Access(images, frozenset(first.outputs)) if _is_pooled(first) else Access()
    if not images or not all(map(is_blocked, images)):
        return Access()
    if transposes(first, TO_LAST):
        return Access(images)
    return Access(images, frozenset(written)) if _stays(kernel, first) else Access()


def transposes(node: ir.Node | None, order: tuple[int, ...]) -> bool:
    """Whether a node is a Transpose to this order of axes."""
    return node is not None and node.op_type == "Transpose" and tuple(node.attributes.get_ints("perm") or ()) == order


def _of_conv(kernel: Kernel, conv: ir.Node, is_blocked: IsBlocked) -> Access:
    """A convolution of few channels reads them as they are. What is added to its result has to be in blocks too."""
    weight = conv.inputs[1]
    if weight is None or not _takes_blocks(conv, weight):
        return Access()
    image = conv.inputs[0]
    assert image is not None
    assert weight.shape is not None
    wanted = set() if int(weight.shape[1]) < _BLOCK and _groups(conv) == 1 else {image}  # type: ignore[arg-type]
    read, written = edges(kernel.nodes)
    added = {v for v in read if v not in conv.inputs and not is_constant(v)}
    if not all(map(is_blocked, added)):
        return Access(frozenset(wanted), frozenset(conv.outputs))
    return Access(frozenset(wanted | added), frozenset(written))


def _takes_blocks(conv: ir.Node, weight: ir.Value) -> bool:
    constants = [v for v in conv.inputs[1:] if v is not None]
    shape = weight.const_value.shape.numpy() if weight.const_value is not None else ()
    if len(shape) != _RANK or not all(map(is_constant, constants)) or weight.dtype != ir.DataType.FLOAT:
        return False
    made, read, groups = shape[0], shape[1], _groups(conv)
    if groups == 1:
        return read < _BLOCK or read % _ALIGNED == 0
    if read == 1 and made == groups:
        return made % _ALIGNED == 0
    return read % _BLOCK == 0 and made % groups == 0 and made // groups % _BLOCK == 0


def _groups(conv: ir.Node) -> int:
    return conv.attributes.get_int("group", 1)


def _is_pooled(pool: ir.Node) -> bool:
    image = pool.inputs[0]
    assert image is not None
    return len(pool.outputs) == 1 and image.dtype == ir.DataType.FLOAT and _is_whole(image)


def _is_whole(image: ir.Value) -> bool:
    """Whether the channels are whole blocks."""
    channels = image.shape[1] if image.shape is not None and len(image.shape) == _RANK else None
    return isinstance(channels, int) and channels % _BLOCK == 0


def _stays(kernel: Kernel, node: ir.Node) -> bool:
    """Whether a kernel that reads nothing but images in blocks, and constants, makes such an image."""
    images = [v for v in node.inputs if v is not None and not is_constant(v)]
    if kernel.op in _ACTIVATIONS:
        return True
    if kernel.op in GLOBAL_POOLS:
        return _is_pooled(node)
    if kernel.op in ("Add", "Sum"):
        return len({_channels(v) for v in images}) == 1 and len(images) == len(node.inputs)
    if kernel.op == "Mul":
        shapes = [dims_of(v) for v in node.inputs if v is not None]
        return len(images) == len(shapes) and shapes[0] is not None and len(set(shapes)) == 1
    if kernel.op == "Concat":
        return node.attributes.get_int("axis") == 1 and all(map(_is_whole, images))
    if kernel.op == "BatchNormalization":
        return len(node.outputs) == 1
    return kernel.op in ("Resize", "Upsample") and _scales_sides(node)


def _channels(value: ir.Value) -> object:
    dims = dims_of(value)
    return None if dims is None or len(dims) != _RANK else dims[1]


def _scales_sides(node: ir.Node) -> bool:
    """Whether height and width become whole multiples: each pixel repeated from the first on, or interpolated."""
    scales = node.inputs[2 if node.op_type == "Resize" else 1] if len(node.inputs) > 1 else None
    if len([v for v in node.inputs if v is not None]) > 3 or scales is None or scales.const_value is None:
        return False
    factors = scales.const_value.numpy()
    if factors.shape != (_RANK,) or (factors[:2] != 1).any() or not np.equal(factors % 1, 0).all():
        return False
    if node.op_type == "Upsample" or attribute(node, "mode") == "linear":
        return True
    ways = [attribute(node, name) for name in ("mode", "coordinate_transformation_mode", "nearest_mode")]
    return ways == ["nearest", "asymmetric", "floor"]
