"""Concrete graphs as one model: each a component of its own, in several orders of operands."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, permutations, product
from math import prod

import numpy as np
import onnx
from onnx import numpy_helper

from fusion_cli.operators.registry import COMMUTATIVE
from fusion_cli.rulekit.execute import MODEL_IR_VERSION, value_info
from fusion_cli.rulekit.realise import Concrete
from fusion_cli.rulekit.sketch import Step
from fusion_cli.sessions import Array

Order = tuple[tuple[int, ...], ...]
"""For each node: which operand comes first, second..."""


@dataclass(frozen=True, eq=False)
class Component:
    """One graph in one order of operands, and the prefix of all its names in the model."""

    prefix: str
    graph: Concrete
    order: Order

    @property
    def outputs(self) -> tuple[str, ...]:
        return tuple(self.prefix + name for name in dict.fromkeys(self.graph.sketch.outputs))

    def feeds(self) -> dict[str, Array]:
        """Random values for its graph inputs; truth values and indices as they were found."""
        return {self.prefix + name: _fresh(self.prefix + name, v) for name, v in _inputs(self.graph)}


def as_written(graph: Concrete) -> Order:
    """The order of operands that the rule's text has."""
    return tuple(tuple(range(len(n.inputs))) for n in graph.nodes)


def orders(graph: Concrete, most: int) -> list[Order]:
    """The orders of operands of commutative operators: all of them, or `most` that hold each swap at least once."""
    ways = [_ways(node) for node in graph.nodes]
    if prod(map(len, ways)) <= most:
        return list(product(*ways))
    first = tuple(way[0] for way in ways)
    rng = random.Random(0)
    others = [tuple(way[-1] for way in ways)]
    others += [(*first[:i], way[-1], *first[i + 1 :]) for i, way in enumerate(ways) if len(way) > 1]
    others += [tuple(rng.choice(way) for way in ways) for _ in range(most)]
    return list(islice(dict.fromkeys([first, *others]), most))


def model_of(components: Sequence[Component]) -> onnx.ModelProto:
    """All components side by side. They must agree on opsets."""
    nodes: list[onnx.NodeProto] = []
    inputs: list[onnx.ValueInfoProto] = []
    constants: list[onnx.TensorProto] = []
    outputs: list[onnx.ValueInfoProto] = []
    shapes: list[onnx.ValueInfoProto] = []
    opsets: dict[str, int] = {}
    for component in components:
        graph, prefix = component.graph, component.prefix
        opsets |= {d: v for d, v in graph.opsets.items() if not d or any(n.domain == d for n in graph.nodes)}
        inputs += [value_info(prefix + name, array) for name, array in _inputs(graph)]
        for name in filter(graph.constants.__contains__, _used(graph)):
            array = _fresh(prefix + name, graph.values[name], name in graph.sketch.numbers)
            constants.append(numpy_helper.from_array(array, prefix + name))
        nodes += [_node(n, o, prefix, i) for i, (n, o) in enumerate(zip(graph.nodes, component.order, strict=True))]
        outputs += [value_info(name, graph.values[name.removeprefix(prefix)]) for name in component.outputs]
        shapes += [value_info(prefix + o, graph.values[o]) for n in graph.nodes for o in n.outputs]
    made = {o.name for o in outputs}
    shapes = [s for s in shapes if s.name not in made]
    proto = onnx.helper.make_graph(nodes, "rules", inputs, outputs, constants, value_info=shapes)
    imports = [onnx.helper.make_opsetid(d, v) for d, v in opsets.items()]
    return onnx.helper.make_model(proto, opset_imports=imports, ir_version=MODEL_IR_VERSION)


def _ways(node: Step) -> list[tuple[int, ...]]:
    places = tuple(range(len(node.inputs)))
    if node.domain or node.op not in COMMUTATIVE or len(set(node.inputs)) < 2:
        return [places]
    return list(islice(permutations(places), 6))


def _used(graph: Concrete) -> list[str]:
    return list(dict.fromkeys(name for node in graph.nodes for name in node.inputs if name))


def _inputs(graph: Concrete) -> Iterator[tuple[str, Array]]:
    made = {o for node in graph.nodes for o in node.outputs}
    return ((n, graph.values[n]) for n in _used(graph) if n not in made and n not in graph.constants)


def _node(node: Step, order: tuple[int, ...], prefix: str, index: int) -> onnx.NodeProto:
    inputs = [f"{prefix}{node.inputs[i]}" if node.inputs[i] else "" for i in order]
    outputs = [prefix + o for o in node.outputs]
    name = f"{prefix}{node.op}_{index}"
    return onnx.helper.make_node(node.op, inputs, outputs, name=name, domain=node.domain, **node.attributes)


def _fresh(name: str, array: Array, keep: bool = False) -> Array:
    """Values of a component's own, so that equal weights of two are not taken for one; numbers stay what they are."""
    if keep or array.dtype.kind in "iub" or array.size == 1:
        return array
    rng = np.random.default_rng(list(name.encode()))
    fresh: Array = rng.normal(scale=0.5, size=array.shape).astype(array.dtype)
    return fresh
