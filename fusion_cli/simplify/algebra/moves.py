"""Rows, which are what lies along the last axis of a tensor, that nodes put elsewhere: Reshapes, Transposes and lookups
of all places of an axis, as where an image is cut into windows. In between they may lie along another axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.versions import attribute, opset_version
from fusion_cli.simplify.algebra.edits import (
    RESHAPE_OPSET,
    REST,
    Array,
    add_constant,
    array_of,
    become,
    become_reshape,
    graph_of,
    hand_on,
    is_one_of,
    only_reader,
    permutation,
    put_with_constant,
    written_sizes,
)
from fusion_cli.sizes.algebra import Shape, Size, names_in
from fusion_cli.sizes.dims import shape_of
from fusion_cli.sizes.operations import substitute

_FEWEST = 8
"""Elements of a row; shorter ones are slower to look up than to copy otherwise."""
_MOST_ROWS = 1 << 20
_MOST_NUMBERED = 1 << 17
"""Rows of which each has a number in the model, where it is known how many there are."""
_TRIED = (2, 3)
"""Numbers of batches for which it is looked where rows go, where that is not known."""


@dataclass(frozen=True, eq=False)
class Move:
    """Nodes one behind the other, of which each alone reads the one before, that put rows elsewhere."""

    nodes: tuple[ir.Node, ...]
    across: tuple[int, ...]
    """The axes that rows lie along: of the source, and of what each node makes of it."""

    @property
    def source(self) -> ir.Value:
        found = self.nodes[0].inputs[0]
        assert found is not None
        return found

    @property
    def result(self) -> ir.Value:
        return self.nodes[-1].outputs[0]

    @cached_property
    def places(self) -> Array | None:
        """Where rows of the smallest blocks lay that are all moved alike; None where that is not known."""
        return _places(self)

    @property
    def copies(self) -> int:
        """Nodes that cannot hand on memory as it is."""
        return sum(not is_one_of(node, "Reshape") for node in self.nodes)

    @property
    def looks_up(self) -> bool:
        return any(is_one_of(node, "Gather") for node in self.nodes)

    @property
    def turns(self) -> bool:
        """Whether rows lie along another axis than the last in between: these copies are the slow ones."""
        ranks = [len(node.outputs[0].shape or ()) for node in self.nodes]
        return any(axis < rank - 1 for axis, rank in zip(self.across[1:], ranks, strict=True))

    def undoes(self, other: Move) -> bool:
        """Whether it puts rows back that another one did put elsewhere."""
        if self.places is None or other.places is None or not 1 < self.places.size == other.places.size:
            return False
        return np.array_equal(self.places[other.places], np.arange(self.places.size))


def moves(graph: ir.Graph) -> Iterator[Move]:
    """All of them, each with as many nodes as there are."""
    found = [move for node in graph if (move := _move_to(node)) is not None]
    inside = {node for move in found for node in move.nodes[:-1]}
    yield from (move for move in found if move.nodes[-1] not in inside)


def _move_to(last: ir.Node) -> Move | None:
    """The longest one that ends with a node."""
    nodes: list[ir.Node] = []
    across = [len(last.outputs[0].shape or ()) - 1]
    longest = 0
    node: ir.Node | None = last
    while node is not None and (axis := _axis_before(node, across[-1])) is not None:
        nodes.append(node)
        across.append(axis)
        source = node.inputs[0]
        assert source is not None
        longest = len(nodes) if axis == len(source.shape or ()) - 1 else longest
        node = source.producer() if only_reader(source) is not None else None
    return Move(tuple(nodes[:longest][::-1]), tuple(across[: longest + 1][::-1])) if longest else None


def _axis_before(node: ir.Node, axis: int) -> int | None:
    """Along which axis of its operand the rows lie that lie along an axis of what a node makes; None where it does
    anything else."""
    if not is_one_of(node, "Reshape", "Transpose", "Gather") or node.inputs[0] is None:
        return None
    before, after = shape_of(node.inputs[0]), shape_of(node.outputs[0])
    if not before or not after or len(before) < 2 or len(after) < 2 or after[axis].known is None:
        return None
    if node.op_type == "Reshape":
        return _axis_of_reshape(before, after, axis) if opset_version(node) >= RESHAPE_OPSET else None
    if node.op_type == "Transpose":
        perm = permutation(node)
        return perm[axis] if perm is not None and perm[0] == 0 and axis else None
    along, found = attribute(node, "axis") % len(before), array_of(node.inputs[1])
    if found is None or found.size == 0 or along <= axis < along + found.ndim:
        return None
    is_whole = np.array_equal(np.sort(found % found.size, axis=None), np.arange(before[along].known or 0))
    return (axis if axis < along else axis - found.ndim + 1) if is_whole else None


def _axis_of_reshape(before: Shape, after: Shape, axis: int) -> int | None:
    """The axis before that an axis after is: the last of both, or one behind the same others."""
    last = len(before) - 1 if axis == len(after) - 1 else axis
    is_same = last < len(before) and before[last] == after[axis]
    return last if is_same and (axis == len(after) - 1 or before[:axis] == after[:axis]) else None


def _places(move: Move) -> Array | None:
    """Where rows of the smallest blocks lay that are moved alike; None where that is not known."""
    values = [move.source, *(node.outputs[0] for node in move.nodes)]
    shapes = [s[:a] + s[a + 1 :] for v, a in zip(values, move.across, strict=True) if (s := shape_of(v)) is not None]
    counted = min(shapes, key=lambda sizes: len(_names(sizes)))
    names = _names(counted)
    if len(names) > 1:
        return None
    # A batch of one more must have more of the same blocks.
    first, *others = [
        _block(move, shapes, counted, {name: Size(n) for name in names}) for n in (_TRIED if names else (1,))
    ]
    is_alike = all(first is not None and other is not None and np.array_equal(first, other) for other in others)
    return first if is_alike else None


def _names(sizes: Iterable[Size]) -> set[str]:
    return {name for size in sizes for name in names_in(size)}


def _block(move: Move, shapes: Sequence[Shape], counted: Shape, values: Mapping[str, Size]) -> Array | None:
    """The same where names have these values, which are all that there are in the shape that rows are counted by."""
    rows = math.prod(_number(size, values) for size in counted)
    if not 0 < rows <= _MOST_ROWS:
        return None
    sizes = [found for shape in shapes if (found := _numbers(shape, values, rows)) is not None]
    return _smallest_block(_moved(np.arange(rows), move, sizes)) if len(sizes) == len(shapes) else None


def _number(size: Size, values: Mapping[str, Size]) -> int:
    """A size where names have these values; 0 where that leaves it unknown."""
    return substitute(size, values).known or 0


def _numbers(sizes: Shape, values: Mapping[str, Size], rows: int) -> list[int] | None:
    """The sizes of so many rows, of which one may be unknown."""
    found = [_number(size, values) for size in sizes]
    if found.count(0) == 1:
        found[found.index(0)] = rows // math.prod(n for n in found if n)
    return found if math.prod(found) == rows else None


def _moved(rows: Array, move: Move, sizes: Sequence[Sequence[int]]) -> Array:
    """Rows that lie in their order in the first of these sizes, in the order that a move makes of it."""
    found = rows.reshape(sizes[0])
    for node, across, after in zip(move.nodes, move.across[:-1], sizes[1:], strict=True):
        if node.op_type == "Reshape":
            found = found.reshape(after)
        elif node.op_type == "Transpose":
            found = found.transpose([p - (p > across) for p in permutation(node) or () if p != across])
        else:
            places, along = array_of(node.inputs[1]), attribute(node, "axis") % (found.ndim + 1)
            assert places is not None
            found = found.take(places, along - (along > across))
    return found.reshape(-1)


def _smallest_block(places: Array) -> Array:
    """The first of the smallest blocks in which rows are moved alike."""
    for size in _divisors(places.size):
        blocks = places.reshape(-1, size)
        if places[:size].max() < size and np.array_equal(blocks, blocks[0] + size * np.arange(len(blocks))[:, None]):
            return places[:size]
    return places


def _divisors(n: int) -> list[int]:
    low = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return sorted({*low, *(n // d for d in low)})


def look_up(move: Move) -> bool:
    """Let the last of a move's nodes give its rows by one lookup, or as they lie where all stay, if that is less."""
    last, source, places = move.nodes[-1], move.source, move.places
    before, after = shape_of(source), shape_of(last.outputs[0])
    if before is None or after is None or places is None or move.copies < (1 if places.size == 1 else 2):
        return False
    across, sizes = after[-1].known or 0, written_sizes(after)
    if sizes is None or (places.size > 1 and across < _FEWEST):
        return False
    if places.size == 1 and before == after:
        hand_on(last, source)
    elif places.size > 1 and 0 < math.prod(sizes[:-1]) <= _MOST_NUMBERED:
        _look_up_all(move, places, sizes)
    else:
        become_reshape(last, source if places.size == 1 else _looked_up(move, places, across), sizes)
    return True


def _look_up_all(move: Move, places: Array, sizes: Sequence[int]) -> None:
    """Let the last node give rows by their numbers among all: nothing has to be reshaped behind it, and what reads it
    can read them itself."""
    last, (*rows, across) = move.nodes[-1], sizes
    count = math.prod(rows)
    all_rows = np.array([count, across], np.int64)
    table = put_with_constant(last, "Reshape", move.source, all_rows, ir.Shape(all_rows.tolist()))
    numbers = (places + places.size * np.arange(count // places.size)[:, None]).reshape(rows)
    name = f"{last.outputs[0].name}_rows"
    constant = add_constant(graph_of(last), name, numbers.astype(np.int64))
    become(last, "Gather", [table, constant], ir.AttrInt64("axis", 0))


def _looked_up(move: Move, places: Array, across: int) -> ir.Value:
    """Rows of each block as they come to lie, [block, row, element]."""
    last, shape = move.nodes[-1], ir.Shape([None, places.size, across])
    sizes = np.array([REST, places.size, across], np.int64)
    blocks = put_with_constant(last, "Reshape", move.source, sizes, shape)
    return put_with_constant(last, "Gather", blocks, places.astype(np.int64), shape, ir.AttrInt64("axis", 1))
