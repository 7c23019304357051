"""From matched nodes to a region: what goes in, what comes out, and which shape arithmetic comes along.

Between an attention and its output projection exporters compute shapes at run time (Shape, Gather, Concat, Reshape).
Such arithmetic is copied into the region where it depends on nothing but the region's own tensors: otherwise the
region would not be convex, or would need another node run beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from fusion_cli.codes.match import NO_WORK, NOT_CONVEX, OPSET, UNKNOWN
from fusion_cli.graph.convexity import way_back
from fusion_cli.graph.counted import spreads_no_further
from fusion_cli.graph.index import GraphIndex
from fusion_cli.graph.on_host import is_on_host
from fusion_cli.match.carried import carried
from fusion_cli.match.stops import NoRegion
from fusion_cli.operators.registry import ARRANGING, MOVES, ROW_OPERATORS, having, is_elementwise
from fusion_cli.types import Region

_PRODUCTS = having("product")
_MOST_PRODUCTS, _FEW_ROWS = 3, 16
"""Of a region that takes in embeddings: a whole layer would be another operator with them than those after it are, and
one kernel goes through layers of few rows, of whose instructions each operator has its own to fetch. Measured on an
H200, two layers of Qwen2.5-7B at one token: 260 us; with the embedding in the first 263, with the last norm in the last
267."""


def make_region(index: GraphIndex, nodes: Iterable[ir.Node], rule: str, kernel: str, opt_level: int) -> Region:
    """The region of these nodes, but for moves at its head whose results lead out of it and back. Raises NoRegion if it
    is not convex without them, cannot be a function of the model, or has a value of unknown type or rank."""
    inside = _with_own_splits(index, _with_own_casts(index, set(nodes)))
    if kernel == "auto":  # a kernel of one's own knows nothing of tables
        inside = _with_tables(index, inside) - index.of_positions
    ordered, copied, remade = _convex(index, inside, kernel)
    inside = set(ordered)
    shape_nodes = sorted(copied, key=index.position.__getitem__)
    inputs, constants = _inputs(index, ordered, shape_nodes, remade)
    positions = _positions(index, inputs, [n for n in (*ordered, *shape_nodes) if n not in remade], remade)
    outputs = tuple(v for n in ordered for v in n.outputs if v.name and _is_needed(index, v, inside, copied))
    for value in (*inputs, *outputs):
        if value.dtype is None or value.shape is None:
            raise NoRegion(UNKNOWN, value=value)
    return Region(
        rule,
        tuple(ordered),
        tuple(shape_nodes),
        tuple(inputs),
        outputs,
        tuple(constants),
        kernel,
        opt_level,
        remade=tuple(n for n in shape_nodes if n in remade),
        positions=positions,
    )


def _convex(index: GraphIndex, inside: set[ir.Node], kernel: str) -> tuple[list[ir.Node], set[ir.Node], set[ir.Node]]:
    """The nodes of a region in order, the shape arithmetic that comes along, and what of it makes masks."""
    while True:
        if all(n.op_type in ARRANGING for n in inside):
            raise NoRegion(NO_WORK)
        ordered = sorted(inside, key=index.position.__getitem__)
        foreign = next((n for n in ordered if n in index.not_imported), None)
        if foreign is not None:
            raise NoRegion(OPSET, foreign)
        remade = _remade(index, inside) if kernel == "auto" else set()
        copied = carried(index, ordered) | remade
        back = way_back(index, inside, copied, remade)
        if back is None:
            return ordered, copied, remade
        leaving = _moves_towards(index, ordered, back)
        if not leaving:
            raise NoRegion(NOT_CONVEX, back)
        inside = inside - leaving


def _moves_towards(index: GraphIndex, ordered: list[ir.Node], back: ir.Node) -> set[ir.Node]:
    """The moves at the head of a region that lead to a node outside; none if anything else of the region does too: the
    views of one tensor that attention and what is added to its scores are both computed from."""
    inside, head = set(ordered), set[ir.Node]()
    for node in ordered:
        if node.op_type in MOVES and not node.domain and inside.intersection(index.predecessors(node)) <= head:
            head.add(node)
    found: set[ir.Node] = set()
    seen: set[ir.Node] = set()
    stack = [back]
    while stack:
        node = stack.pop()
        if node in seen or index.position[node] < index.position[ordered[0]]:
            continue
        seen.add(node)
        if node in inside:
            found.add(node)
        stack += index.predecessors(node)
    return found if found <= head else set()


def _with_own_casts(index: GraphIndex, inside: set[ir.Node]) -> set[ir.Node]:
    """Take in the casts that feed nothing but the region: they cost a pass over memory outside, nothing inside."""
    for node in list(inside):
        for value in node.inputs:
            if value is None:
                continue
            _, passed = index.root(value)
            for cast in passed:
                if (
                    cast in inside
                    or index.escapes(cast.outputs[0])
                    or not set(index.consumers(cast.outputs[0])) <= inside
                ):
                    break
                inside.add(cast)
    return inside


def _with_own_splits(index: GraphIndex, inside: set[ir.Node]) -> set[ir.Node]:
    """Take in the Splits whose parts nothing but the region reads, to lay them out anew: parts are then read where they
    lie (queries, keys and values of one product)."""
    for node in list(inside):
        split = index.producer(node.inputs[0]) if node.op_type in MOVES and node.inputs[0] is not None else None
        if split is None or split in inside or split.domain or split.op_type != "Split":
            continue
        readers = {reader for part in split.outputs for reader in index.consumers(part)}
        known = all(v is None or index.is_constant(v) for v in split.inputs[1:])
        if known and readers <= inside and not any(index.escapes(part) for part in split.outputs):
            inside.add(split)
    return inside


def _with_tables(index: GraphIndex, inside: set[ir.Node]) -> set[ir.Node]:
    """Take in what looks rows up for a norm or the like (embeddings, windows of an image), where nothing reads them
    before: their memory is saved, or written only."""
    is_large = sum(n.op_type in _PRODUCTS for n in inside) > _MOST_PRODUCTS
    reaching: set[ir.Value] = set()
    for node in sorted(inside, key=index.position.__getitem__, reverse=True):
        if node.op_type in ROW_OPERATORS or (is_elementwise(node) and not reaching.isdisjoint(node.outputs)):
            reaching.update(v for v in node.inputs if v is not None)
    makers = {maker for v in reaching if (maker := index.producer(v)) is not None and _looks_up(index, maker)}
    found = {m for m in makers if not (is_large and index.is_constant(m.inputs[0]))}
    readers = {maker: index.consumers(maker.outputs[0]) for maker in found - inside}
    return inside | {m for m, by in readers.items() if min(by, key=index.position.__getitem__) in inside}


def _looks_up(index: GraphIndex, node: ir.Node) -> bool:
    """Whether a node reads rows of a matrix, constant or with a number of rows that is known, by numbers in memory."""
    if node.domain or node.op_type != "Gather" or node.attributes.get_int("axis", 0) != 0:
        return False
    table, rows = node.inputs
    if table is None or table.shape is None or table.shape.rank() != 2 or not isinstance(table.shape[0], int):
        return False
    if rows is None or rows.shape is None or is_embedded(index, rows):
        return False
    sizes = [d for d in rows.shape if isinstance(d, int)]
    return len(sizes) < rows.shape.rank() or math.prod(sizes) > _FEW_ROWS


def _remade(index: GraphIndex, inside: set[ir.Node]) -> set[ir.Node]:
    """The masks of positions that elementwise nodes of a region read, by the nodes that make them."""
    found: set[ir.Node] = set()
    stack = [n for n in inside if is_elementwise(n)]
    while stack:
        reader = stack.pop()
        made = [(v, index.producer(v)) for v in reader.inputs if v is not None]
        makers = {n for v, n in made if n in index.of_positions and spreads_no_further(v, reader)}
        fresh = [n for n in makers if n is not None and n not in found]
        found.update(fresh)
        stack += fresh
    return found


def _inputs(
    index: GraphIndex,
    nodes: list[ir.Node],
    shape_nodes: list[ir.Node],
    remade: set[ir.Node],
) -> tuple[list[ir.Value], list[ir.Value]]:
    """Values that come from outside, in order of first use, and the constants to embed."""
    made = {v for n in (*nodes, *shape_nodes) for v in n.outputs}
    inputs: dict[ir.Value, None] = {}
    constants: dict[ir.Value, None] = {}
    for node in (*nodes, *shape_nodes):
        for value in node.inputs:
            if value is None or value in made:
                continue
            counted = node in remade and index.is_constant(value) and index.axis_of_positions(value) is not None
            if is_embedded(index, value) or counted:
                constants[value] = None
            else:
                inputs[value] = None
    return list(inputs), list(constants)


def _positions(
    index: GraphIndex, inputs: Iterable[ir.Value], others: Iterable[ir.Node], remade: Iterable[ir.Node]
) -> tuple[tuple[ir.Value, int, bool], ...]:
    """The inputs that masks alone are made of, and only count along an axis: nobody has to read them."""
    read = {v for n in others for v in n.inputs}
    for_masks = {v for n in remade for v in n.inputs} - read
    found = ((v, index.axis_of_positions(v)) for v in inputs if v in for_masks)
    return tuple((v, axis, is_on_host(v)) for v, axis in found if axis is not None)


def is_embedded(index: GraphIndex, value: ir.Value) -> bool:
    """Whether a constant is part of the kernel: single numbers, the short integer vectors that shapes are, and the ones
    and zeros that norms are given where what is computed behind them has the weights."""
    array = index.constant(value) if index.is_constant(value) else None
    if array is None or array.dtype.kind not in "fiub":
        return False
    return array.size == 1 or (array.dtype.kind == "i" and array.ndim <= 1) or _is_neutral(index, value, array)


def _is_neutral(index: GraphIndex, value: ir.Value, array: np.ndarray[Any, Any]) -> bool:
    readers = index.consumers(value)
    is_read_alone = bool(readers) and not index.escapes(value)
    return is_read_alone and all(
        n.op_type == "InstanceNormalization" and value in n.inputs[1:] and (array == (value is n.inputs[1])).all()
        for n in readers
    )


def _is_needed(index: GraphIndex, value: ir.Value, inside: set[ir.Node], copied: set[ir.Node]) -> bool:
    """Whether anything outside reads the value once shape nodes with copies inside and no other readers are gone."""
    if index.escapes(value):
        return True
    return any(not _dies(index, n, inside, copied) for n in index.consumers(value) if n not in inside)


def _dies(index: GraphIndex, node: ir.Node, inside: set[ir.Node], copied: set[ir.Node]) -> bool:
    """Whether the region has all that the node gives, in copies of it or as constants, and nothing else reads it."""
    if node not in copied and not all(is_embedded(index, v) for v in node.outputs):
        return False
    return all(
        not index.escapes(v) and all(c in inside or _dies(index, c, inside, copied) for c in index.consumers(v))
        for v in node.outputs
    )
