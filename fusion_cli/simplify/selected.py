"""Corrections of what the shape inference library makes of elements that are compared and chosen by that, as in the
shape that exporters give an Expand, where 1 takes the place of -1."""

from __future__ import annotations

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext, check_inputs

from fusion_cli.simplify.inferred import Dim, Infer, is_of_sizes, written
from fusion_cli.sizes.parsing import parse


def comparing(infer: Infer) -> Infer:
    """The library does not compare elements: sizes are not negative, and equal to themselves."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        infer(ctx, node)
        known = _aligned(ctx, *check_inputs(node, "A", "B"))
        if known is not None and None not in (said := [_is_equal(ctx, *pair) for pair in zip(*known, strict=True)]):
            ctx.set_symbolic_value(node.outputs[0], [int(bool(one)) for one in said])

    return corrected


def choosing(infer: Infer) -> Infer:
    """The library does not know which of two elements is chosen, though it knows the condition."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        infer(ctx, node)
        known = _aligned(ctx, *check_inputs(node, "condition", "X", "Y"))
        if known is not None and all(isinstance(condition, int) for condition in known[0]):
            ctx.set_symbolic_value(node.outputs[0], [x if one else y for one, x, y in zip(*known, strict=True)])

    return corrected


def _aligned(ctx: ShapeInferenceContext, *values: ir.Value) -> list[list[Dim]] | None:
    """The elements of vectors of one length, or of one element for all; None where they are not known."""
    found = [ctx.get_symbolic_value(value) for value in values]
    known = [elements for elements in found if elements is not None]
    if len(known) < len(found):
        return None
    length = max(map(len, known))
    return [each * (length // len(each)) for each in known] if all(len(e) in (1, length) for e in known) else None


def _is_equal(ctx: ShapeInferenceContext, a: Dim, b: Dim) -> bool | None:
    """Whether two elements are equal, where that can be told."""
    if not (is_of_sizes(ctx, a) and is_of_sizes(ctx, b)):
        return None
    difference = parse(written(a)) - parse(written(b))
    if difference.known is not None:
        return difference.known == 0
    sizes = [parse(written(each)) for each in (a, b)]
    apart = any(x.is_nonnegative and y.known is not None and y.known < 0 for x, y in (sizes, sizes[::-1]))
    return False if apart else None
