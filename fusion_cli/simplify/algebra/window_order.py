"""Attention in windows (Swin): what lies between two of them is computed in their order, too, and rows are looked up
once where that changes, not taken apart and put together again by each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.operators.registry import is_elementwise
from fusion_cli.operators.versions import attribute
from fusion_cli.simplify.algebra.edits import Applied, add_constant, graph_of, is_one_of, only_reader
from fusion_cli.simplify.algebra.moves import Move, look_up, moves
from fusion_cli.sizes.algebra import Shape
from fusion_cli.sizes.dims import shape_of

_NORMS = ("LayerNormalization", "RMSNormalization")
_MOST_BETWEEN = 64


@dataclass(frozen=True, eq=False)
class _Residual:
    """`add` has a value and what is made of its rows elsewhere, `into` and `back` again; `before` and `behind` work row
    by row between the value and the one, and the other and the sum."""

    add: ir.Node
    value: ir.Value
    before: tuple[ir.Node, ...]
    into: Move
    back: Move
    behind: tuple[ir.Node, ...]

    @property
    def nodes(self) -> tuple[ir.Node, ...]:
        return *self.before, *self.into.nodes, *self.back.nodes, *self.behind, self.add


def keep_windows(graph: ir.Graph) -> Iterator[Applied]:
    """Add to values in the order of windows what is made of them in that, go on in it as far as nodes work row by row,
    and look up at once rows that are looked up or put back and elsewhere again, in place."""
    residuals = list(_residuals(graph))
    if residuals:
        _order_by_windows(graph, residuals)
    for residual in residuals:
        yield "WindowOrder", residual.nodes
    moved = {move.nodes[-1] for residual in residuals for move in (residual.into, residual.back)}
    for move in list(moves(graph)):
        if (move.looks_up or move.turns or not moved.isdisjoint(move.nodes)) and look_up(move):
            yield "RowGather", move.nodes


def _order_by_windows(graph: ir.Graph, residuals: Sequence[_Residual]) -> None:
    sums: dict[ir.Value, ir.Value] = {}
    for residual in residuals:
        _add_in_windows(residual, sums.get(residual.value, residual.value))
        sums[residual.add.outputs[0]] = residual.back.result
    graph.sort()
    order = {node: i for i, node in enumerate(graph)}
    for residual in residuals:
        _move_later(residual.back, order)
    graph.sort()


def _residuals(graph: ir.Graph) -> Iterator[_Residual]:
    taken: set[Move] = set()
    for residual in _possible(graph):
        if not taken & {residual.into, residual.back} and _fits(residual):
            taken |= {residual.into, residual.back}
            yield residual


def _possible(graph: ir.Graph) -> Iterator[_Residual]:
    """Sums of a value and of what is made of some rows, of each that are taken from that value."""
    found = list(moves(graph))
    backs = {move.result: move for move in found if only_reader(move.result) is not None}
    starts: dict[ir.Value, list[tuple[Move, tuple[ir.Node, ...]]]] = {}
    for move in found:
        for value, before in _leading(move.source):
            starts.setdefault(value, []).append((move, before))
    for add in [node for node in graph if is_one_of(node, "Add")]:
        first, second = add.inputs
        assert first is not None
        assert second is not None
        for value, other in ((first, second), (second, first)):
            for end, behind in _leading(other) if value in starts else ():
                if (back := backs.get(end)) is not None:
                    yield from (_Residual(add, value, before, into, back, behind) for into, before in starts[value])


def _fits(residual: _Residual) -> bool:
    """Whether what is taken apart is put together again, all values are alike that are added or moved, and only nodes
    know of them."""
    into, back, total = residual.into, residual.back, residual.add.outputs[0]
    alike = [residual.value, into.source, back.source, total]
    shapes = [shape_of(v) for v in alike]
    is_alike = len({v.dtype for v in alike}) == 1 and len({s[-1] if s else None for s in shapes}) == 1
    is_inside = not into.result.is_graph_output() and not total.is_graph_output()
    return into is not back and is_alike and is_inside and into.undoes(back)


def _leading(value: ir.Value) -> Iterator[tuple[ir.Value, tuple[ir.Node, ...]]]:
    """Values that one is made of row by row, the nearest first, with the nodes between, which nothing else reads."""
    nodes: tuple[ir.Node, ...] = ()
    yield value, nodes
    while (node := value.producer()) is not None and only_reader(value) is not None:
        moving = _moving(node)
        if len(moving) != 1 or not _works_by_row(node, moving):
            return
        nodes, value = (node, *nodes), moving[0]
        yield value, nodes


def _moving(node: ir.Node) -> list[ir.Value]:
    """Operands that are not constants."""
    return list(dict.fromkeys(v for v in node.inputs if v is not None and not is_constant(v)))


def _works_by_row(node: ir.Node, rows: Collection[ir.Value]) -> bool:
    """Whether a node makes each row of its result of those that lie there in its operands, which but for constants are
    all among these."""
    if len(node.outputs) != 1 or node.graph is None or any(v not in rows for v in _moving(node)):
        return False
    first, made = node.inputs[0], shape_of(node.outputs[0])
    if is_elementwise(node):
        return made is not None and all(v is None or _is_alike(v, rows, made) for v in node.inputs)
    if first not in rows or not all(v is None or is_constant(v) for v in node.inputs[1:]):
        return False
    ranks = {len(v.shape or ()) for v in node.inputs[1:] if v is not None}
    if is_one_of(node, *_NORMS):
        return made is not None and attribute(node, "axis") in (-1, len(made) - 1) and ranks <= {1}
    return is_one_of(node, "MatMul") and ranks == {2}


def _is_alike(value: ir.Value, rows: Collection[ir.Value], made: Shape) -> bool:
    """Whether an elementwise node's operand has the rows of the result, or is a constant, the same for all of them."""
    shape = shape_of(value)
    if shape is None:
        return False
    return shape[:-1] == made[:-1] if value in rows else all(size.known == 1 for size in shape[:-1])


def _add_in_windows(residual: _Residual, value: ir.Value) -> None:
    """`value` may be what a sum before is put back to."""
    add, into, back = residual.add, residual.into, residual.back
    windows, rows = into.result, back.source
    if residual.before:
        last = residual.before[-1].outputs[0]
        for reader, index in tuple(windows.uses()):
            reader.replace_input_with(index, last)
        into.nodes[0].replace_input_with(0, value)
        _replace(residual.before[0], value, windows)
        _reshape(residual.before, windows)
    _replace(add, value, windows)
    first = residual.behind[0] if residual.behind else add
    _replace(first, back.result, rows)
    _put_behind(back, add.outputs[0], set())
    _reshape((*residual.behind, add), rows)


def _replace(node: ir.Node, old: ir.Value, new: ir.Value) -> None:
    for index, value in enumerate(node.inputs):
        if value is old:
            node.replace_input_with(index, new)


def _put_behind(move: Move, value: ir.Value, inside: set[ir.Node]) -> None:
    """Let it move a value for all that read this but those inside."""
    for reader, index in tuple(value.uses()):
        if reader not in inside:
            reader.replace_input_with(index, move.result)
    move.nodes[0].replace_input_with(0, value)


def _reshape(nodes: Sequence[ir.Node], rows: ir.Value) -> None:
    """Have nodes work on as many rows as lie in a value, in its shape."""
    assert rows.shape is not None
    for node in nodes:
        if is_one_of(node, *_NORMS):
            node.attributes["axis"] = ir.AttrInt64("axis", -1)
        if is_elementwise(node):
            _flatten_constants(node)
        made = node.outputs[0]
        if made.shape is not None:
            made.shape = ir.Shape([*rows.shape[:-1], made.shape[-1]])


def _flatten_constants(node: ir.Node) -> None:
    """Constants that are the same for all rows as such of one axis: there may be fewer axes now."""
    for index, value in enumerate(node.inputs):
        if value is not None and is_constant(value) and len(value.shape or ()) > 1:
            assert value.const_value is not None
            line = np.ascontiguousarray(value.const_value.numpy().reshape(-1))
            node.replace_input_with(index, add_constant(graph_of(node), str(value.name), line))


def _move_later(move: Move, order: dict[ir.Node, int]) -> None:
    """Compute what is made of its rows before they are moved, up to one value as wide that all else reads."""
    rows, width = {move.result: None}, (move.result.shape or (None,))[-1]
    region: list[ir.Node] = []
    best = 0
    while len(region) < _MOST_BETWEEN and (ready := _next(rows, region, order)):
        region.append(min(ready, key=order.__getitem__))
        made = region[-1].outputs[0]
        rows[made] = None
        left = [v for v in rows if v.is_graph_output() or any(reader not in region for reader, _ in v.uses())]
        if left == [made] and not made.is_graph_output() and (made.shape or (None,))[-1] == width:
            best = len(region)
    if best:
        inside, source = region[:best], move.source
        for node in inside:
            _replace(node, move.result, source)
        _put_behind(move, inside[-1].outputs[0], set(inside))
        _reshape(inside, source)


def _next(rows: Collection[ir.Value], region: Sequence[ir.Node], order: dict[ir.Node, int]) -> list[ir.Node]:
    """What else works on rows alone."""
    readers = {reader for value in rows for reader, _ in value.uses() if reader in order and reader not in region}
    return [reader for reader in readers if _works_by_row(reader, rows)]
