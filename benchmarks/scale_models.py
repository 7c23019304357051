"""Models of any number of nodes: layers as exporters write them, stacked, and graphs made to be awkward.

Every kind is a layer in ONNX's textual syntax (see scale_layers.py) or a function of the number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from zlib import crc32

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper, parser

from benchmarks.scale_layers import LAYERS

WIDTH = 32
OPSET = 23


def build(kind: str, nodes: int) -> onnx.ModelProto:
    """A model of that kind with `nodes` nodes or up to one layer more; the same for the same arguments."""
    made = KINDS[kind]
    graph = made(nodes) if callable(made) else stack(parser.parse_graph(made), nodes)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    model.producer_name = f"{kind}-{nodes}"
    return model


def stack(layer: onnx.GraphProto, nodes: int) -> onnx.GraphProto:
    """`layer` on top of itself until there are `nodes` nodes."""
    first, last = layer.input[0], layer.output[0]
    own = [v for v in layer.input[1:] if all(d.HasField("dim_value") for d in v.type.tensor_type.shape.dim)]
    given = [v for v in layer.input[1:] if v not in own]
    graph = onnx.GraphProto(name="stacked", input=[first, *given], initializer=layer.initializer)
    current = first.name
    shared = {t.name for t in (*graph.initializer, *given)}
    for number in range(-(-nodes // len(layer.node))):
        weights = [_draw(value, f"{value.name}.{number}") for value in own]
        graph.initializer.extend(weights)
        names = {name: name for name in shared} | {first.name: current, "": ""}
        names |= {value.name: tensor.name for value, tensor in zip(own, weights, strict=True)}
        for node in layer.node:
            names |= {name: f"{name}.{number}" for name in node.output}
            copy = graph.node.add()
            copy.CopyFrom(node)
            copy.name = f"{node.op_type}.{node.output[0]}.{number}"
            copy.input[:] = [names[name] for name in node.input]
            copy.output[:] = [names[name] for name in node.output]
        current = names[last.name]
    graph.output.append(_typed(current, last))
    return graph


def _chain(nodes: int) -> onnx.GraphProto:
    """One operator after the other."""
    return _graph(helper.make_node("Add", [f"v{i}", "step"], [f"v{i + 1}"]) for i in range(nodes))


def _constant_readers(nodes: int) -> onnx.GraphProto:
    """A chain whose every node reads one vector of constants."""
    operators = ("Mul", "Add", "Max", "Sub")
    return _graph(helper.make_node(operators[i % 4], [f"v{i}", "row"], [f"v{i + 1}"]) for i in range(nodes))


def _siblings(nodes: int) -> onnx.GraphProto:
    """Very many additions that read one value, gathered one after the other."""

    def wide() -> Iterator[NodeProto]:
        for i in range(-(-nodes // 2)):
            yield helper.make_node("Add", ["v0", f"row.{i}"], [f"s{i}"])
            yield helper.make_node("Max", [f"v{i}", f"s{i}"], [f"v{i + 1}"])

    return _graph(wide())


def _fan_out(nodes: int) -> onnx.GraphProto:
    """One value read by very many linear layers with an activation, added up one after the other."""

    def branches() -> Iterator[NodeProto]:
        for i in range(-(-nodes // 4)):
            yield helper.make_node("MatMul", ["v0", f"matrix.{i}"], [f"m{i}"])
            yield helper.make_node("Add", [f"m{i}", f"row.{i}"], [f"b{i}"])
            yield helper.make_node("Relu", [f"b{i}"], [f"r{i}"])
            yield helper.make_node("Add", [f"v{i}", f"r{i}"], [f"v{i + 1}"])

    return _graph(branches())


def _skips(nodes: int) -> onnx.GraphProto:
    """Layers on top of each other, and the results of all added up after the last."""

    def layers() -> Iterator[NodeProto]:
        count = -(-nodes // 3)
        for i in range(count):
            yield helper.make_node("MatMul", [f"v{i}", f"matrix.{i}"], [f"m{i}"])
            yield helper.make_node("Relu", [f"m{i}"], [f"v{i + 1}"])
        for i in range(count):
            yield helper.make_node("Add", [f"s{i}" if i else "v0", f"v{i + 1}"], [f"s{i + 1}"])

    return _graph(layers())


def _graph(nodes: Iterator[NodeProto]) -> onnx.GraphProto:
    """A graph from v0 to the last node's output, with the constants that the nodes read."""
    listed = list(nodes)
    for node in listed:
        node.name = f"{node.op_type}.{node.output[0]}"
    value = helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["B", "S", WIDTH])
    result = _typed(listed[-1].output[0], value)
    shapes = {"step": (), "row": (WIDTH,), "matrix": (WIDTH, WIDTH)}
    read = dict.fromkeys(name for node in listed for name in node.input if name.split(".")[0] in shapes)
    tensors = [_draw(helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes[n.split(".")[0]])) for n in read]
    return helper.make_graph(listed, "awkward", [value], [result], tensors)


def _draw(value: onnx.ValueInfoProto, name: str = "") -> TensorProto:
    """Random numbers for a weight: matrices that keep magnitudes, vectors near one."""
    name = name or value.name
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    unit = np.random.default_rng(crc32(name.encode())).random(shape, dtype=np.float32)
    fan_in = int(np.prod(shape[1:])) if len(shape) == 4 else (shape[0] if shape else 1)
    numbers = 0.9 + 0.2 * unit if len(shape) < 2 else (unit - 0.5) * (3.4 / fan_in**0.5)
    return numpy_helper.from_array(np.asarray(numbers, np.float32), name)


def _typed(name: str, like: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    value = onnx.ValueInfoProto(name=name)
    value.type.CopyFrom(like.type)
    return value


KINDS: Mapping[str, str | Callable[[int], onnx.GraphProto]] = {
    **LAYERS,
    "chain": _chain,
    "constant readers": _constant_readers,
    "siblings": _siblings,
    "fan-out": _fan_out,
    "skips": _skips,
}
