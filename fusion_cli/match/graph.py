"""An index over a model's main graph: producers, consumers, constants, order, and attributes in one form.

Exporters write the same operator in several ways: axes as an attribute or as an input, negative or not, defaults left
out. Patterns are written against one canonical form, which this module provides, so that no rule needs an overload
for it.
"""

from __future__ import annotations

import string
from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

MAX_EMBEDDED = 64
"""Constants of up to this many elements are looked at by value."""

# Inputs that are attributes in another opset: (operator, input index) -> attribute name.
_INPUT_ATTRIBUTES = {
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
_TRANSPARENT = frozenset({"Identity", "Dropout"})
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
        self._scalars: dict[ir.Value, float | None] = {}

    @cached_property
    def by_op(self) -> Mapping[tuple[str, str], tuple[ir.Node, ...]]:
        index: dict[tuple[str, str], list[ir.Node]] = defaultdict(list)
        for node in self.nodes:
            index[node.domain, node.op_type].append(node)
        return {k: tuple(v) for k, v in index.items()}

    def consumers(self, value: ir.Value) -> list[ir.Node]:
        """Nodes of this graph that read `value`, in order, each once."""
        found = {use.node for use in value.uses() if use.node in self.position}
        return sorted(found, key=self.position.__getitem__)

    def readers(self, value: ir.Value) -> list[ir.Node]:
        """Consumers, looking through what `root` looks through."""
        found: list[ir.Node] = []
        for node in self.consumers(value):
            found += self.readers(node.outputs[0]) if self.is_transparent(node) else [node]
        return list(dict.fromkeys(found))

    def is_convex(self, nodes: Collection[ir.Node]) -> bool:
        """Whether no path leaves `nodes` and comes back."""
        return self.way_out(nodes) is None

    def way_out(self, nodes: Collection[ir.Node], private: Collection[ir.Node] = ()) -> ir.Node | None:
        """A node on a path that leaves `nodes` and comes back, if there is one. `nodes` do not read `private` ones:
        they hold copies of them."""
        inside = set(nodes)
        last = max(self.position[n] for n in inside)
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
        return value in self.outputs or any(use.node not in self.position for use in value.uses())

    def producer(self, value: ir.Value | None) -> ir.Node | None:
        node = value.producer() if value is not None else None
        return node if node in self.position else None

    def attributes(self, node: ir.Node) -> Mapping[str, Any]:
        """The node's attributes in canonical form: defaults filled in, axes from inputs, axes counted from the end."""
        if node not in self._attributes:
            self._attributes[node] = self._canonical(node)
        return self._attributes[node]

    def inputs(self, node: ir.Node) -> list[ir.Value | None]:
        """The node's data inputs: trailing omitted ones and those that are attributes in other opsets left out."""
        values = [v for i, v in enumerate(node.inputs) if (node.op_type, i) not in _INPUT_ATTRIBUTES or node.domain]
        while values and values[-1] is None:
            values.pop()
        return values

    def scalar(self, value: ir.Value | None) -> float | None:
        """The number that a constant with one element holds, whatever its shape and type."""
        if value is None:
            return None
        if value not in self._scalars:
            array = self.constant(value)
            self._scalars[value] = (
                float(array.ravel()[0])
                if array is not None and array.size == 1 and array.dtype.kind not in "US"
                else None
            )
        return self._scalars[value]

    def constant(self, value: ir.Value | None, limit: int = MAX_EMBEDDED) -> np.ndarray[Any, Any] | None:
        """A constant's array, if it has at most `limit` elements."""
        if value is None or not self.is_constant(value) or value.const_value is None or value.const_value.size > limit:
            return None
        return value.const_value.numpy()

    def is_constant(self, value: ir.Value | None) -> bool:
        """Whether the value is known when the model is built. A graph input with an initializer is not: callers may
        override it."""
        return value is not None and value.const_value is not None and value not in self.graph_inputs

    def root(self, value: ir.Value) -> tuple[ir.Value, tuple[ir.Node, ...]]:
        """`value` traced up through casts between float types, identities and inference-mode dropouts, and the nodes
        passed on the way. Patterns see through these: an fp16 model's LayerNorm is the fp32 one with casts inside."""
        passed: list[ir.Node] = []
        while (node := self.producer(value)) is not None and self.is_transparent(node):
            passed.append(node)
            source = node.inputs[0]
            assert source is not None
            value = source
        return value, tuple(passed)

    def is_transparent(self, node: ir.Node) -> bool:
        """Whether patterns see through the node: a cast between float types, an identity, a dropout."""
        if node.domain or not node.inputs or node.inputs[0] is None:
            return False
        if node.op_type == "Cast":
            return node.inputs[0].dtype in _FLOATS and node.outputs[0].dtype in _FLOATS
        return node.op_type in _TRANSPARENT

    def _canonical(self, node: ir.Node) -> Mapping[str, Any]:
        found: dict[str, Any] = dict(_DEFAULTS.get(node.op_type, {})) if node.domain in _KNOWN_DOMAINS else {}
        old_softmax = node.op_type in ("Softmax", "LogSoftmax") and not node.domain and self.opset < 13
        if old_softmax:
            found["axis"] = 1
        for name, attribute in node.attributes.items():
            if not attribute.is_ref() and attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
                found[name] = attribute.value
        for i, value in enumerate(node.inputs):
            known = _INPUT_ATTRIBUTES.get((node.op_type, i)) if not node.domain else None
            array = self.constant(value) if known else None
            if known and array is not None:
                found[known] = [int(x) for x in array.ravel()]
        if node.op_type == "Slice" and not node.domain and len(node.inputs) < 4 and "starts" in found:
            found.setdefault("axes", list(range(len(found["starts"]))))
        rank = self._rank(node)
        for name in _AXIS_NAMES:
            if name in found and rank:
                found[name] = _from_end(found[name], rank)
        if old_softmax and found["axis"] != -1:
            # It runs over all axes from this one on together.
            found["axis"] = list(range(found["axis"], 0))
        if "perm" in found:
            found["perm"] = list(found["perm"])
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
