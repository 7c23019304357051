"""The RotaryEmbedding operator as the arithmetic it stands for."""

from __future__ import annotations

import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.plan.context import Context
from fusion_cli.plan.graph import Val
from fusion_cli.plan.lower_elementwise import Rule
from fusion_cli.plan.lowering import Builder
from fusion_cli.plan.slicing import Slice, sliced


def _last(b: Builder, x: Val, start: int, count: int, step: int = 1) -> Val:
    """Elements of the last axis."""
    return sliced(b, x, Slice((-1,), *(b.shapes.const((n,)) for n in (start, count, step))))


def _rotary_embedding(ctx: Context, node: ir.Node) -> Val:
    """Pairs (x1, x2) of each head turned to (x1 cos - x2 sin, x2 cos + x1 sin): halves of the head, or neighbours."""
    b, get = ctx.b, node.attributes
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        raise Unsupported(codes.ATTRIBUTE, "RotaryEmbedding with a row of cos and sin per position", "position_ids")
    x, cos, sin = ctx.operands(node)
    packed = len(x.shape) == 3
    whole = x.dims
    if packed:
        heads = b.shapes.const((0, 0, get.get_int("num_heads", 0), -1))
        x = b.reshape(x, b.shapes.emit("reshape", (x.dims, heads), (0,)))
    cos, sin = (b.unsqueeze(table, (2 if packed else 1,)) for table in (cos, sin))
    depth = b.fixed(x.shape[-1], "the head")
    turned = get.get_int("rotary_embedding_dim", 0) or depth
    half = turned // 2
    if get.get_int("interleaved", 0):
        first, second = (_last(b, x, start, half, 2) for start in (0, 1))
    else:
        first, second = (_last(b, x, start, half) for start in (0, half))
    real = b.apply("Sub", b.apply("Mul", first, cos), b.apply("Mul", second, sin))
    imaginary = b.apply("Add", b.apply("Mul", second, cos), b.apply("Mul", first, sin))
    result = _joined(ctx, real, imaginary, bool(get.get_int("interleaved", 0)))
    if turned < depth:
        result = b.concat([result, _last(b, x, turned, depth - turned)], -1)
    return b.reshape(result, whole) if packed else result


def _joined(ctx: Context, first: Val, second: Val, interleaved: bool) -> Val:
    b = ctx.b
    if not interleaved:
        return b.concat([first, second], -1)
    pairs = b.concat([b.unsqueeze(v, (len(v.shape),)) for v in (first, second)], -1)
    head, pair = b.shapes.emit("slice", (first.dims,), (0, -1, 1)), b.shapes.emit("slice", (first.dims,), (-1, 9, 1))
    return b.reshape(pairs, b.shapes.emit("concat", (head, b.shapes.emit("mul", (pair, b.shapes.const((2,)))))))


RULES: dict[str, Rule] = {"RotaryEmbedding": _rotary_embedding}
