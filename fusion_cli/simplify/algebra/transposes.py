"""Transposes that undo others, also with elementwise nodes between them.

The library's rule merges any two into one as well, which are forms that the rules for attention tell apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.registry import is_elementwise
from fusion_cli.simplify.algebra.edits import (
    Applied,
    Array,
    add_constant,
    array_of,
    count_uses,
    graph_of,
    hand_on,
    permutation,
)

Permutation = tuple[int, ...]
Readers = list[tuple[ir.Node, int]]
"""Nodes, and as which operand each reads a value."""
_MOST_BETWEEN = 32


@dataclass(frozen=True)
class _Between:
    """Elementwise nodes all of whose operands are transposed alike, numbers, or each other's results."""

    nodes: dict[ir.Node, None] = field(default_factory=dict)
    operands: list[tuple[ir.Node, int, ir.Node]] = field(default_factory=list)
    """Node, index, and the Transpose that makes the operand."""

    def firsts(self) -> dict[ir.Node, int]:
        """The Transposes before, and how often they are read here."""
        found: dict[ir.Node, int] = {}
        for _, _, first in self.operands:
            found[first] = found.get(first, 0) + 1
        return found


def cancel_transposes(graph: ir.Graph) -> Iterator[Applied]:
    """Take out each Transpose that undoes others before it, with what is between them computed in the order that the
    first ones found, in place, wherever that leaves fewer."""
    for node in list(graph):
        perm, value = permutation(node), node.inputs[0] if node.inputs else None
        first = None if value is None else value.producer()
        if perm is None or value is None or first is None:
            continue
        if undoes(perm, permutation(first)):
            assert first.inputs[0] is not None
            hand_on(node, first.inputs[0])
            yield "TransposeTranspose", [first, node]
        elif (between := _between(first, perm)) is not None:
            firsts, lasts = between.firsts(), [n for made in between.nodes for n in _undoing(made.outputs[0], perm)]
            made = (node.outputs[0] for node in between.nodes)
            others = {value: read for value in made if (read := _others(value, between, lasts))}
            freed = sum(count_uses(f.outputs[0]) == n and not f.outputs[0].is_graph_output() for f, n in firsts.items())
            if len(lasts) + freed > len(others):
                _reorder(between, perm, lasts, others)
                yield "TransposeTranspose", [*firsts, *reversed(between.nodes), *lasts]


def undoes(perm: Permutation, before: Permutation | None) -> bool:
    """Whether each of two permutations turns back what the other did."""
    return before is not None and len(before) == len(perm) and all(before[p] == i for i, p in enumerate(perm))


def _between(last: ir.Node, perm: Permutation) -> _Between | None:
    """What is computed between a node and Transposes that one by `perm` undoes; None where there is anything else."""
    found, waiting = _Between(), [last]
    while waiting:
        node = waiting.pop()
        if node in found.nodes:
            continue
        if not _moves(node, last) or len(found.nodes) == _MOST_BETWEEN:
            return None
        found.nodes[node] = None
        follows = False
        for index, value in enumerate(node.inputs):
            array = array_of(value)
            if value is None or (array is not None and array.ndim <= len(perm)) or _is_number(value):
                continue
            source = value.producer()
            if source is None:
                return None
            if undoes(perm, permutation(source)):
                found.operands.append((node, index, source))
            else:
                waiting.append(source)
            follows = True
        if not follows:
            return None
    return found


def _moves(node: ir.Node, last: ir.Node) -> bool:
    """Whether a node may work in any order of the axes: an elementwise one, of whose result only nodes know."""
    is_plain = is_elementwise(node) and len(node.outputs) == 1 and node.graph is last.graph
    return is_plain and not node.outputs[0].is_graph_output()


def _is_number(value: ir.Value) -> bool:
    return value.shape is not None and len(value.shape) == 0


def _undoing(value: ir.Value, perm: Permutation) -> list[ir.Node]:
    return [reader for reader, _ in value.uses() if permutation(reader) == perm]


def _others(value: ir.Value, between: _Between, lasts: list[ir.Node]) -> Readers:
    """Who else reads a value of those between, in the order that it has."""
    return [(reader, i) for reader, i in value.uses() if reader not in between.nodes and reader not in lasts]


def _reorder(between: _Between, perm: Permutation, lasts: list[ir.Node], others: Mapping[ir.Value, Readers]) -> None:
    """Compute what is between in the order that `perm` makes, and transpose what others read of it."""
    for node, index, first in between.operands:
        node.replace_input_with(index, first.inputs[0])
    back = tuple(perm.index(i) for i in range(len(perm)))
    for node in between.nodes:
        _reorder_constants(node, perm)
        made = node.outputs[0]
        if made in others:
            restored = ir.node("Transpose", [made], {"perm": back}, name=f"{node.name}_transposed")
            restored.outputs[0].name = f"{made.name}_transposed"
            restored.outputs[0].type, restored.outputs[0].shape = made.type, made.shape
            graph_of(node).insert_after(node, restored)
            for reader, index in others[made]:
                reader.replace_input_with(index, restored.outputs[0])
        if made.shape is not None:
            made.shape = ir.Shape([made.shape[p] for p in perm])
    for last in lasts:
        assert last.inputs[0] is not None
        hand_on(last, last.inputs[0])


def _reorder_constants(node: ir.Node, perm: Permutation) -> None:
    for i, value in enumerate(node.inputs):
        array = array_of(value)
        if value is not None and array is not None and array.ndim > 0:
            node.replace_input_with(i, add_constant(graph_of(node), str(value.name), _permuted(array, perm)))


def _permuted(array: Array, perm: Permutation) -> Array:
    whole = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
    return np.ascontiguousarray(whole.transpose(perm))
