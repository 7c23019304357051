"""The shape of a Slice, of which the library's is right at some sizes only."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext, check_inputs

from fusion_cli.simplify.algebra.edits import add_constant
from fusion_cli.simplify.inferred import Dim, dim_of, elements, is_of_sizes, written
from fusion_cli.sizes.algebra import ONE, Size
from fusion_cli.sizes.operations import BEYOND, LARGEST_ENDS, operation, slice_positions
from fusion_cli.sizes.parsing import parse

_ZERO = Size(0)


def write_backward_ends(model: ir.Model) -> None:
    """Of a Slice that goes backwards ONNX Runtime takes the largest number for an end to mean "all"; the shape
    inference that it has from ONNX takes it for the last element, once it knows the size. The smallest number is "all"
    to both."""
    for node in model.graph.all_nodes():
        if node.op_type != "Slice" or node.domain or len(node.inputs) < 5:
            continue
        ends, steps = (None if v is None or v.const_value is None else v.const_value.numpy() for v in node.inputs[2::2])
        if ends is None or steps is None or ends.shape != steps.shape:
            continue
        mistaken = (steps < 0) & np.isin(ends, LARGEST_ENDS)
        if mistaken.any() and isinstance(node.graph, ir.Graph) and node.inputs[2] is not None:
            written_out = np.where(mistaken, np.iinfo(ends.dtype).min, ends)
            node.replace_input_with(2, add_constant(node.graph, f"{node.inputs[2].name}_backward", written_out))


def infer_slice(ctx: ShapeInferenceContext, node: ir.Node) -> None:
    """Of a size that it does not know the library takes a constant end to be in range: of at most 10^9 elements, the
    number in a model for "all", it leaves 10^9. It takes -2^63 for the last element too, axes that it does not know for
    the first ones, and what goes backwards from far before the first for nothing."""
    data, *_ = check_inputs(node, "data", "starts", "ends")
    if data.shape is None:
        ctx.set_shape_and_dtype(node.outputs[0], None, data.dtype)
        return
    dims: list[Dim] = list(data.shape)
    cuts = _cuts(ctx, node, len(dims))
    if cuts is None:
        dims = [ctx.new_symbolic_dim() for _ in dims]
    for axis, cut in (cuts or {}).items():
        dims[axis] = dim_of(ctx, _count(ctx, parse(written(dims[axis])), *cut))
    ctx.set_shape_and_dtype(node.outputs[0], ir.Shape(dims), data.dtype)
    values = ctx.get_symbolic_value(data)
    bounds = [b for b in (cuts or {}).get(0, ()) if isinstance(b, int)]
    if values is not None and len(dims) == 1 and len(bounds) == 3:
        ctx.set_symbolic_value(node.outputs[0], [values[i] for i in slice_positions(len(values), *bounds)])


def _cuts(ctx: ShapeInferenceContext, node: ir.Node, rank: int) -> dict[int, tuple[Dim, Dim, Dim]] | None:
    """Start, end and step by axis; None if the axes are unknown."""
    inputs = (*node.inputs, None, None)
    starts, ends, axes, steps = (None if v is None else elements(ctx, v) for v in inputs[1:5])
    if starts is None or ends is None:
        return None
    axes = axes if inputs[3] is not None else list(range(len(starts)))
    steps = steps if inputs[4] is not None else [1] * len(starts)
    if axes is None or steps is None:
        return None
    known = [a % rank for a in axes if isinstance(a, int)]
    return dict(zip(known, zip(starts, ends, steps, strict=True), strict=True)) if len(known) == len(axes) else None


def _count(ctx: ShapeInferenceContext, size: Size, start: Dim, end: Dim, step: Dim) -> Size | None:
    """How many elements of an axis a slice takes; None if that cannot be told."""
    if not isinstance(step, int) or step == 0 or not (_is_counted(ctx, start) and _is_counted(ctx, end)):
        return None
    first, last = parse(written(start)), parse(written(end))
    if size.known is not None and first.known is not None and last.known is not None:
        return Size(len(slice_positions(size.known, first.known, last.known, step)))
    if step > 0:
        least, most = _ZERO, size
        # Nothing is left from the end on, so that a start need not be kept to it.
        first = first if first.is_nonnegative else _position(size, first, least, most)
    elif first.known is not None and first.known >= -1:
        least, most = Size(-1), size - ONE
        first = most if first.known == -1 else _position(size, first, least, most)
        last = Size(-BEYOND) if last.known in LARGEST_ENDS else last
    else:
        return None
    last = _position(size, last, least, most)
    count = ((last - first if step > 0 else first - last) + Size(abs(step) - 1)) // Size(abs(step))
    return operation("Max", (_ZERO, count))


def _is_counted(ctx: ShapeInferenceContext, bound: Dim) -> bool:
    """Whether it is known from which end a bound is counted."""
    return isinstance(bound, int) or (parse(written(bound)).is_nonnegative and is_of_sizes(ctx, bound))


def _position(size: Size, bound: Size, least: Size, most: Size) -> Size:
    """Where a bound of a slice is, which may be counted from the end."""
    if bound.known is not None and abs(bound.known) >= BEYOND:
        return most if bound.known > 0 else least
    if bound.known is not None and bound.known < 0:
        return operation("Max", (size + bound, least))
    return operation("Min", (bound, most))
