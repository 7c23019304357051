"""Rows of a constant table: products with one-hot vectors, and what is computed of each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.operators.registry import evaluate, is_elementwise
from fusion_cli.operators.versions import attribute, opset_version, parameters
from fusion_cli.simplify.algebra.edits import (
    Applied,
    Array,
    add_constant,
    array_of,
    become,
    count_uses,
    graph_of,
    is_one_of,
    producer_of,
    put_before,
    rounded,
)
from fusion_cli.simplify.algebra.layers import MOST_BYTES

_OPSET = 13
"""The first in which a Squeeze has its axes as an input; a Clip takes integers from 12 on."""
_INDICES = (ir.DataType.INT32, ir.DataType.INT64)
_JUMPS = frozenset({"Ceil", "Floor", "Mod", "Round", "Sign"})
"""Operators of which rounding may make another number altogether."""
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16)


@dataclass(frozen=True, eq=False)
class _Rows:
    """Values that are rows of a table, at the places that `indices` say."""

    indices: ir.Value
    table: Array
    nodes: tuple[ir.Node, ...]
    """What computes them from the first table, that Gather first."""


def gather_one_hot(graph: ir.Graph) -> Iterator[Applied]:
    """Write one-hot vectors times a table as a Gather of its rows, in place."""
    for node in list(graph):
        cast = producer_of(node.inputs[0], "Cast") if is_one_of(node, "MatMul") else None
        equal = None if cast is None else producer_of(cast.inputs[0], "Equal")
        table = None if equal is None else _table(node)
        if cast is None or equal is None or table is None or opset_version(node) < _OPSET:
            continue
        indices = _indices(equal, len(table))
        if indices is not None:
            _gather(node, indices, table)
            yield "OneHotMatMul", [equal, cast, node]


def _table(product: ir.Node) -> Array | None:
    """What a MatMul multiplies by, if it is a finite matrix, and its own or a small one."""
    value = product.inputs[1]
    if value is None or not is_constant(value) or value.dtype not in _FLOATS:
        return None
    tensor = value.const_value
    is_own = count_uses(value) == 1 and tensor is not None and tensor.nbytes <= MOST_BYTES
    array = tensor.numpy() if tensor is not None and is_own else array_of(value)
    return array if array is not None and array.ndim == 2 and bool(np.isfinite(array).all()) else None


def _indices(equal: ir.Node, count: int) -> ir.Value | None:
    """What is compared with each of the numbers from 0 to `count` - 1, along a last axis of one place."""
    for value, other in (equal.inputs, equal.inputs[::-1]):
        numbers, shape = array_of(other), None if value is None else value.shape
        if value is None or numbers is None or shape is None or value.dtype not in _INDICES:
            continue
        is_counting = numbers.shape[-1:] == (count,) and bool((numbers.reshape(-1) == np.arange(numbers.size)).all())
        if is_counting and numbers.size == count and numbers.ndim <= len(shape) and shape[-1] == 1:
            return value
    return None


def _gather(node: ir.Node, indices: ir.Value, table: Array) -> None:
    """Let a node gather rows. Indices of no row lead to one of zeros: the one behind the last, which is at -1 too."""
    graph, name = graph_of(node), node.outputs[0].name
    assert indices.dtype is not None
    assert indices.shape is not None
    bounds = [add_constant(graph, f"{name}_bound", np.array(n, indices.dtype.numpy())) for n in (-1, len(table))]
    last = add_constant(graph, f"{name}_axis", np.array([-1]))
    value = indices
    for operator, operands in (("Squeeze", [last]), ("Clip", bounds)):
        shape = ir.Shape(indices.shape[:-1])
        value = put_before(node, operator, [value, *operands], f"{name}_{operator.lower()}", indices.type, shape)
    rows = np.concatenate([table, np.zeros_like(table[:1])])
    become(node, "Gather", [add_constant(graph, f"{name}_table", rows), value], ir.AttrInt64("axis", 0))


def compute_tables(graph: ir.Graph) -> Iterator[Applied]:
    """Let what is computed of rows of a small table, number by number, be rows of a table that is computed before."""
    found: dict[ir.Value, _Rows] = {}
    for node in graph:
        rows = _gathered(node) or _computed(node, found)
        if rows is not None:
            found[node.outputs[0]] = rows
    done: set[ir.Node] = set()
    for value, rows in reversed(found.items()):
        array = rounded(rows.table, value.dtype) if done.isdisjoint(rows.nodes) and _is_alone(rows) else None
        if array is not None:
            last = rows.nodes[-1]
            table = add_constant(graph_of(last), f"{value.name}_table", array)
            become(last, "Gather", [table, rows.indices], ir.AttrInt64("axis", 0))
            done.update(rows.nodes)
            yield "GatherTable", rows.nodes


def _is_alone(rows: _Rows) -> bool:
    """Whether there are nodes besides the Gather, and nothing else reads what lies between."""
    between = [node.outputs[0] for node in rows.nodes[:-1]]
    return bool(between) and not any(
        v.is_graph_output() or any(reader not in rows.nodes for reader, _ in v.uses()) for v in between
    )


def _gathered(node: ir.Node) -> _Rows | None:
    """The rows that a Gather takes from a constant matrix."""
    if not is_one_of(node, "Gather") or node.outputs[0].dtype not in _FLOATS or attribute(node, "axis") != 0:
        return None
    table, indices = array_of(node.inputs[0]), node.inputs[1]
    if table is None or table.ndim != 2 or indices is None or node.outputs[0].shape is None:
        return None
    return _Rows(indices, table.astype(np.float64), (node,))


def _computed(node: ir.Node, found: Mapping[ir.Value, _Rows]) -> _Rows | None:
    """The rows that an elementwise node makes of others at the same places and of constants by column."""
    if not is_elementwise(node) or node.op_type in _JUMPS or len(node.outputs) != 1:
        return None
    read = [v for v in node.inputs if v is not None and array_of(v) is None]
    rows = [found[v] for v in read if v in found]
    result = node.outputs[0]
    if not rows or len(rows) < len(read) or any(r.indices is not rows[0].indices for r in rows):
        return None
    if result.dtype not in _FLOATS or any(v.dtype is not result.dtype for v in read):
        return None
    arguments = [None if v is None else found[v].table if v in found else _by_column(v, read[0]) for v in node.inputs]
    if any(v is not None and a is None for v, a in zip(node.inputs, arguments, strict=True)):
        return None
    with np.errstate(all="ignore"):
        table = evaluate(node.domain, node.op_type, arguments, parameters(node))
    nodes = dict.fromkeys(n for r in rows for n in r.nodes)
    is_rows = table.shape == rows[0].table.shape and bool(np.isfinite(table).all())
    return _Rows(rows[0].indices, table, (*nodes, node)) if is_rows else None


def _by_column(constant: ir.Value, rows: ir.Value) -> Array | None:
    """A constant that meets rows as one number for each column or for all; None if it is anything else."""
    array = array_of(constant)
    if (
        array is None
        or rows.shape is None
        or array.ndim > len(rows.shape)
        or array.shape[:-1] != (1,) * (array.ndim - 1)
    ):
        return None
    return array.reshape(-1) if array.dtype.kind != "f" else array.reshape(-1).astype(np.float64)
