"""Corrections of what the shape inference library makes of sizes that meet: of two that differ one may be 1."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext

from fusion_cli.simplify.inferred import Dim, Infer, written
from fusion_cli.sizes.operations import broadcast
from fusion_cli.sizes.parsing import parse


def broadcasting(infer: Infer) -> Infer:
    """Of two sizes of different names the library takes the first, though that one may be 1. (It does not replace a
    name that is there already.) What it says of elements may be of fewer than there are."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        first, *others = (v for v in node.inputs if v is not None)
        result = node.outputs[0]
        if node.op_type == "Expand" and first.shape is None:
            ctx.set_shape_and_dtype(result, None, first.dtype)
            return
        expanded = node.op_type == "Expand"
        shapes = [first.shape, *(ctx.get_symbolic_value(v) if expanded else v.shape for v in others)]
        known = [tuple(s) for s in shapes if s is not None]
        if result.shape is None and len(known) == len(shapes):
            rank = max(map(len, known))
            columns = zip(*((1,) * (rank - len(s)) + s for s in known), strict=True)
            ctx.set_shape(result, ir.Shape([_broadcast(ctx, c) for c in columns]))
        infer(ctx, node)
        said = ctx.get_symbolic_value(result)
        if said is not None and result.shape is not None and result.shape.is_static():
            count = math.prod(result.shape.numpy())
            if count != len(said):
                ctx.set_symbolic_value(result, [ctx.new_symbolic_dim() for _ in range(count)])

    return corrected


def contracting(infer: Infer) -> Infer:
    """Of an axis of an Einsum that its operands give different sizes the library takes the first, though that one may
    be 1."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        result = node.outputs[0]
        is_new = result.shape is None
        infer(ctx, node)
        if not is_new or result.shape is None:
            return
        left, _, made = (node.attributes.get_string("equation", "") or "").replace(" ", "").partition("->")
        sizes: dict[str, list[Dim]] = defaultdict(list)
        for term, value in zip(left.split(","), node.inputs, strict=True):
            if value is not None and value.shape is not None:
                for at, label in _places(term):
                    sizes[label].append(value.shape[at])
        for at, label in _places(made):
            result.shape[at] = _broadcast(ctx, sizes[label])

    return corrected


def _places(term: str) -> list[tuple[int, str]]:
    """The labels of a term of an Einsum, each with its axis, counted from the end after an ellipsis."""
    head, _, tail = term.partition("...")
    return [*enumerate(head), *enumerate(tail, -len(tail))]


def _broadcast(ctx: ShapeInferenceContext, dims: Iterable[Dim]) -> Dim:
    named = {parse(written(d)): d for d in dims}
    made = broadcast(*named)
    return named[made] if made in named else ctx.new_symbolic_dim()
