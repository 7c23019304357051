"""Constant masks of later keys, which models keep for the longest sequence and cut to the one at hand: written as the
comparison of positions that they are, which kernels need not read from memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.operators.dtypes import ONNX_FLOATS
from fusion_cli.operators.registry import evaluate, is_elementwise
from fusion_cli.operators.versions import opset_version, parameters
from fusion_cli.simplify.algebra.edits import Applied, add_constant, array_of, graph_of, is_one_of, put_before
from fusion_cli.simplify.algebra.positions import cut_of

_OPSET = 13
"""The first in which a Slice has no attributes, as before 10, and all comparisons take integers, as from 12 on."""
_MOST_ELEMENTS = 1 << 26
_DTYPES = ONNX_FLOATS | {ir.DataType.BOOL, ir.DataType.UINT8, ir.DataType.INT32, ir.DataType.INT64}
_BOOL = ir.TensorType(ir.DataType.BOOL)


@dataclass(frozen=True, eq=False)
class _Triangle:
    """A matrix that is `seen` where its last index is no larger than the one before, else `hidden`, as often as there
    are others: the sizes of the constant it is a part of, and the Slices that cut it, each along one of the last two
    axes (counted from the end)."""

    sizes: tuple[int, ...]
    seen: Any
    hidden: Any
    cuts: tuple[tuple[ir.Node, int], ...] = ()


def compare_positions(graph: ir.Graph) -> Iterator[Applied]:
    """Let elementwise nodes read a comparison of positions where they read such a mask, in place."""
    found: dict[ir.Value, _Triangle | None] = {}
    written: dict[ir.Value, ir.Value] = {}
    for node in list(graph):
        is_cut = is_one_of(node, "Slice")
        if (not is_cut and (node.domain or not is_elementwise(node))) or opset_version(node) < _OPSET:
            continue
        for value in node.inputs:
            if value is not None and value not in found and is_constant(value):
                found[value] = _of_constant(value)
        read = [None if v is None else found.get(v) for v in node.inputs]
        if not any(read):
            continue
        made = _cut(node, read[0]) if is_cut else _changed(node, read)
        if made is not None:
            found[node.outputs[0]] = made
        elif not is_cut:
            for i, (value, triangle) in enumerate(zip(node.inputs, read, strict=True)):
                if value is None or triangle is None:
                    continue
                if value not in written:
                    written[value] = _comparison(node, value, triangle)
                    yield "TriangleMask", [node]
                node.replace_input_with(i, written[value])


def _of_constant(value: ir.Value) -> _Triangle | None:
    tensor = value.const_value
    if tensor is None or tensor.size > _MOST_ELEMENTS or value.dtype not in _DTYPES:
        return None
    sizes = tuple(tensor.shape.numpy())
    if len(sizes) < 2 or min(sizes[-2:]) < 2 or 0 in sizes:
        return None
    array = tensor.numpy().reshape(-1, *sizes[-2:])
    seen, hidden = array[0, 0, :2]
    # Most matrices differ in their first row.
    if seen == hidden or not (array[:, 0, 1:] == hidden).all():
        return None
    is_one = bool((array == np.where(np.tri(*sizes[-2:], dtype=np.bool_), seen, hidden)).all())
    return _Triangle(sizes, seen, hidden) if is_one else None


def _cut(node: ir.Node, triangle: _Triangle | None) -> _Triangle | None:
    """What a Slice leaves, if it takes the first rows or columns."""
    cut, result = cut_of(node), node.outputs[0]
    rank = 0 if result.shape is None else len(result.shape)
    if triangle is None or cut is None or rank == 0 or cut[1] != 0 or cut[0] < rank - 2:
        return None
    return replace(triangle, cuts=(*triangle.cuts, (node, cut[0] - rank)))


def _changed(node: ir.Node, read: Sequence[_Triangle | None]) -> _Triangle | None:
    """What an elementwise node makes of a triangle and single numbers."""
    (triangle, *others), result = [t for t in read if t is not None], node.outputs[0]
    numbers = {v: array_of(v) for v, t in zip(node.inputs, read, strict=True) if v is not None and t is None}
    are_single = all(n is not None and n.size == 1 for n in numbers.values())
    if others or not are_single or result.shape is None or result.dtype not in _DTYPES:
        return None
    dtype = result.dtype

    def evaluated(end: Any) -> Any:
        arguments = [None if v is None else numbers.get(v, end) for v in node.inputs]
        with np.errstate(all="ignore"):
            return evaluate("", node.op_type, arguments, parameters(node)).reshape(-1)[0].astype(dtype.numpy())

    return replace(triangle, seen=evaluated(triangle.seen), hidden=evaluated(triangle.hidden))


def _comparison(reader: ir.Node, value: ir.Value, triangle: _Triangle) -> ir.Value:
    """The same value, of nodes before `reader`."""
    keys, queries = (_positions(reader, value, triangle, axis) for axis in (-1, -2))
    seen = put_before(reader, "LessOrEqual", [keys, queries], f"{value.name}_seen", _BOOL, value.shape)
    if value.dtype == ir.DataType.BOOL:
        return seen if triangle.seen else put_before(reader, "Not", [seen], f"{value.name}_hidden", _BOOL, value.shape)
    graph = graph_of(reader)
    ends = [add_constant(graph, f"{value.name}_{n}", np.array(getattr(triangle, n))) for n in ("seen", "hidden")]
    return put_before(reader, "Where", [seen, *ends], f"{value.name}_mask", value.type, value.shape)


def _positions(reader: ir.Node, value: ir.Value, triangle: _Triangle, axis: int) -> ir.Value:
    """The positions along an axis of such a value, cut as it is, and of one place along the other of the last two; of
    keys as many as there are matrices."""
    assert value.shape is not None
    rank = len(value.shape)
    size = value.shape[axis]
    counted = np.arange(size if isinstance(size, int) else triangle.sizes[axis])
    outer = triangle.sizes[:-2] if axis == -1 else ()
    sizes = [*(1,) * (rank - 2 - len(outer)), *outer, 1, 1]
    sizes[axis] = len(counted)
    repeated = np.broadcast_to(counted.reshape(-1, *(1,) * (-axis - 1)), sizes)
    made = add_constant(graph_of(reader), f"{value.name}_positions", np.ascontiguousarray(repeated))
    if isinstance(size, int):
        return made
    shape = ir.Shape([*sizes[:axis], size, *sizes[rank + axis + 1 :]])
    for cut, along in triangle.cuts:
        if along == axis:
            operands = [v for v in cut.inputs[1:] if v is not None]
            name = f"{value.name}_cut"
            made = put_before(reader, "Slice", [made, *operands], name, ir.TensorType(ir.DataType.INT64), shape)
    return made
