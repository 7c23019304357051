"""Small changes to a graph, in place, and what has to be known before one. Nodes keep their names and results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.sizes.algebra import Size

Array = np.ndarray[Any, Any]
Applied = tuple[str, Sequence[ir.Node]]
"""The name of a rule, and the nodes it took out or changed at one place."""

_SOURCES = frozenset(
    "AveragePool Cast Clip Concat Conv ConvTranspose GlobalAveragePool HardSwish LeakyRelu MaxPool Relu Resize Sigmoid "
    "Transpose Upsample".split()
)
REST = -1
"""What a Reshape takes for what is left."""
RESHAPE_OPSET = 5
"""The first in which a Reshape has its shape as an input."""
_MOST_ELEMENTS = 1 << 16
"""Constants with more are no numbers of channels, and are not looked into."""


def become(node: ir.Node, operator: str, inputs: Sequence[ir.Value | None], *attributes: ir.Attr) -> None:
    """Let the node compute its result by another operator of ONNX's own domain."""
    node.op_type = operator
    node.attributes.clear()
    for attribute in attributes:
        node.attributes.add(attribute)
    node.resize_inputs(len(inputs))
    for i, value in enumerate(inputs):
        node.replace_input_with(i, value)


def hand_on(node: ir.Node, source: ir.Value) -> None:
    """Let the node give `source` out as it is. Identities are dropped after each rule."""
    become(node, "Identity", [source])


def add_constant(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    """A constant of the graph, called `name` or, where that is taken, much the same."""
    unique, n = name, 0
    while unique in graph.initializers:
        n += 1
        unique = f"{name}_{n}"
    value = ir.val(unique, const_value=ir.Tensor(array, name=unique))
    graph.register_initializer(value)
    return value


def put_before(
    reader: ir.Node,
    operator: str,
    inputs: Sequence[ir.Value],
    name: str,
    type: ir.TypeProtocol | None,
    shape: ir.Shape | None,
    *attributes: ir.Attr,
) -> ir.Value:
    """The result of a new node before `reader`: both are called `name`."""
    node = ir.Node("", operator, inputs, attributes, name=name)
    made = node.outputs[0]
    made.name, made.type, made.shape = name, type, shape
    graph_of(reader).insert_before(reader, node)
    return made


def put_with_constant(
    reader: ir.Node, operator: str, value: ir.Value, constant: Array, shape: ir.Shape, *attributes: ir.Attr
) -> ir.Value:
    """The result, of this shape, of a new node before `reader` of a value and a constant."""
    name = f"{reader.outputs[0].name}_{operator.lower()}"
    operand = add_constant(graph_of(reader), f"{name}_operand", constant)
    return put_before(reader, operator, [value, operand], name, value.type, shape, *attributes)


def become_reshape(node: ir.Node, value: ir.Value, sizes: Sequence[int]) -> None:
    """Let the node give a value's elements in these sizes, as a Reshape takes them."""
    shape = add_constant(graph_of(node), f"{node.outputs[0].name}_shape", np.array(sizes, np.int64))
    become(node, "Reshape", [value, shape])


def written_sizes(shape: Iterable[Size]) -> list[int] | None:
    """Sizes as a Reshape takes them; None where more than one of them is unknown."""
    found = [size.known or REST for size in shape]
    return found if found.count(REST) <= 1 else None


def graph_of(node: ir.Node) -> ir.Graph:
    assert isinstance(node.graph, ir.Graph)  # functions are inlined before
    return node.graph


def count_uses(value: ir.Value) -> int:
    """How often nodes read a value. `uses()` lists them, which for each reader of one value is quadratic in these."""
    return len(value._uses)


def only_reader(value: ir.Value) -> tuple[ir.Node, int] | None:
    """What alone reads a computed value, and as which operand. None where another node reads it too, one in the body of
    a node, or whoever runs the model."""
    producer = value.producer()
    if count_uses(value) != 1 or producer is None or value.is_graph_output():
        return None
    ((reader, index),) = value.uses()
    return (reader, index) if reader.graph is producer.graph else None


def producer_of(value: ir.Value | None, *operators: str) -> ir.Node | None:
    """The node that makes a value, if it is one of these operators."""
    node = None if value is None else value.producer()
    return node if node is not None and is_one_of(node, *operators) else None


def is_one_of(node: ir.Node, *operators: str) -> bool:
    return node.op_type in operators and not node.domain


def starts_there(value: ir.Value) -> bool:
    """Whether arithmetic on a value begins with it. Behind other operators it may belong to what rules look for: the
    weight of a norm, the factor of an activation."""
    producer = value.producer()
    return producer is None or producer.op_type in _SOURCES or is_hard_swish(producer)


def is_hard_swish(node: ir.Node) -> bool:
    """Whether a node gives x times its HardSigmoid, which is how HardSwish is written before its own opset."""
    if not is_one_of(node, "Mul"):
        return False
    first, second = node.inputs
    gates = ((first, producer_of(second, "HardSigmoid")), (second, producer_of(first, "HardSigmoid")))
    return any(gate is not None and gate.inputs[0] is value for value, gate in gates)


def array_of(value: ir.Value | None) -> Array | None:
    """A constant of moderate size."""
    if value is None or not is_constant(value):
        return None
    tensor = value.const_value
    return tensor.numpy() if tensor is not None and tensor.size <= _MOST_ELEMENTS else None


def with_constant(node: ir.Node) -> Iterator[tuple[ir.Value, int, Array]]:
    """The operands of a node of two one of which is constant: the other one, its index, and the constant."""
    if len(node.inputs) == 2:
        for index, value in enumerate(node.inputs):
            constant = array_of(node.inputs[1 - index])
            if value is not None and constant is not None:
                yield value, index, constant


def number_with(value: ir.Value, constant: Array) -> float | None:
    """The constant, if it is one number for every element of `value` and leaves its rank as it is."""
    rank = 0 if value.shape is None else len(value.shape)
    return float(constant.item()) if constant.size == 1 and constant.ndim <= rank else None


def permutation(node: ir.Node) -> tuple[int, ...] | None:
    """The permutation of a Transpose that says one."""
    found = node.attributes.get_ints("perm") if is_one_of(node, "Transpose") else None
    return None if found is None else tuple(found)


def in_float64(tensor: ir.TensorProtocol | None) -> Array:
    assert tensor is not None
    return np.asarray(tensor.numpy()).astype(np.float64)


def rounded(exact: Array, dtype: ir.DataType | None, least: Array | float = 0.0) -> Array | None:
    """Numbers in the type that they are stored in; None where rows (the first axis) would lose more than its rounding,
    by overflow or because they are too small for it. What `least` gives for a row, it may lose in any case."""
    assert dtype is not None
    with np.errstate(over="ignore", invalid="ignore"):
        found = exact.astype(dtype.numpy())
        lost = np.abs(found.astype(np.float64) - exact)
    rows = (len(exact), -1)
    allowed = np.maximum(float(dtype.eps) * np.abs(exact).reshape(rows).max(axis=1), least)
    # Of what is not finite the difference is no number, and no comparison holds.
    return found if bool((lost.reshape(rows).max(axis=1) <= allowed).all()) else None
