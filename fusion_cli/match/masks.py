"""Masks that constants alone make of positions, such as a causal one: every region that reads one makes it anew, number
by number, instead of reading it from memory."""

from __future__ import annotations

from collections.abc import Iterable

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex
from fusion_cli.operators.registry import having, is_elementwise

_CHEAP = having("cheap")
_MOST_NODES = 8


def made_of_positions(index: GraphIndex, nodes: Iterable[ir.Node]) -> set[ir.Node]:
    """The nodes outside that make what elementwise ones of a region read, of positions and numbers."""
    found: set[ir.Node] = set()
    inside = set(nodes)
    for value in dict.fromkeys(v for n in inside if is_elementwise(n) for v in n.inputs if v is not None):
        if (node := index.producer(value)) is not None and node not in inside:
            found |= _chain(index, node)
    return found - inside


def _chain(index: GraphIndex, last: ir.Node) -> set[ir.Node]:
    """The nodes that make what this one gives; none where they are many, or read anything but positions and numbers."""
    chain: set[ir.Node] = set()
    stack = [last]
    has_positions = False
    while stack:
        node = stack.pop()
        if node in chain:
            continue
        if not is_elementwise(node) or node.domain or node.op_type not in _CHEAP or len(chain) == _MOST_NODES:
            return set()
        chain.add(node)
        for value in node.inputs:
            producer = index.producer(value)
            if value is None or producer is not None:
                stack += [] if producer is None else [producer]
            elif index.is_counted(value):
                has_positions = True
            elif index.scalar(value) is None:
                return set()
    return chain if has_positions else set()
