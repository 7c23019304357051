"""Operators that ONNX Runtime's optimizer puts in place of standard ones (domain com.microsoft), as what they stand
for."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fusion_cli.operators.elementwise import ELEMENTWISE
from fusion_cli.operators.versions import attribute
from fusion_cli.plan.context import Context
from fusion_cli.plan.graph import Val
from fusion_cli.plan.lower_elementwise import Rule, composite
from fusion_cli.plan.lower_linear import product
from fusion_cli.plan.lower_rows import no_statistics, norm


def _skip_norm(ctx: Context, node: ir.Node) -> Sequence[Val | None]:
    """SkipLayerNormalization and SkipSimplifiedLayerNormalization: the norm of input + skip (+ bias), two statistics
    that nothing reads at inference, and the sum."""
    no_statistics(node, made=(0, 3))
    centred = node.op_type == "SkipLayerNormalization"
    after = 4 if centred else 3
    total = ctx.b.apply("Add", ctx.operand(node, 0), ctx.operand(node, 1))
    if (bias := ctx.optional(node, after)) is not None:
        total = ctx.b.apply("Add", total, bias)
    shift = ctx.optional(node, 3) if centred else None
    epsilon = attribute(node, "epsilon")
    result = norm(ctx, total, ctx.operand(node, 2), shift, epsilon, centred=centred)
    return [result, None, None, total]


def _fused_matmul(ctx: Context, node: ir.Node) -> Val:
    a, w = (_batch_first(ctx, ctx.operand(node, i), attribute(node, f"transBatch{n}")) for i, n in enumerate("AB"))
    trans_a, trans_w = (bool(attribute(node, f"trans{n}")) for n in "AB")
    return product(ctx.b, a, w, trans_a, trans_w, attribute(node, "alpha"))


def _batch_first(ctx: Context, x: Val, moved: int) -> Val:
    """An operand whose first axis is stored before its batch axes: brought back to the last but one."""
    rank = len(x.shape)
    return ctx.b.transpose(x, (*range(1, rank - 1), 0, rank - 1)) if moved and rank > 2 else x


RULES: dict[str, Rule] = {
    **{o.name: composite for o in ELEMENTWISE if o.domain == "com.microsoft"},
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _skip_norm),
    "FusedMatMul": _fused_matmul,
}
