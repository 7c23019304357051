"""Shapes that are computed when the model runs, though it is known what they come to: numbers, and sizes that the
operand has at the same place, or all of those; and shapes that nobody sees."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from fusion_cli.operators.versions import opset_version
from fusion_cli.simplify.algebra.edits import (
    RESHAPE_OPSET,
    REST,
    Applied,
    array_of,
    become,
    become_reshape,
    hand_on,
    is_one_of,
    only_reader,
    producer_of,
    put_before,
)
from fusion_cli.simplify.algebra.positions import numbers_of
from fusion_cli.sizes.algebra import Shape
from fusion_cli.sizes.dims import shape_of

_SAME = 0
"""What a Reshape takes for the operand's size at the same place."""


def write_shapes(graph: ir.Graph) -> Iterator[Applied]:
    """Give Reshapes as constants the shapes that nodes compute for them, in place."""
    for node in list(graph):
        if not is_one_of(node, "Reshape") or len(node.inputs) != 2 or opset_version(node) < RESHAPE_OPSET:
            continue
        value, target = node.inputs
        if value is None or target is None or target.producer() is None or array_of(target) is not None:
            continue
        if (numbers := _written(value, node.outputs[0], target)) is not None:
            become_reshape(node, value, numbers)
            yield "ReshapeSizes", [node]


def _written(value: ir.Value, result: ir.Value, target: ir.Value) -> list[int] | None:
    """The shape of a result as a constant; None where that cannot say it."""
    before, after = shape_of(value), shape_of(result)
    if before is None or after is None or any(size.known == 0 for size in after):
        return None
    found = [
        size.known if size.known is not None else _SAME if axis < len(before) and before[axis] == size else REST
        for axis, size in enumerate(after)
    ]
    if found.count(REST) > 1:
        return None
    # Beside a size of 0 what is left cannot be told, and a model that asks for no such thing runs.
    is_told = REST not in found or _SAME not in found or _asks_for_the_rest(target)
    return found if is_told else None


def _asks_for_the_rest(target: ir.Value) -> bool:
    """Whether the model itself leaves a size to be told."""
    parts = producer_of(target, "Concat")
    arrays = () if parts is None else map(array_of, parts.inputs)
    return any(array is not None and bool((array == REST).any()) for array in arrays)


def drop_shapes(graph: ir.Graph) -> Iterator[Applied]:
    """Take what an Expand, a Reshape or a Slice gives for its operand, where that has its shape already, in place."""
    for node in list(graph):
        value = node.inputs[0] if is_one_of(node, "Expand", "Reshape") or _goes_forward(node) else None
        shape = None if value is None else shape_of(value)
        if value is not None and shape is not None and shape == shape_of(node.outputs[0]):
            rule = f"{node.op_type}Same"
            hand_on(node, value)
            yield rule, [node]


def _goes_forward(node: ir.Node) -> bool:
    """Whether a node is a Slice that leaves elements in their order."""
    steps = numbers_of(node, "steps", []) if is_one_of(node, "Slice") else None
    return steps is not None and all(step > 0 for step in steps)


def join_reshapes(graph: ir.Graph) -> Iterator[Applied]:
    """Write a Reshape of a Reshape as one of what that reads, or as none where it has that shape, in place."""
    for node in list(graph):
        inner = producer_of(node.inputs[0], "Reshape") if is_one_of(node, "Reshape") and len(node.inputs) == 2 else None
        target = None if inner is None else array_of(node.inputs[1])
        # A size of 0 may be that of what is read.
        if inner is None or target is None or not target.all() or (source := inner.inputs[0]) is None:
            continue
        shape = shape_of(source)
        if shape is not None and shape == shape_of(node.outputs[0]):
            hand_on(node, source)
        else:
            node.replace_input_with(0, source)
        yield "ReshapeReshape", [inner, node]


def add_in_shape(graph: ir.Graph) -> Iterator[Applied]:
    """Write what is added to a value in another shape as an addition in its own, in place."""
    for node in list(graph):
        shape = shape_of(node.outputs[0]) if is_one_of(node, "Reshape") and len(node.inputs) == 2 else None
        value = node.inputs[0]
        inside = None if value is None or shape is None else _added_inside(value, shape)
        if value is None or inside is None:
            continue
        inner, adds, terms = inside
        source, added = inner.inputs[0], terms[0]
        assert source is not None
        for term in terms[1:]:
            added = put_before(node, "Add", [added, term], f"{value.name}_terms", value.type, value.shape)
        result, target = node.outputs[0], node.inputs[1]
        assert target is not None
        added = put_before(node, "Reshape", [added, target], f"{result.name}_added", result.type, result.shape)
        become(node, "Add", [source, added])
        yield "ReshapeAdd", [inner, *adds, node]


def _added_inside(value: ir.Value, shape: Shape) -> tuple[ir.Node, list[ir.Node], list[ir.Value]] | None:
    """The Reshape from such a shape, the Adds behind it up to a value, and what they add: together it is as large."""
    whole, adds, terms = shape_of(value), list[ir.Node](), list[ir.Value]()
    if whole is None or whole == shape:
        return None
    while (node := producer_of(value, "Add", "Reshape")) is not None and only_reader(value) is not None:
        if node.op_type == "Reshape":
            return (node, adds[::-1], terms[::-1]) if terms and _fill(terms, whole) else None
        first, second = node.inputs
        if first is None or second is None:
            return None
        on, term = (first, second) if _leads_on(first, whole, shape) else (second, first)
        if not _leads_on(on, whole, shape):
            return None
        adds.append(node)
        terms.append(term)
        value = on
    return None


def _leads_on(value: ir.Value, whole: Shape, shape: Shape) -> bool:
    """Whether a term of that size is a sum again, or what is added to."""
    node = producer_of(value, "Add", "Reshape")
    return node is not None and shape_of(value) == whole and (node.op_type == "Add" or _is_back(node, shape))


def _is_back(node: ir.Node, shape: Shape) -> bool:
    """Whether a Reshape is of a value of this shape."""
    source = node.inputs[0]
    return source is not None and shape_of(source) == shape


def _fill(terms: Sequence[ir.Value], whole: Shape) -> bool:
    """Whether the sum of terms is as large as that."""
    shapes = [shape_of(term) for term in terms]
    of_rank = [s for s in shapes if s is not None and len(s) == len(whole)]
    return all(any(s[i] == n for s in of_rank) for i, n in enumerate(whole))
