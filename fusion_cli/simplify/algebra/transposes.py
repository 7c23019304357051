"""Transposes that undo one another, also with elementwise nodes between them.

The library's rule merges any two into one as well, which are forms that the rules for attention tell apart.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.registry import is_elementwise
from fusion_cli.simplify.algebra.edits import (
    Applied,
    Array,
    add_constant,
    array_of,
    graph_of,
    hand_on,
    only_reader,
    permutation,
)

Permutation = tuple[int, ...]
Between = list[tuple[ir.Node, int]]
"""Elementwise nodes, from the last to the first, and the operand in which each follows on the next."""


def cancel_transposes(graph: ir.Graph) -> Iterator[Applied]:
    """Take out each Transpose that undoes one before it, with what is between them computed in the order that the first
    one found, in place."""
    for node in list(graph):
        perm = permutation(node)
        if perm is None or node.inputs[0] is None:
            continue
        found = _undone(node.inputs[0], perm)
        if found is None:
            continue
        first, between = found
        assert first.inputs[0] is not None
        for step, index in between:
            _reorder(step, index, perm)
        last, index = between[-1] if between else (node, 0)
        last.replace_input_with(index, first.inputs[0])
        assert node.inputs[0] is not None
        hand_on(node, node.inputs[0])
        yield "TransposeTranspose", [first, *(n for n, _ in reversed(between)), node]


def _undone(value: ir.Value, perm: Permutation) -> tuple[ir.Node, Between] | None:
    """The Transpose that one by `perm` of the value undoes, and what is between them."""
    between: Between = []
    while (node := value.producer()) is not None:
        before = permutation(node)
        if before is not None:
            undone = len(before) == len(perm) and all(before[p] == i for i, p in enumerate(perm))
            return (node, between) if undone else None
        index = _moving(node, len(perm))
        source = None if index is None else node.inputs[index]
        if index is None or source is None or only_reader(value) is None:
            return None
        between.append((node, index))
        value = source
    return None


def _moving(node: ir.Node, rank: int) -> int | None:
    """The operand whose axes an elementwise node hands on, if its others are constants."""
    if not is_elementwise(node) or len(node.outputs) != 1:
        return None
    computed = [i for i, v in enumerate(node.inputs) if v is not None and array_of(v) is None]
    constants = [a for v in node.inputs if (a := array_of(v)) is not None]
    return computed[0] if len(computed) == 1 and all(a.ndim <= rank for a in constants) else None


def _reorder(node: ir.Node, index: int, perm: Permutation) -> None:
    """Let a node work on what `perm` makes of its operand."""
    for i, value in enumerate(node.inputs):
        array = None if i == index else array_of(value)
        if value is not None and array is not None and array.ndim > 0:
            constant = add_constant(graph_of(node), str(value.name), _permuted(array, perm))
            node.replace_input_with(i, constant)
    shape = node.outputs[0].shape
    if shape is not None:
        node.outputs[0].shape = ir.Shape([shape[p] for p in perm])


def _permuted(array: Array, perm: Permutation) -> Array:
    whole = array.reshape((1,) * (len(perm) - array.ndim) + array.shape)
    return np.ascontiguousarray(whole.transpose(perm))
