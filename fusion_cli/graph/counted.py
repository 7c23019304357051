"""Constants that count, consecutive numbers along one axis, and the masks that are made of such positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.registry import having, is_elementwise

MOST_COUNTED = 1 << 16
"""Longer ones stay arrays: functions have copies of those that they embed."""
_CHEAP = having("cheap")
_MOST_NODES = 8


def counted_from(array: np.ndarray[Any, Any]) -> int | None:
    """The first of several consecutive integers that lie along the one axis of a size above one; None of others."""
    if array.dtype.kind != "i" or not 1 < array.size <= MOST_COUNTED or max(array.shape) != array.size:
        return None
    flat = array.reshape(-1)
    first = int(flat[0])
    return first if flat[1] == first + 1 and np.array_equal(flat, np.arange(first, first + flat.size)) else None


def counts(value: ir.Value) -> bool:
    """Whether a constant does."""
    tensor = value.const_value
    if tensor is None or value.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return False
    return 1 < tensor.size <= MOST_COUNTED and counted_from(tensor.numpy()) is not None


def made_of_positions(
    nodes: Iterable[ir.Node], is_position: Callable[[ir.Value], bool], is_number: Callable[[ir.Value], bool]
) -> frozenset[ir.Node]:
    """The nodes that make masks of positions and numbers alone, by a few cheap operations: every reader may as well do
    that anew, number by number, instead of reading from memory."""
    chains: dict[ir.Node, frozenset[ir.Node]] = {}
    counted: set[ir.Node] = set()
    for node in nodes:
        if not is_elementwise(node) or node.domain or node.op_type not in _CHEAP:
            continue
        made = [(v, v.producer()) for v in node.inputs if v is not None]
        if all(maker in chains or is_position(v) or is_number(v) for v, maker in made):
            chain = frozenset({node}).union(*(chains.get(maker, ()) for _, maker in made if maker is not None))
            if len(chain) <= _MOST_NODES:
                chains[node] = chain
                if any(maker in counted or is_position(v) for v, maker in made):
                    counted.add(node)
    return frozenset().union(*(chains[node] for node in counted))
