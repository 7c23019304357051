"""The built-in patterns that match a connected set of nodes: Pointwise, Rowwise and Move.

Pointwise   elementwise operators, any arrangement, operands broadcast to one shape
Rowwise     those, and reductions, softmax and norms over the last axis
Move        reshapes, transposes and their like: data moves, no number changes

Pointwise <reshapes = 1> goes through reshapes too that keep the last axis, and through writes into a part of a value;
<closed = 1> reads nothing computed but its source, <factors = 1> multiplies it and puts zeros in places, nothing else;
Move <scalars = 1> goes through products and quotients with one number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx_ir as ir

from fusion_cli.match.graph import GraphIndex
from fusion_cli.match.operators import ELEMENTWISE, MOVES, OVERWRITES, RESHAPES, ROW_OPERATORS
from fusion_cli.match.pattern import Call
from fusion_cli.match.predicates import dims_of

_DATA = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.BOOL, ir.DataType.DOUBLE})
_COMPUTING = ELEMENTWISE | ROW_OPERATORS
DEFAULT_MAX_OPS = 64
_LARGEST = 65504.0
"""The largest number of the narrowest float type."""
_NAME = re.compile(r"[^\W\d]\w*")
Dims = tuple[int | str, ...]


@dataclass(frozen=True)
class Grown:
    """A region from one value to another; empty (source is target) where the pattern asked for no operator at least."""

    source: ir.Value
    target: ir.Value
    nodes: frozenset[ir.Node]


class Grower:
    """Grows regions in one graph."""

    def __init__(self, index: GraphIndex) -> None:
        self.index = index

    def backward(
        self,
        call: Call,
        target: ir.Value,
        source: ir.Value | None,
        taken: frozenset[ir.Node],
        fits: Callable[[ir.Value], bool],
    ) -> Iterator[Grown]:
        """Regions that end at `target`, nearest source first. Of sources that do not fit only the nearest counts."""
        least, most = _bounds(call)
        if least == 0 and source in (None, target):
            yield Grown(target, target, frozenset())
        reached: dict[ir.Node, None] = {}
        edge = [target]
        tried = False
        while edge and len(reached) < most:
            sources: list[ir.Value] = []
            for value in edge:
                node = self.index.producer(value)
                if node is None or node in reached or node in taken or not self.allows(call, node):
                    continue
                reached[node] = None
                sources += [v for v in self._operands(call, node) if v not in sources]
            for value in sources:
                if value is source or (source is None and (not tried or fits(value))):
                    tried = True
                    yield from self._whole(call, value, target, taken)
                    if source is not None:
                        return
            edge = sources

    def forward(
        self, call: Call, source: ir.Value, taken: frozenset[ir.Node], fits: Callable[[ir.Value], bool]
    ) -> Iterator[Grown]:
        """Regions that start at `source`, nearest target first. Of targets that do not fit only the nearest counts."""
        least, most = _bounds(call)
        if least == 0:
            yield Grown(source, source, frozenset())
        reached: dict[ir.Node, None] = {}
        edge = [source]
        tried = False
        while edge and len(reached) < most:
            targets: list[ir.Value] = []
            for value in edge:
                for node in self.index.consumers(value):
                    if node in reached or node in taken or not self.allows(call, node):
                        continue
                    if value in self._operands(call, node):
                        reached[node] = None
                        targets.append(node.outputs[0])
            for target in targets:
                if not tried or fits(target):
                    tried = True
                    yield from self._whole(call, source, target, taken)
            edge = targets

    def _whole(self, call: Call, source: ir.Value, target: ir.Value, taken: frozenset[ir.Node]) -> Iterator[Grown]:
        """The region of all nodes between two values, if it is within the bounds."""
        least, most = _bounds(call)
        start = self.index.producer(source)
        first = self.index.position[start] if start is not None else -1
        reached: dict[ir.Node, None] = {}
        edge = [target]
        while edge and len(reached) < 8 * most:
            node = self.index.producer(edge.pop(0))
            if node is None or node in reached or node in taken or self.index.position[node] <= first:
                continue
            if self.allows(call, node):
                reached[node] = None
                edge += [v for v in self._operands(call, node) if v is not source]
        nodes = self._between(source, target, reached)
        closed = not call.attributes.get("closed") or self._is_closed(call, source, nodes)
        scaled = not call.attributes.get("factors") or self._are_factors(source, nodes)
        computing = len(nodes) if call.op == "Move" else sum(n.op_type not in RESHAPES for n in nodes)
        if closed and scaled and nodes and least <= computing and len(nodes) <= most:
            yield Grown(source, target, nodes)

    def _is_closed(self, call: Call, source: ir.Value, nodes: frozenset[ir.Node]) -> bool:
        """Whether the nodes read nothing that is computed elsewhere but the source."""
        makers = (self.index.producer(v) for n in nodes for v in self._operands(call, n) if v is not source)
        return all(maker is None or maker in nodes for maker in makers)

    def _are_factors(self, source: ir.Value, nodes: frozenset[ir.Node]) -> bool:
        """Whether all that the nodes do to the source is to multiply it and to put zeros in places."""
        inside = {source, *(v for n in nodes for v in n.outputs)}

        def scales(node: ir.Node) -> bool:
            inner = [i for i, v in enumerate(node.inputs) if v in inside]
            if node.op_type == "Where":
                return any(map(self._is_guard, node.inputs[1:])) and inner[-1] > 0
            if node.op_type in ("Mul", "Div"):
                return inner == [0] or (node.op_type == "Mul" and inner == [1])
            if node.op_type == "Cast":
                return self.index.is_transparent(node)
            return node.op_type in MOVES or node.outputs[0].dtype == ir.DataType.BOOL

        return all(map(scales, nodes))

    def _is_guard(self, value: ir.Value | None) -> bool:
        """Whether a value is zero, or a number as large as what infinities are replaced with: weights are never so."""
        number = self.index.scalar(value)
        return number is not None and (number == 0 or abs(number) >= _LARGEST)

    def maximal(self, call: Call, source: ir.Value, taken: frozenset[ir.Node]) -> Grown | None:
        """The largest region that starts at `source` and keeps its shape; its target is the last value made."""
        least, most = _bounds(call)
        nodes: dict[ir.Node, None] = {}
        inside = set(taken)
        frontier = [source]
        while frontier and len(nodes) < most:
            value = frontier.pop(0)
            for node in self.index.consumers(value):
                if node in nodes or node in taken or len(nodes) >= most or not self.allows(call, node):
                    continue
                # A reshape to a shape computed from this very value is no way out: regions copy such arithmetic.
                if self._fits(call, node, source) and (call.op == "Move" or self.index.joins(node, inside)):
                    nodes[node] = None
                    inside.add(node)
                    frontier.append(node.outputs[0])
        if len(nodes) < least:
            return None
        last = max(nodes, key=self.index.position.__getitem__, default=None)
        return Grown(source, last.outputs[0] if last is not None else source, frozenset(nodes))

    def groups(self, call: Call) -> list[frozenset[ir.Node]]:
        """All maximal regions of the graph, disjoint, each convex."""
        least, most = _bounds(call)
        group_of: dict[ir.Node, set[ir.Node]] = {}
        for node in self.index.nodes:
            if not self.allows(call, node) or not self.is_data(node):
                continue
            joined = {node}
            for value in node.inputs:
                producer = self.index.producer(value)
                group = group_of.get(producer) if producer is not None else None
                if group is None or group <= joined or value is None:
                    continue
                merged = joined | group
                if len(merged) <= most and self._same_rows(call, group, joined) and self.index.is_convex(merged):
                    joined = merged
            for member in joined:
                group_of[member] = joined
        distinct = {id(g): g for g in group_of.values()}.values()
        return [frozenset(g) for g in distinct if len(g) >= max(least, 1) and self._is_kind(call, g)]

    # ---- what may be part of a region

    def allows(self, call: Call, node: ir.Node) -> bool:
        if node.domain:
            return False
        if call.op == "Move":
            return node.op_type in MOVES or bool(call.attributes.get("scalars") and self._is_scaling(node))
        if node.op_type in ELEMENTWISE:
            return True
        if call.attributes.get("reshapes") and node.op_type in RESHAPES:
            return self._keeps_rows(node)
        if call.attributes.get("reshapes") and node.op_type in OVERWRITES:
            return True
        if call.op != "Rowwise" or node.op_type not in ROW_OPERATORS:
            return False
        attributes = self.index.attributes(node)
        return (
            attributes.get("axis", -1) == -1
            and attributes.get("axes", [-1]) == [-1]
            and attributes.get("keepdims", 1) == 1
            and len(node.outputs) == 1
        )

    @staticmethod
    def _is_kind(call: Call, group: Iterable[ir.Node]) -> bool:
        """Whether a group is of the pattern's own kind: without a reduction it is Pointwise's to find."""
        return call.op != "Rowwise" or any(n.op_type in ROW_OPERATORS for n in group)

    def _keeps_rows(self, node: ir.Node) -> bool:
        """Whether a reshape leaves the last axis as it is, as far as can be told: a softmax over queries and keys is no
        softmax over keys."""
        before = self._dims(node.inputs[0]) if node.inputs[0] is not None else None
        after = self._dims(node.outputs[0])
        if not before or not after or before[-1] == after[-1]:
            return True
        if isinstance(before[-1], int) or isinstance(after[-1], int):
            return False
        # One size may go by two names, above all where shapes were not known. Then the axis before it has to fit too.
        rows = {*before[-2:-1], *after[-2:-1]}
        return len(rows) == 1 or not (any(isinstance(d, int) for d in rows) or all(map(self._is_given, rows)))

    def _is_given(self, dim: int | str) -> bool:
        """Whether a size is written in those of the graph's inputs, and so differs from others that are."""
        return self._symbols.issuperset(_NAME.findall(str(dim)))

    @cached_property
    def _symbols(self) -> frozenset[str]:
        dims = (d for v in self.index.graph.inputs for d in dims_of(v) or ())
        return frozenset(name for d in dims if isinstance(d, str) for name in _NAME.findall(d))

    def _is_scaling(self, node: ir.Node) -> bool:
        """Whether the node multiplies or divides by one number."""
        if node.op_type not in ("Mul", "Div"):
            return False
        numbers = [_is_number(v) for v in node.inputs]
        return any(numbers[1:]) or (node.op_type == "Mul" and numbers[0])

    def _operands(self, call: Call, node: ir.Node) -> list[ir.Value]:
        values = node.inputs[:1] if node.op_type in MOVES or node.op_type in OVERWRITES else node.inputs
        if call.op == "Move" and len(values) > 1:
            values = [v for v in values if not _is_number(v)]
        return [v for v in values if v is not None and not self.index.is_constant(v)]

    def is_data(self, node: ir.Node) -> bool:
        """Whether the node handles data rather than shapes."""
        output = node.outputs[0]
        return output.dtype in _DATA and output.shape is not None

    def _fits(self, call: Call, node: ir.Node, source: ir.Value) -> bool:
        if call.op == "Move":
            return True
        wanted = self._dims(source)
        if node.outputs[0].shape is None or wanted is None:
            return False
        shape = self.shape(node)
        return shape == wanted or (call.op == "Rowwise" and shape == (*wanted[:-1], 1))

    def _same_rows(self, call: Call, left: Iterable[ir.Node], right: Iterable[ir.Node]) -> bool:
        shapes = {self.shape(n) for n in (*left, *right)}
        if call.op == "Pointwise":
            return len(shapes) == 1
        rows = {s[:-1] for s in shapes}
        widths = {s[-1] for s in shapes if s} - {1}
        return len(rows) == 1 and len(widths) <= 1 and all(shapes)

    def shape(self, node: ir.Node) -> Dims:
        """The shape of the first result. An elementwise operator's follows from what it reads: the model may give a
        result other names for its sizes, as exporters do for graph outputs."""
        return self._shapes[node] if node in self._shapes else tuple(dims_of(node.outputs[0]) or ())

    @cached_property
    def _shapes(self) -> Mapping[ir.Node, Dims]:
        """Of what regions are made of."""
        found: dict[ir.Node, Dims] = {}
        for node in self.index.nodes:
            if node.domain or node.op_type not in _COMPUTING:
                continue
            declared = tuple(dims_of(node.outputs[0]) or ())
            if node.op_type in ELEMENTWISE and not all(isinstance(d, int) for d in declared):
                declared = _broadcast([self._follow(v, found) for v in node.inputs if v is not None], declared)
            found[node] = declared
        return found

    def _dims(self, value: ir.Value) -> Dims | None:
        return self._follow(value, self._shapes)

    def _follow(self, value: ir.Value, shapes: Mapping[ir.Node, Dims]) -> Dims | None:
        """A value's shape, or None if it is unknown, given those that follow for the nodes before."""
        maker = self.index.producer(value)
        if value.shape is not None and maker is not None and maker in shapes and maker.outputs[0] is value:
            return shapes[maker]
        dims = dims_of(value)
        return None if dims is None else tuple(dims)

    def _between(self, source: ir.Value, target: ir.Value, reached: Iterable[ir.Node]) -> frozenset[ir.Node]:
        """The reached nodes that lie on a path from source to target."""
        inside = set(reached)
        ordered = sorted(inside, key=self.index.position.__getitem__)
        below: set[ir.Value] = {source}
        downstream: set[ir.Node] = set()
        for node in ordered:
            if any(v in below for v in node.inputs if v is not None):
                downstream.add(node)
                below.update(node.outputs)
        above: set[ir.Value] = {target}
        nodes: set[ir.Node] = set()
        for node in reversed(ordered):
            if node in downstream and any(v in above for v in node.outputs):
                nodes.add(node)
                above.update(v for v in node.inputs if v is not None and v is not source)
        return frozenset(nodes)


def _is_number(value: ir.Value | None) -> bool:
    """Whether the value has a single element, whatever its rank."""
    dims = dims_of(value) if value is not None else None
    return dims is not None and all(d == 1 for d in dims)


def _broadcast(shapes: Sequence[Dims | None], declared: Dims) -> Dims:
    """The shape that operands make together, or the declared one where that cannot be told."""
    known = [s for s in shapes if s is not None]
    rank = max(map(len, known), default=0)
    if len(known) < len(shapes) or rank != len(declared):
        return declared
    padded = [(1,) * (rank - len(s)) + s for s in known]
    axes = [{d for d in sizes if d != 1} or {1} for sizes in zip(*padded, strict=True)]
    return tuple(next(iter(s)) for s in axes) if all(len(s) == 1 for s in axes) else declared


def _bounds(call: Call) -> tuple[int, int]:
    return int(call.attributes.get("min_ops", 0)), int(call.attributes.get("max_ops", DEFAULT_MAX_OPS))
