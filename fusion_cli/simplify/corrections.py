"""What the shape inference library (onnx_shape_inference 0.4) gets wrong, put right where it looks operators up.

Its guesses at what is not known would be folded into the model, which then is right at some sizes only. Here a size
that cannot be told from the inputs has a name of its own. Each correction says what the library does.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext, broadcast_shapes, check_inputs, registry

from fusion_cli.simplify.broadcasts import broadcasting, contracting
from fusion_cli.simplify.inferred import MOST_ELEMENTS, Dim, Infer, dim_of, elements, is_of_sizes, note_sizes, written
from fusion_cli.simplify.iterations import holds, states_of
from fusion_cli.simplify.selected import choosing, comparing
from fusion_cli.simplify.slices import infer_slice
from fusion_cli.sizes.algebra import Size
from fusion_cli.sizes.operations import operation
from fusion_cli.sizes.parsing import parse

_BROADCASTING = {
    "": "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Expand Greater GreaterOrEqual Less LessOrEqual Max "
    "Mean Min Mod Mul Or Pow StringConcat Sub Sum Where Xor",
    "com.microsoft": "QLinearAdd QLinearMul QLinearWhere",
}
_EXACT = frozenset({ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.DOUBLE})
"""What a size stays the same number as."""


def correct() -> None:
    """Register the corrections, in place of what the library has for the same versions of the operators."""
    registry.collect()
    ShapeInferenceContext.set_symbolic_value = _following(ShapeInferenceContext.set_symbolic_value)
    _correct("Cast", _casting)
    _correct("Concat", _joining)
    _correct("ConstantOfShape", _made_by_shape)
    _correct("Div", _dividing)
    _correct("Einsum", contracting)
    _correct("Equal", comparing)
    _correct("If", _branching)
    _correct("Loop", _looping)
    _correct("Range", _counting)
    _correct("Reshape", _reshaping)
    _correct("Scan", _scanning)
    _correct("Shape", _measuring)
    _correct("Size", _measuring)
    _correct("Slice", lambda _: infer_slice)
    _correct("Split", _splitting)
    _correct("Squeeze", _squeezing)
    _correct("Where", choosing)
    for domain, names in _BROADCASTING.items():
        for name in names.split():
            _correct(name, broadcasting, domain)


def _correct(name: str, correction: Callable[[Infer], Infer], domain: str = "") -> None:
    for version in registry.version_boundaries(domain, name):
        infer = registry.get(domain, name, version)
        assert infer is not None
        registry.register(domain, name, version)(correction(infer))


def _following(note: Callable[..., None]) -> Callable[..., None]:
    """The library follows the elements of tensors that double with each node, and numbers that their squares become."""

    def corrected(ctx: ShapeInferenceContext, value: ir.Value, data: list[Dim]) -> None:
        if len(data) <= MOST_ELEMENTS and all(not isinstance(d, int) or abs(d) < 1 << 63 for d in data):
            note(ctx, value, data)

    return corrected


def _joining(infer: Infer) -> Infer:
    """The library gives each element of a vector that it does not know a name, however many there are."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        shapes = [v.shape for v in node.inputs if v is not None and v.shape is not None and len(v.shape) == 1]
        if sum(shape[0] for shape in shapes if isinstance(shape[0], int)) <= MOST_ELEMENTS:
            infer(ctx, node)
            return
        lengths = [written(shape[0]) for shape in shapes]
        is_known = len(lengths) == len(node.inputs) and "" not in lengths
        total = sum(map(parse, lengths), Size(0)) if is_known else None
        first = node.inputs[0]
        ctx.set_shape_and_dtype(node.outputs[0], ir.Shape([dim_of(ctx, total)]), None if first is None else first.dtype)

    return corrected


def _casting(infer: Infer) -> Infer:
    """The library takes a number for the same whatever it is cast to, also to truth."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        to = ir.DataType(node.attributes.get_int("to", 0))
        if to in _EXACT:
            infer(ctx, node)
        else:
            ctx.set_shape_and_dtype(node.outputs[0], check_inputs(node, "input")[0].shape, to)

    return corrected


def _dividing(infer: Infer) -> Infer:
    """The library divides floating-point numbers as if they were integers."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        a, b = check_inputs(node, "A", "B")
        if a.dtype is not None and a.dtype.is_floating_point():
            ctx.set_shape_and_dtype(node.outputs[0], broadcast_shapes(a.shape, b.shape), a.dtype)
        else:
            infer(ctx, node)

    return corrected


def _branching(infer: Infer) -> Infer:
    """Of a branch whose result has an unknown shape the library believes that it has that of the other's."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        branches = [node.attributes[name].as_graph().outputs for name in ("then_branch", "else_branch")]
        infer(ctx, node)
        for result, *made in zip(node.outputs, *branches, strict=False):
            if any(v.shape is None for v in made):
                result.shape = None

    return corrected


def _looping(_: Infer) -> Infer:
    """The library takes what a loop carries for what an iteration makes of it, though there may be none, and a loop to
    go on as long as it may."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        body = node.attributes["body"].as_graph()
        shapes = [_same(ctx, [s.start.shape, s.found.shape, s.made.shape]) for s in states_of(node)]
        is_known = holds(node, ctx.get_opset_version(""))
        for made in body.outputs[1 + len(shapes) :]:
            known = made.shape if is_known else None
            shapes.append(None if known is None else ir.Shape([ctx.new_symbolic_dim(), *known]))
        for result, made, shape in zip(node.outputs, body.outputs[1:], shapes, strict=False):
            if made.type is not None and not isinstance(made.type, ir.TensorType):
                ctx.set_type(result, made.type)
            else:
                ctx.set_shape_and_dtype(result, shape, made.dtype)

    return corrected


def _scanning(infer: Infer) -> Infer:
    """The library believes of the sizes of states that they stay what they start as."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        if holds(node, ctx.get_opset_version("")):
            infer(ctx, node)
            return
        for result, made in zip(node.outputs, node.attributes["body"].as_graph().outputs, strict=False):
            ctx.set_shape_and_dtype(result, None, made.dtype)

    return corrected


def _same(ctx: ShapeInferenceContext, shapes: list[ir.Shape | None]) -> ir.Shape | None:
    """What all of the shapes have in common."""
    known = [s for s in shapes if s is not None]
    if len(known) < len(shapes) or len({len(s) for s in known}) != 1:
        return None
    columns = zip(*known, strict=True)
    return ir.Shape([c[0] if all(d == c[0] for d in c) else ctx.new_symbolic_dim() for c in columns])


def _counting(infer: Infer) -> Infer:
    """The library takes names for positive, so that a Range to one has as many elements. (It replaces a name that is
    there already by a number only.)"""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        bounds = [ctx.get_symbolic_value(v) or [None] for v in check_inputs(node, "start", "limit", "delta")]
        ctx.set_shape(node.outputs[0], ir.Shape([dim_of(ctx, _length(ctx, *(b[0] for b in bounds)))]))
        infer(ctx, node)

    return corrected


def _length(ctx: ShapeInferenceContext, start: Dim | None, limit: Dim | None, delta: Dim | None) -> Size | None:
    if start is None or limit is None or not isinstance(delta, int) or delta == 0:
        return None
    if not (is_of_sizes(ctx, start) and is_of_sizes(ctx, limit)):
        return None
    span = (parse(written(limit)) - parse(written(start))) * Size(1 if delta > 0 else -1)
    return operation("Max", (Size(0), (span + Size(abs(delta) - 1)) // Size(abs(delta))))


def _reshaping(infer: Infer) -> Infer:
    """The library takes elements that it does not know for the sizes that they ask for, though they may be -1 or 0."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        _, target = check_inputs(node, "data", "shape")
        asked = ctx.get_symbolic_value(target)
        if asked is None or all(is_of_sizes(ctx, d) for d in asked):
            infer(ctx, node)
            return
        ctx.set_symbolic_value(target, [d if is_of_sizes(ctx, d) else ctx.new_symbolic_dim() for d in asked])
        infer(ctx, node)
        ctx.set_symbolic_value(target, asked)

    return corrected


def _measuring(infer: Infer) -> Infer:
    """Notes which names are of sizes."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        (data,) = check_inputs(node, "data")
        note_sizes(ctx, data.shape or ())
        infer(ctx, node)

    return corrected


def _made_by_shape(infer: Infer) -> Infer:
    """The library knows the result's shape only where it is a constant, and its elements never."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        dims, given = elements(ctx, *check_inputs(node, "input")), node.attributes.get("value")
        if dims is not None:
            ctx.set_shape(node.outputs[0], ir.Shape(dims))
        infer(ctx, node)
        number = None if given is None else given.as_tensor().numpy().item()
        if isinstance(number, int) and dims is not None and len(dims) == 1 and isinstance(dims[0], int):
            ctx.set_symbolic_value(node.outputs[0], [number] * min(dims[0], MOST_ELEMENTS + 1))

    return corrected


def _splitting(infer: Infer) -> Infer:
    """Where the sizes of the parts are not constant the library takes the parts to be equal."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        data, given = node.inputs[0], (*node.inputs, None)[1]
        if given is None or given.const_value is not None or data is None or data.shape is None:
            infer(ctx, node)
            return
        sizes = elements(ctx, given) or [ctx.new_symbolic_dim() for _ in node.outputs]
        for result, size in zip(node.outputs, sizes, strict=False):
            shape = ir.Shape(list(data.shape))
            shape[node.attributes.get_int("axis", 0)] = size
            ctx.set_shape_and_dtype(result, shape, data.dtype)

    return corrected


def _squeezing(infer: Infer) -> Infer:
    """Where no axes are given the library takes out those known to be of size 1, though others may be too."""

    def corrected(ctx: ShapeInferenceContext, node: ir.Node) -> None:
        (data,) = check_inputs(node, "data")
        has_axes = "axes" in node.attributes or any(v is not None for v in node.inputs[1:])
        if has_axes or data.shape is None or data.shape.is_static():
            infer(ctx, node)
        else:
            ctx.set_shape_and_dtype(node.outputs[0], None, data.dtype)

    return corrected
