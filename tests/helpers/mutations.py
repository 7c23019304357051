"""Ways to write the same model differently. All change a model in place and draw their choices from `rng`."""

from __future__ import annotations

import itertools
from random import Random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum"})


def rename(model: onnx.ModelProto, rng: Random) -> None:
    """Other names for all values; other names, one name or none for the nodes."""
    graph = model.graph
    numbers = list(range(10_000))
    rng.shuffle(numbers)
    fresh = (f"{rng.choice(['v', '/m/', 'Add_', 'x.'])}{n}" for n in numbers)
    names: dict[str, str] = {"": ""}

    def new(name: str) -> str:
        return names[name] if name in names else names.setdefault(name, next(fresh))

    for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        value.name = new(value.name)
    style = rng.choice(["none", "numbered", "random"])
    for i, node in enumerate(graph.node):
        node.input[:] = [new(n) for n in node.input]
        node.output[:] = [new(n) for n in node.output]
        node.name = {"none": "", "numbered": f"n{i}", "random": next(fresh)}[style]


def reorder(model: onnx.ModelProto, rng: Random) -> None:
    """Another order of the nodes in which each still comes after those it reads."""
    graph = model.graph
    makers = {name: i for i, node in enumerate(graph.node) for name in node.output}
    waiting = {i: {makers[n] for n in node.input if n in makers} for i, node in enumerate(graph.node)}
    order: list[int] = []
    while waiting:
        ready = sorted(i for i, needs in waiting.items() if not needs)
        chosen = rng.choice(ready)
        order.append(chosen)
        del waiting[chosen]
        for needs in waiting.values():
            needs.discard(chosen)
    nodes = [onnx.NodeProto.FromString(graph.node[i].SerializeToString()) for i in order]
    del graph.node[:]
    graph.node.extend(nodes)


def swap_operands(model: onnx.ModelProto, rng: Random) -> None:
    for node in model.graph.node:
        if node.op_type in COMMUTATIVE and rng.random() < 0.5:
            node.input[:] = list(node.input)[::-1]


def insert_no_ops(model: onnx.ModelProto, rng: Random) -> None:
    """Identities, casts to the type a value has already, and dropouts that drop nothing, between nodes."""
    graph = model.graph
    floats = _floats(model)
    nodes: list[onnx.NodeProto] = []
    number = itertools.count()

    def no_op(name: str) -> str:
        made = f"no_op_{next(number)}"
        kind = rng.choice(["Identity", "Cast", "Dropout"] if name in floats else ["Identity"])
        attributes = {"to": TensorProto.FLOAT} if kind == "Cast" else {}
        nodes.append(helper.make_node(kind, [name], [made], **attributes))
        return made

    for node in graph.node:
        constants = {t.name for t in graph.initializer}
        node.input[:] = [no_op(n) if n and n not in constants and rng.random() < 0.2 else n for n in node.input]
        nodes.append(node)
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def rewrite_constants(model: onnx.ModelProto, rng: Random) -> None:
    """Constants as nodes or as initializers, shared or one copy per reader."""
    graph = model.graph
    tensors = {t.name: t for t in graph.initializer}
    tensors |= {n.output[0]: _tensor(n) for n in graph.node if n.op_type == "Constant"}
    outputs = {o.name for o in graph.output}
    kept = [n for n in graph.node if n.op_type != "Constant" or n.output[0] in outputs]
    made: list[onnx.NodeProto] = []
    initializers: dict[str, onnx.TensorProto] = {}
    number = itertools.count()

    def constant(name: str, is_copied: bool) -> str:
        copy = onnx.TensorProto.FromString(tensors[name].SerializeToString())
        copy.name = f"{name}__copy_{next(number)}" if is_copied else name
        if rng.random() < 0.5:
            initializers[copy.name] = copy
        else:
            made.append(helper.make_node("Constant", [], [copy.name], value=copy))
        return copy.name

    shared = {name: constant(name, False) for name in sorted(tensors) if name not in outputs}
    for node in kept:
        node.input[:] = [(constant(n, True) if rng.random() < 0.3 else n) if n in shared else n for n in node.input]
    copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in (*made, *kept)]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(copies)
    graph.initializer.extend(initializers.values())


def add_outputs(model: onnx.ModelProto, rng: Random) -> None:
    """A few intermediate values as outputs of the graph too."""
    values = {v.name: v for v in onnx.shape_inference.infer_shapes(model).graph.value_info}
    inner = sorted((values.keys() & _floats(model)) - {o.name for o in model.graph.output})
    for name in rng.sample(inner, min(3, len(inner))):
        model.graph.output.append(values[name])


def _floats(model: onnx.ModelProto) -> set[str]:
    """The computed values, and the inputs, of type float32."""
    graph = onnx.shape_inference.infer_shapes(model).graph
    constants = {n.output[0] for n in graph.node if n.op_type == "Constant"} | {t.name for t in graph.initializer}
    values = (*graph.value_info, *graph.input, *graph.output)
    return {v.name for v in values if v.type.tensor_type.elem_type == TensorProto.FLOAT} - constants


def _tensor(node: onnx.NodeProto) -> onnx.TensorProto:
    value = helper.get_attribute_value(node.attribute[0])
    return value if isinstance(value, TensorProto) else numpy_helper.from_array(np.asarray(value, np.float32))
