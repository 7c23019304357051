"""An index over one graph of a model, the main one or a body: producers, consumers, constants, order, and attributes
in one form.

Exporters write the same operator in several ways: axes as an attribute or as an input, negative or not, defaults left
out. Patterns are written against one canonical form, which this module provides, so that no rule needs an overload
for it.
"""

from __future__ import annotations

import string
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from fusion_cli.load.structure import bodies_of
from fusion_cli.match.slices import canonical_slice

MAX_EMBEDDED = 64
"""Constants of up to this many elements are looked at by value."""
MAX_PASSED = 16
"""Casts and the like in a row that patterns see through. Exporters leave three at most; a chain of thousands would take
time and memory quadratic in its length."""

# Inputs that are attributes in another opset: (operator, input index) -> attribute name.
INPUT_ATTRIBUTES = {
    **{
        (f"Reduce{k}", 1): "axes"
        for k in ("Mean", "Sum", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp")
    },
    ("Squeeze", 1): "axes",
    ("Unsqueeze", 1): "axes",
    ("Split", 1): "split",
    ("Slice", 1): "starts",
    ("Slice", 2): "ends",
    ("Slice", 3): "axes",
    ("Slice", 4): "steps",
}
_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "Softmax": {"axis": -1},
    "LogSoftmax": {"axis": -1},
    "LayerNormalization": {"axis": -1, "epsilon": 1e-5},
    "RMSNormalization": {"axis": -1, "epsilon": 1e-5},
    "Gemm": {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0},
    "Gather": {"axis": 0},
    "Flatten": {"axis": 1},
    "Gelu": {"approximate": "none"},
    "Concat": {"axis": 1},
    "LeakyRelu": {"alpha": 0.01},
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "Swish": {"alpha": 1.0},
    "Split": {"axis": 0},
    "FusedMatMul": {"transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0, "alpha": 1.0},
    **{f"Reduce{k}": {"keepdims": 1} for k in ("Mean", "Sum", "Max", "Min", "Prod", "L2", "SumSquare")},
}
_KNOWN_DOMAINS = ("", "com.microsoft")
_AXIS_NAMES = ("axis", "axes")
_TRANSPARENT = frozenset({"Cast", "Dropout", "Identity"})
_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE})


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
        self.conditions: dict[tuple[str, tuple[object, ...]], bool] = {}
        """Conditions of rules, by their text and what they were asked of (see match/predicates.py)."""
        self._constants: dict[ir.Value, np.ndarray[Any, Any] | None] = {}
        self._escapes: dict[ir.Value, bool] = {}
        self._scalars: dict[ir.Value, float | None] = {}
        self._inputs: dict[ir.Node, Sequence[ir.Value | None]] = {}
        self._readers: dict[ir.Value, Sequence[ir.Node]] = {}
        self._readers_by_op: dict[ir.Value, Mapping[tuple[str, str], Sequence[ir.Node]]] = {}
        self._roots: dict[ir.Value, tuple[ir.Value, tuple[ir.Node, ...]]] = {}

    @cached_property
    def by_op(self) -> Mapping[tuple[str, str], Sequence[ir.Node]]:
        return _by_op(self.nodes)

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
            found: list[ir.Node] = []
            for node in self.consumers(value):
                found += self.readers(node.outputs[0]) if self.is_transparent(node) else [node]
            self._readers[value] = tuple(dict.fromkeys(found))
        return self._readers[value]

    def count_readers(self, value: ir.Value, nodes: Collection[ir.Node]) -> int:
        """How many of `nodes` are readers of the value."""
        readers = self.readers(value)
        if len(readers) <= len(nodes):
            return sum(n in nodes for n in readers)
        return sum(any(v is not None and self.root(v)[0] is value for v in n.inputs) for n in nodes)

    def readers_by_op(self, value: ir.Value, domain: str, op: str) -> Sequence[ir.Node]:
        """Those of one operator."""
        if value not in self._readers_by_op:
            self._readers_by_op[value] = _by_op(self.readers(value))
        return self._readers_by_op[value].get((domain, op), ())

    def is_convex(self, nodes: Collection[ir.Node]) -> bool:
        """Whether no path leaves `nodes` and comes back."""
        return self.way_out(nodes) is None

    def joins(self, node: ir.Node, inside: Collection[ir.Node]) -> bool:
        """Whether a convex set stays so with another node: no path leads through others from one to the other."""
        before = min((self.position[n] for n in inside), default=self.position[node])
        if self._leads_to(self._makers(node, inside), inside, before):
            return False
        place = self.position[node]
        later = [m for n in inside if self.position[n] > place for m in self._makers(n, inside) if m is not node]
        return not self._leads_to(later, (node,), place)

    def _makers(self, node: ir.Node, inside: Collection[ir.Node]) -> list[ir.Node]:
        """The nodes outside that make what a node reads."""
        made = (self.producer(value) for value in self._reads(node))
        return [maker for maker in made if maker is not None and maker not in inside]

    def _leads_to(self, nodes: Iterable[ir.Node], targets: Collection[ir.Node], first: int) -> bool:
        """Whether one of `nodes` depends on one of the targets, the first of which is at that position."""
        waiting, seen = list(nodes), set(nodes)
        while waiting:
            node = waiting.pop()
            if self.position[node] <= first:
                continue
            for value in self._reads(node):
                maker = self.producer(value)
                if maker in targets:
                    return True
                if maker is not None and maker not in seen:
                    seen.add(maker)
                    waiting.append(maker)
        return False

    def way_out(self, nodes: Collection[ir.Node], private: Collection[ir.Node] = ()) -> ir.Node | None:
        """A node on a path that leaves `nodes` and comes back, if there is one. `nodes` do not read `private` ones:
        they hold copies of them."""
        inside = set(nodes)
        # Where nothing that is made outside after the first of them is read inside, no path comes back: most regions
        # are done with here.
        made = {self.producer(v) for n in inside for v in self._reads(n)} - inside
        last = max((self.position[n] for n in made if n is not None and n not in private), default=-1)
        if last < min(self.position[n] for n in inside):
            return None
        stack = [c for n in inside for v in n.outputs for c in self.consumers(v) if c not in inside]
        seen: set[ir.Node] = set()
        while stack:
            node = stack.pop()
            if node in seen or self.position[node] > last:
                continue
            seen.add(node)
            for consumer in (c for v in node.outputs for c in self.consumers(v)):
                if consumer not in inside:
                    stack.append(consumer)
                elif node not in private:
                    return node
        return None

    def escapes(self, value: ir.Value) -> bool:
        """Whether something other than this graph's own nodes reads the value: a graph output or a nested body."""
        if value not in self._escapes:
            self._escapes[value] = value in self.outputs or any(u.node not in self.position for u in value.uses())
        return self._escapes[value]

    def producer(self, value: ir.Value | None) -> ir.Node | None:
        node = value.producer() if value is not None else None
        return node if node in self.position else None

    def attributes(self, node: ir.Node) -> Mapping[str, Any]:
        """The node's attributes in canonical form: defaults filled in, axes from inputs, axes counted from the end."""
        if node not in self._attributes:
            self._attributes[node] = self._canonical(node)
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

    def is_constant(self, value: ir.Value | None) -> bool:
        """Whether the value is known when the model is built. A graph input with an initializer is not: callers may
        override it."""
        return value is not None and value.const_value is not None and not value.is_graph_input()

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
        """Whether patterns see through the node: a cast between float types, an identity, a dropout that keeps all;
        but not through more than MAX_PASSED of them in a row."""
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
            return node.inputs[0].dtype in _FLOATS and node.outputs[0].dtype in _FLOATS
        if node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2] is not None:
            return self.scalar(node.inputs[2]) == 0
        return True

    def _canonical(self, node: ir.Node) -> Mapping[str, Any]:
        found: dict[str, Any] = dict(_DEFAULTS.get(node.op_type, {})) if node.domain in _KNOWN_DOMAINS else {}
        old_softmax = node.op_type in ("Softmax", "LogSoftmax") and not node.domain and self.opset < 13
        if old_softmax:
            found["axis"] = 1
        for name, attribute in node.attributes.items():
            if not attribute.is_ref() and attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
                found[name] = list(attribute.value) if attribute.type == ir.AttributeType.INTS else attribute.value
        for i, value in enumerate(node.inputs):
            known = INPUT_ATTRIBUTES.get((node.op_type, i)) if not node.domain else None
            array = self.constant(value) if known else None
            if known and array is not None:
                found[known] = [int(x) for x in array.ravel()]
        if node.op_type == "Slice" and not node.domain:
            found = canonical_slice(node, found)
        rank = self._rank(node)
        for name in _AXIS_NAMES:
            if name in found and rank:
                found[name] = _from_end(found[name], rank)
        if old_softmax and found["axis"] != -1:
            # It runs over all axes from this one on together.
            found["axis"] = list(range(found["axis"], 0))
        if "equation" in found:
            found["equation"] = _canonical_equation(found["equation"])
        return found

    @staticmethod
    def _rank(node: ir.Node) -> int:
        """The rank that the node's axes count in; 0 if unknown."""
        source = node.outputs[0] if node.op_type == "Unsqueeze" else (node.inputs[0] if node.inputs else None)
        return len(source.shape) if source is not None and source.shape is not None else 0


def _from_end(axes: Any, rank: int) -> Any:
    if isinstance(axes, int):
        return axes - rank if axes >= 0 else axes
    return sorted(a - rank if a >= 0 else a for a in axes)


def _canonical_equation(equation: str) -> str:
    """An Einsum equation with its output written out and its labels renamed a, b, c... in order of appearance."""
    terms, arrow, result = equation.replace(" ", "").partition("->")
    if not arrow:
        once = sorted(c for c in set(terms) if c.isalpha() and terms.count(c) == 1)
        result = ("..." if "..." in terms else "") + "".join(once)
    labels = "".join(dict.fromkeys(c for c in terms if c.isalpha()))
    return f"{terms}->{result}".translate(str.maketrans(labels, string.ascii_letters[: len(labels)]))


def _by_op(nodes: Iterable[ir.Node]) -> Mapping[tuple[str, str], Sequence[ir.Node]]:
    found: dict[tuple[str, str], list[ir.Node]] = defaultdict(list)
    for node in nodes:
        found[node.domain, node.op_type].append(node)
    return {key: tuple(listed) for key, listed in found.items()}
