"""Where a grown region ends at a node that it could have taken, but for its axis or for sizes not known to be equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from fusion_cli.codes.match import ATTRIBUTE, SIZES
from fusion_cli.language.pattern import Call, Pattern
from fusion_cli.match.found import Miss
from fusion_cli.match.members import ROWWISE, Members
from fusion_cli.match.stops import Stop
from fusion_cli.operators.registry import ROW_OPERATORS, is_elementwise
from fusion_cli.sizes.algebra import ONE, Shape
from fusion_cli.sizes.dims import listed
from fusion_cli.types import label


def misses(members: Members, pattern: Pattern, groups: Iterable[frozenset[ir.Node]]) -> Iterator[Miss]:
    """The near misses of a rule that is nothing but one growing pattern, given what it found."""
    call = pattern.calls[0]
    group_of = {n: group for group in groups for n in group}
    computing = (n for n in members.index.nodes if is_elementwise(n) or (n.op_type in ROW_OPERATORS and not n.domain))
    for node in computing:
        own = group_of.get(node, frozenset())
        for beside in _neighbours(members, call, node):
            if beside in own or not members.allows(call, beside) or not members.is_data(beside):
                continue
            stop = _stop(members, pattern, node, beside)
            if stop is not None:
                group = group_of.get(beside, frozenset([beside]))
                yield Miss(pattern, node, group, frozenset(), 0, stop, nearness=1 - 1 / (len(group) + 2))
                break


def _neighbours(members: Members, call: Call, node: ir.Node) -> list[ir.Node]:
    """What the node reads and, where it cannot be in a region itself, what reads it."""
    near = list(members.index.predecessors(node))
    if not members.allows(call, node):
        near += members.index.consumers(node.outputs[0])
    return near


def _stop(members: Members, pattern: Pattern, node: ir.Node, beside: ir.Node) -> Stop | None:
    call = pattern.calls[0]
    if call.op == "Convolutions":
        return None
    if not members.allows(call, node):
        return _axis(members, pattern, node) if call.op == "Rowwise" and node.op_type in ROW_OPERATORS else None
    # A sum of rows is Rowwise's near miss, anything else Pointwise's.
    is_row = not ROW_OPERATORS.isdisjoint({node.op_type, beside.op_type})
    if is_row != (call.op == "Rowwise") or not members.is_data(node):
        return None
    here, there = members.shapes.of_result(node), members.shapes.of_result(beside)
    if not _may_be_equal(here, there):
        return None
    expected = f"the shape of {beside.op_type} {label(beside)}, {listed(there)}"
    return Stop(pattern, SIZES, call, node.outputs[0], node, expected=expected, found=listed(here))


def _axis(members: Members, pattern: Pattern, node: ir.Node) -> Stop | None:
    found = members.index.attributes(node)
    name = next((n for n, asked in ROWWISE.items() if found.get(n, asked) != asked), None)
    if name is None:
        return None
    call, expected = pattern.calls[0], ROWWISE[name]
    return Stop(pattern, ATTRIBUTE, call, node=node, name=name, expected=expected, found=found[name])


def _may_be_equal(left: Shape, right: Shape) -> bool:
    """Whether two shapes differ in nothing but sizes that are not known."""
    if left == right or len(left) != len(right):
        return False
    return all(a == b or (ONE not in (a, b) and None in (a.known, b.known)) for a, b in zip(left, right, strict=True))
