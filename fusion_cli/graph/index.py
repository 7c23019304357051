"""An index over one graph of a model, the main one or a body: order, producers, consumers, constants, and what
patterns see through."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from fusion_cli.graph.attributes import canonical_attributes
from fusion_cli.graph.counted import axis_of_positions, made_of_positions
from fusion_cli.load.overridable import is_constant
from fusion_cli.load.structure import bodies_of
from fusion_cli.operators.dtypes import ONNX_FLOATS
from fusion_cli.operators.registry import having
from fusion_cli.operators.versions import INPUT_ATTRIBUTES, training_mode
from fusion_cli.sizes.dims import shape_of

MAX_EMBEDDED = 64
"""Constants of up to this many elements are looked at by value."""
MAX_PASSED = 16
"""Casts and the like in a row that patterns see through. Exporters leave three at most; a chain of thousands would take
time and memory quadratic in its length."""

_FEW = 4
"""Nodes that are looked through sooner than sorted."""
_TRANSPARENT = having("transparent")


class GraphIndex:
    """Look-ups over one graph; built once, in linear time, and not changed by matching."""

    def __init__(self, graph: ir.Graph) -> None:
        self.graph = graph
        self.nodes: tuple[ir.Node, ...] = tuple(graph)
        self.position: dict[ir.Node, int] = {n: i for i, n in enumerate(self.nodes)}
        self.graph_inputs = frozenset(graph.inputs)
        self.outputs = frozenset(graph.outputs)
        self.opset = graph.opset_imports.get("", 0)
        self._attributes: dict[ir.Node, Mapping[str, Any]] = {}
        self.conditions: dict[tuple[object, ...], bool] = {}
        """Conditions of rules, by their text and what they were asked of (see language/predicates.py)."""
        self._constants: dict[ir.Value, np.ndarray[Any, Any] | None] = {}
        self._counted: dict[ir.Value, int | None] = {}
        self._escapes: dict[ir.Value, bool] = {}
        self._scalars: dict[ir.Value, float | None] = {}
        self._weighted: dict[ir.Value, frozenset[str]] = {}
        self._inputs: dict[ir.Node, Sequence[ir.Value | None]] = {}
        self._predecessors: dict[ir.Node, Sequence[ir.Node]] = {}
        self._readers: dict[ir.Value, Sequence[ir.Node]] = {}
        self._readers_by_op: dict[ir.Value, Mapping[tuple[str, str], Sequence[ir.Node]]] = {}
        self._roots: dict[ir.Value, tuple[ir.Value, tuple[ir.Node, ...]]] = {}

    @cached_property
    def by_op(self) -> Mapping[tuple[str, str], Sequence[ir.Node]]:
        return _by_op(self.nodes)

    @cached_property
    def of_positions(self) -> frozenset[ir.Node]:
        """Nodes that make masks of positions and numbers alone: whoever reads one makes it anew."""
        return made_of_positions(
            self.nodes, lambda v: self.axis_of_positions(v) is not None, lambda v: self.scalar(v) is not None
        )

    @cached_property
    def not_imported(self) -> frozenset[ir.Node]:
        """Nodes whose operators are not, as far as that is known, of the operator sets that the model imports."""
        known = {(domain, op): self._is_imported(domain, op) for domain, op in self.by_op}
        return frozenset(n for n in self.nodes if not known[n.domain, n.op_type])

    @cached_property
    def unshaped(self) -> Mapping[ir.Value, ir.Node]:
        """Values of unknown type or shape, each with the first node on the way to it that one comes out of."""
        found: dict[ir.Value, ir.Node] = {}
        for node in self.nodes:
            lost = next((found[v] for v in node.inputs if v is not None and v in found), node)
            found.update({v: lost for v in node.outputs if v.name and (v.dtype is None or v.shape is None)})
        return found

    def _is_imported(self, domain: str, op: str) -> bool:
        version = self.graph.opset_imports.get(domain)
        return version is not None and (domain != "" or bool(onnx.defs.has(op, version, "")))

    @cached_property
    def captured(self) -> tuple[ir.Value, ...]:
        """What a body reads of the graphs around it, constants aside, in order of first use."""
        read = dict.fromkeys(v for n in self.nodes for v in n.inputs if v is not None and not self.is_constant(v))
        return tuple(v for v in read if self.producer(v) is None and v not in self.graph_inputs)

    @cached_property
    def _captures(self) -> Mapping[ir.Node, Sequence[ir.Value]]:
        """What the bodies of nodes of control flow read."""
        found = {}
        for node in self.nodes:
            bodies = bodies_of(node)
            if bodies:
                inner = (n for body in bodies for n in body.all_nodes())
                found[node] = tuple(v for n in inner for v in n.inputs if v is not None)
        return found

    def _reads(self, node: ir.Node) -> Sequence[ir.Value | None]:
        captured = self._captures.get(node)
        return node.inputs if captured is None else (*node.inputs, *captured)

    def predecessors(self, node: ir.Node) -> Sequence[ir.Node]:
        """The nodes of this graph that make what the node or its bodies read."""
        if node not in self._predecessors:
            producers = dict.fromkeys(self.producer(value) for value in self._reads(node))
            self._predecessors[node] = tuple(n for n in producers if n is not None)
        return self._predecessors[node]

    @cached_property
    def depth(self) -> Mapping[ir.Node, int]:
        """How many nodes of this graph the longest path to a node passes."""
        found: dict[ir.Node, int] = {}
        for node in self.nodes:
            found[node] = 1 + max((found.get(n, 0) for n in self.predecessors(node)), default=-1)
        return found

    @cached_property
    def _consumers(self) -> Mapping[ir.Value, Sequence[ir.Node]]:
        found: dict[ir.Value, dict[ir.Node, None]] = defaultdict(dict)
        for node in self.nodes:
            for value in self._reads(node):
                if value is not None:
                    found[value][node] = None
        return {value: tuple(nodes) for value, nodes in found.items()}

    def consumers(self, value: ir.Value) -> Sequence[ir.Node]:
        """Nodes of this graph that read `value`, or whose bodies do, in order, each once."""
        return self._consumers.get(value, ())

    def readers(self, value: ir.Value) -> Sequence[ir.Node]:
        """Consumers, looking through what `root` looks through."""
        if value not in self._readers:
            found = consumers = self.consumers(value)
            if any(map(self.is_transparent, consumers)):
                through = ((self.readers(n.outputs[0]) if self.is_transparent(n) else (n,)) for n in consumers)
                found = tuple(dict.fromkeys(n for nodes in through for n in nodes))
            self._readers[value] = found
        return self._readers[value]

    def count_readers(self, value: ir.Value, nodes: Collection[ir.Node]) -> int:
        """How many of `nodes` are readers of the value."""
        readers = self.readers(value)
        if len(readers) <= len(nodes):
            return sum(n in nodes for n in readers)
        return sum(any(v is not None and self.root(v)[0] is value for v in n.inputs) for n in nodes)

    def readers_by_op(self, value: ir.Value, domain: str, op: str) -> Sequence[ir.Node]:
        """Those of one operator."""
        readers = self.readers(value)
        if len(readers) <= _FEW:
            return [n for n in readers if n.op_type == op and n.domain == domain]
        if value not in self._readers_by_op:
            self._readers_by_op[value] = _by_op(readers)
        return self._readers_by_op[value].get((domain, op), ())

    def escapes(self, value: ir.Value) -> bool:
        """Whether something other than this graph's own nodes reads the value: a graph output or a nested body."""
        if value not in self._escapes:
            self._escapes[value] = value in self.outputs or any(u.node not in self.position for u in value.uses())
        return self._escapes[value]

    def weighted(self, value: ir.Value) -> frozenset[str]:
        """The operators that read the value as their second input, where layers have their weights."""
        if value not in self._weighted:
            nodes = self.consumers(value)
            self._weighted[value] = frozenset(n.op_type for n in nodes if len(n.inputs) > 1 and n.inputs[1] is value)
        return self._weighted[value]

    def producer(self, value: ir.Value | None) -> ir.Node | None:
        """The node of this graph that makes the value; None for what comes from outside."""
        node = value.producer() if value is not None else None
        return node if node in self.position else None

    def attributes(self, node: ir.Node) -> Mapping[str, Any]:
        """The node's attributes in canonical form (see graph/attributes.py)."""
        if node not in self._attributes:
            self._attributes[node] = canonical_attributes(node, self.opset, self.constant)
        return self._attributes[node]

    def inputs(self, node: ir.Node) -> Sequence[ir.Value | None]:
        """The node's data inputs: trailing omitted ones and those that are attributes in other opsets left out."""
        if node not in self._inputs:
            op, domain = node.op_type, node.domain
            values = [v for i, v in enumerate(node.inputs) if (op, i) not in INPUT_ATTRIBUTES or domain]
            while values and values[-1] is None:
                values.pop()
            self._inputs[node] = tuple(values)
        return self._inputs[node]

    def scalar(self, value: ir.Value | None) -> float | None:
        """The number that a constant with one element holds, whatever its shape and type."""
        if value is None:
            return None
        if value not in self._scalars:
            array = self.constant(value)
            self._scalars[value] = (
                float(array.ravel()[0])
                if array is not None and array.size == 1 and array.dtype.kind not in "OSUc"
                else None
            )
        return self._scalars[value]

    def constant(self, value: ir.Value | None) -> np.ndarray[Any, Any] | None:
        """A constant's array, if it has at most MAX_EMBEDDED elements."""
        if value is None:
            return None
        if value not in self._constants:
            tensor = value.const_value if self.is_constant(value) else None
            self._constants[value] = None if tensor is None or tensor.size > MAX_EMBEDDED else tensor.numpy()
        return self._constants[value]

    def axis_of_positions(self, value: ir.Value) -> int | None:
        """The axis, from the end, along which the value holds consecutive integers, and alone differs."""
        if value not in self._counted:
            self._counted[value] = axis_of_positions(value)
        return self._counted[value]

    def is_constant(self, value: ir.Value | None) -> bool:
        """Whether the value is known when the model is built. A graph input with an initializer is not: callers may
        override it."""
        return value is not None and is_constant(value)

    def root(self, value: ir.Value) -> tuple[ir.Value, tuple[ir.Node, ...]]:
        """`value` traced up through casts between float types, identities and inference-mode dropouts, and the nodes
        passed on the way. Patterns see through these: an fp16 model's LayerNorm is the fp32 one with casts inside."""
        if value not in self._roots:
            passed: list[ir.Node] = []
            root = value
            while (node := self.producer(root)) is not None and self.is_transparent(node):
                passed.append(node)
                source = node.inputs[0]
                assert source is not None
                root = source
            self._roots[value] = root, tuple(passed)
        return self._roots[value]

    def is_transparent(self, node: ir.Node) -> bool:
        """Whether patterns see through the node: a cast between float types, an identity, a dropout that keeps all, an
        expansion to the shape that is there; but not through more than MAX_PASSED of them in a row."""
        return node in self._transparent

    @cached_property
    def _transparent(self) -> Mapping[ir.Node, int]:
        """Such nodes, and how many of them lie above each."""
        found: dict[ir.Node, int] = {}
        for node in self.nodes:
            if self._keeps_numbers(node):
                above = self.producer(node.inputs[0])
                depth = found.get(above, -1) + 1 if above is not None else 0
                if depth < MAX_PASSED:
                    found[node] = depth
        return found

    def _keeps_numbers(self, node: ir.Node) -> bool:
        if node.domain or node.op_type not in _TRANSPARENT or not node.inputs or node.inputs[0] is None:
            return False
        if node.op_type == "Cast":
            return node.inputs[0].dtype in ONNX_FLOATS and node.outputs[0].dtype in ONNX_FLOATS
        if node.op_type == "Dropout":
            mode = training_mode(node)
            return mode is None or self.scalar(mode) == 0
        if node.op_type == "Expand":
            return shape_of(node.inputs[0]) is not None and shape_of(node.inputs[0]) == shape_of(node.outputs[0])
        return True


def _by_op(nodes: Iterable[ir.Node]) -> Mapping[tuple[str, str], Sequence[ir.Node]]:
    found: dict[tuple[str, str], list[ir.Node]] = defaultdict(list)
    for node in nodes:
        found[node.domain, node.op_type].append(node)
    return {key: tuple(listed) for key, listed in found.items()}
