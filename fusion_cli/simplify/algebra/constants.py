"""What a model computes from its weights at every run: the directions and lengths of weight normalization, tables of
positions that layers project or resample.

ONNX Runtime folds what its CPU kernels compute, which leaves most of 16 bits out; and rules look for constant weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference import ReferenceEvaluator

from fusion_cli.load.overridable import is_constant
from fusion_cli.operators.dtypes import ONNX_FLOATS
from fusion_cli.operators.registry import MOVES, is_elementwise
from fusion_cli.simplify.algebra.edits import (
    Applied,
    Array,
    add_constant,
    become,
    graph_of,
    in_float64,
    rounded,
)
from fusion_cli.simplify.algebra.layers import MOST_BYTES
from fusion_cli.sizes.dims import numbers

_MOVES = MOVES.union("Cast Concat Gather GatherElements GatherND Identity ScatterElements ScatterND Slice Tile".split())
"""What computes nothing: a table that is only read stays as small as it is."""
_COMPUTES = frozenset("Gemm LayerNormalization MatMul ReduceL2 ReduceSum ReduceSumSquare Resize".split())
_JUMPS = frozenset("Ceil Floor Mod Round Sign".split())
"""Elementwise operators that make much of a rounding."""
_TESTS = frozenset("And Equal Greater GreaterOrEqual Less LessOrEqual Not Or Xor".split())
"""So do these, of numbers that were computed: not of those that are only read."""
_EXACT = _MOVES | _TESTS
"""What rounds nothing, but for Casts to fewer bits."""
_INTEGERS = frozenset({ir.DataType.INT64, ir.DataType.INT32})
_READ = ONNX_FLOATS | _INTEGERS | {ir.DataType.BOOL}
"""Quantized weights stay so: as floats they would be larger, and slower to read."""
_LEAST_ELEMENTS = 1 << 10
"""Constants with fewer are no weights: rotations by positions are made of such."""
_MOST_NODES = 1 << 8
_SHARE = 8
"""What is computed takes at most one part in so many of what the weights take."""

_Nodes = Mapping[ir.Node, None]


def compute_constants(graph: ir.Graph) -> Iterator[Applied]:
    """Put constants in the place of what is computed from weights, in place."""
    known: dict[ir.Value, _Nodes] = {}
    for node in graph:
        if _is_known(node, known):
            together = {n: None for v in node.inputs if v in known for n in known[v]} | {node: None}
            if len(together) <= _MOST_NODES:
                known[node.outputs[0]] = together
    room = sum(map(_bytes, graph.initializers.values())) / _SHARE
    for value, nodes in known.items():
        if not _is_result(value, known) or not _has_weights(nodes):
            continue
        cost = _bytes(value) - _freed(nodes)
        array = _computed(value, nodes) if cost <= room else None
        if array is not None:
            room -= cost
            (*_, last) = nodes
            become(last, "Identity", [add_constant(graph_of(last), f"{value.name}_computed", array)])
            yield "ConstantFolding", list(nodes)


def _is_known(node: ir.Node, known: Mapping[ir.Value, _Nodes]) -> bool:
    """Whether a node makes moderately many numbers of constants, and integers of integers only."""
    if node.domain or len(node.outputs) != 1 or not (node.op_type in _MOVES or _computes(node)):
        return False
    made, read = node.outputs[0], [v for v in node.inputs if v is not None]
    if any(v.dtype not in _READ for v in read):
        return False
    if node.op_type in _TESTS and not all(_is_exact(v, known) for v in read):
        return False
    integers = all(v.dtype in _INTEGERS for v in (made, *read))
    if made.dtype not in ONNX_FLOATS and not integers and node.op_type not in _TESTS:
        return False
    constant = all(v in known or (is_constant(v) and _bytes(v) <= MOST_BYTES) for v in read)
    return bool(read) and constant and _bytes(made) <= MOST_BYTES


def _is_exact(value: ir.Value, known: Mapping[ir.Value, _Nodes]) -> bool:
    """Whether nothing is rounded in a value."""
    return all(n.op_type in _EXACT and (n.op_type != "Cast" or _widens(n)) for n in known.get(value, ()))


def _widens(cast: ir.Node) -> bool:
    """Whether every number of the type that it has is one of the type that a Cast gives it."""
    before, after = (v.dtype for v in (cast.inputs[0], cast.outputs[0]) if v is not None)
    return before is not None and after is not None and np.can_cast(before.numpy(), after.numpy())


def _computes(node: ir.Node) -> bool:
    if node.op_type == "Resize":  # of the nearest, which one that is hangs on rounding
        return node.attributes.get_string("mode") in ("linear", "cubic")
    return node.op_type in _COMPUTES or (is_elementwise(node) and node.op_type not in _JUMPS)


def _bytes(value: ir.Value) -> float:
    """What a value takes, in bytes; infinite where that is not known."""
    sizes = numbers(value, {})
    return math.inf if sizes is None or value.dtype is None else math.prod(sizes) * float(value.dtype.itemsize)


def _is_result(value: ir.Value, known: Mapping[ir.Value, _Nodes]) -> bool:
    """Whether a value is computed, and read where not everything is known, be it rearranged."""
    node = value.producer()
    assert node is not None
    return value.dtype in ONNX_FLOATS and node.op_type not in _MOVES and _is_read(value, known)


def _is_read(value: ir.Value, known: Mapping[ir.Value, _Nodes]) -> bool:
    readers = [reader for reader, _ in value.uses()]
    return any(r.outputs[0] not in known or (r.op_type in _MOVES and _is_read(r.outputs[0], known)) for r in readers)


def _constants(nodes: _Nodes) -> list[ir.Value]:
    made = {n.outputs[0] for n in nodes}
    return list(dict.fromkeys(v for n in nodes for v in n.inputs if v is not None and v not in made))


def _has_weights(nodes: _Nodes) -> bool:
    tensors = (v.const_value for v in _constants(nodes) if v.dtype in ONNX_FLOATS)
    return any(t is not None and t.size >= _LEAST_ELEMENTS for t in tensors)


def _freed(nodes: _Nodes) -> float:
    """The bytes of the constants that nothing else reads."""
    own = (v for v in _constants(nodes) if all(reader in nodes for reader, _ in v.uses()))
    return sum(_bytes(v) for v in own if not v.is_graph_output())


def _computed(value: ir.Value, nodes: _Nodes) -> Array | None:
    """What nodes make in float64, rounded once; None where something on the way does not fit the type that it has."""
    read, made = _constants(nodes), [n.outputs[0] for n in nodes]
    names = {v: f"v{i}" for i, v in enumerate((*read, *made))}
    graph = onnx.helper.make_graph([_proto(n, names) for n in nodes], "constants", [], [])
    graph.output.extend(onnx.helper.make_empty_tensor_value_info(names[v]) for v in made)
    graph.input.extend(onnx.helper.make_empty_tensor_value_info(names[v]) for v in read)
    opset = onnx.helper.make_opsetid("", graph_of(next(iter(nodes))).opset_imports[""])
    model = onnx.helper.make_model(graph, opset_imports=[opset])
    feeds = {names[v]: _array(v) for v in read}
    try:
        with np.errstate(all="ignore"):
            found = [np.asarray(a) for a in ReferenceEvaluator(model).run(None, feeds)]
    except Exception:  # the reference lacks what an operator can do: then ONNX Runtime computes it, as it did
        return None
    fits = all(_fits(a, v.dtype) for v, a in zip(made, found, strict=True))
    return rounded(found[-1], value.dtype) if fits and found[-1].size else None


def _fits(array: Array, dtype: ir.DataType | None) -> bool:
    return dtype not in ONNX_FLOATS or bool(np.abs(array).max(initial=0) <= float(dtype.max))


def _array(value: ir.Value) -> Array:
    tensor = value.const_value
    assert tensor is not None
    return in_float64(tensor) if tensor.dtype in ONNX_FLOATS else tensor.numpy()


def _proto(node: ir.Node, names: Mapping[ir.Value, str]) -> onnx.NodeProto:
    """The node with these names, in float64."""
    proto = ir.to_proto(node)
    proto.input[:] = ["" if v is None else names[v] for v in node.inputs]
    proto.output[:] = [names[v] for v in node.outputs]
    for attribute in proto.attribute:
        if attribute.name == "to" and attribute.i in ONNX_FLOATS:
            attribute.i = onnx.TensorProto.DOUBLE
    return proto
