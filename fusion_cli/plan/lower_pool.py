"""Windows that move over images, of which each makes one number a channel: with the channels last."""

from __future__ import annotations

import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.operators.dtypes import FLOATS
from fusion_cli.operators.image_axes import to_first, to_last
from fusion_cli.operators.versions import windows
from fusion_cli.plan.context import Context, read_besides
from fusion_cli.plan.graph import Val
from fusion_cli.plan.lower_elementwise import Rule

_MOST_AXES = 2
"""That a window moves along."""


def _pool(ctx: Context, node: ir.Node) -> Val:
    b, x = ctx.b, ctx.operand(node, 0)
    n = len(x.shape) - 2
    if not 1 <= n <= _MOST_AXES or x.dtype not in FLOATS:
        raise Unsupported(codes.ATTRIBUTE, "windows over one axis or two of floats", f"rank {n + 2}, {x.dtype}")
    if read_besides(node):
        raise Unsupported(codes.UNUSED_OUTPUT, "the largest elements", "where they are")
    get = node.attributes
    kernel = tuple(get["kernel_shape"].as_ints())
    strides, dilations, _ = windows(node, n)
    pads = _pads(ctx, node, x, (kernel, strides, dilations))
    mean = node.op_type == "AveragePool"
    window = b.shapes.emit("concat", (b.shapes.emit("take", (x.dims,), (1,)), b.shapes.const((1, *kernel))))
    made = b.shapes.emit("conv", (x.dims, window), (n, *strides, *pads, *dilations, 0))
    attrs = (
        ("kernel", kernel),
        ("strides", strides),
        ("pads", pads),
        ("dilations", dilations),
        ("mean", mean),
        ("counts_pads", mean and bool(get.get_int("count_include_pad", 0))),
    )
    last = b.transpose(x, to_last(n + 2))
    return b.transpose(b.pool(last, b.shapes.emit("permute", (made,), to_last(n + 2)), attrs), to_first(n + 2))


def _pads(ctx: Context, node: ir.Node, x: Val, form: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """What lies before and after the image along each axis, with what a last window takes in that begins within the
    image and ends past it (`ceil_mode`)."""
    get, n = node.attributes, len(x.shape) - 2
    auto_pad, ceil = get.get_string("auto_pad", "NOTSET"), bool(get.get_int("ceil_mode", 0))
    pads = list(windows(node, n)[2]) if auto_pad == "NOTSET" else [0] * (2 * n)
    if auto_pad.startswith("SAME") or ceil:
        for axis, (kernel, stride, dilation) in enumerate(zip(*form, strict=True)):
            size = ctx.b.fixed(x.shape[2 + axis], f"an image for {node.op_type}")
            reach = dilation * (kernel - 1) + 1
            if auto_pad.startswith("SAME"):
                total = max(0, (-(-size // stride) - 1) * stride + reach - size)
                pads[axis] = (total + (auto_pad == "SAME_LOWER")) // 2
                pads[n + axis] = total - pads[axis]
            else:
                pads[n + axis] += _more(node, size + pads[axis], pads[n + axis], reach, stride)
    if any(p >= d * (k - 1) + 1 for p, k, d in zip(pads, form[0] * 2, form[2] * 2, strict=True)):
        raise Unsupported(codes.ATTRIBUTE, "pads smaller than the window", f"{pads} for {form[0]}")
    return tuple(pads)


def _more(node: ir.Node, before: int, after: int, reach: int, stride: int) -> int:
    """How much further than the pads the last window reaches, of an image with its first pads and those behind it."""
    left = (before + after - reach) % stride
    if left == 0:
        return 0
    windows = (before + after - reach) // stride + 2
    if (windows - 1) * stride >= before or node.attributes.get_int("count_include_pad", 0) == 1:
        raise Unsupported(codes.ATTRIBUTE, "windows that begin in the image, with pads that do not count", "ceil_mode")
    return stride - left


RULES: dict[str, Rule] = {"MaxPool": _pool, "AveragePool": _pool}
