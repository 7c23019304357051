"""Weights that a model computes from others at every run: directions and lengths of weight normalization.

ONNX Runtime folds what its CPU kernels compute, which of float16 leaves reductions out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx_ir as ir

from fusion_cli.load.overridable import is_constant
from fusion_cli.operators.dtypes import ONNX_FLOATS
from fusion_cli.operators.registry import is_elementwise
from fusion_cli.operators.versions import integers
from fusion_cli.simplify.algebra.edits import (
    Applied,
    Array,
    add_constant,
    array_of,
    become,
    computed,
    graph_of,
    in_float64,
    is_one_of,
    rounded,
)
from fusion_cli.simplify.algebra.layers import LAYERS, MOST_BYTES

_NORMS: Mapping[str, Callable[[Array, tuple[int, ...] | None, bool], Array]] = {
    "ReduceL2": lambda x, axes, keeps: np.sqrt(np.square(x).sum(axis=axes, keepdims=keeps)),
    "ReduceSum": lambda x, axes, keeps: x.sum(axis=axes, keepdims=keeps),
    "ReduceSumSquare": lambda x, axes, keeps: np.square(x).sum(axis=axes, keepdims=keeps),
}


def compute_weights(graph: ir.Graph) -> Iterator[Applied]:
    """Let layers read weights that are computed from constants with a norm in it as constants, in place."""
    done: set[ir.Value] = set()
    for layer in list(graph):
        weight = layer.inputs[1] if is_one_of(layer, *LAYERS) and len(layer.inputs) > 1 else None
        if weight is None or weight in done or weight.producer() is None or weight.dtype not in ONNX_FLOATS:
            continue
        nodes: dict[ir.Node, None] = {}
        exact = _exact(weight, nodes)
        if exact is None or not _is_own(weight, nodes) or not any(n.op_type in _NORMS for n in nodes):
            continue
        array = rounded(exact, weight.dtype) if exact.size else None
        if array is not None:
            (*_, last) = nodes
            become(last, "Identity", [add_constant(graph_of(last), f"{weight.name}_computed", array)])
            done.add(weight)
            yield "WeightNorm", list(nodes)


def _is_own(weight: ir.Value, nodes: Mapping[ir.Node, None]) -> bool:
    """Whether nothing but layers reads the weights, and nothing but them what they are computed from: the file gets no
    larger."""
    between = [n.outputs[0] for n in nodes if n.outputs[0] is not weight]
    constants = [v for n in nodes for v in n.inputs if v is not None and is_constant(v)]
    alone = all(reader in nodes for v in (*between, *constants) for reader, _ in v.uses() if _is_large(v))
    return alone and not any(v.is_graph_output() for v in (weight, *between))


def _is_large(value: ir.Value) -> bool:
    return value.producer() is not None or array_of(value) is None


def _exact(value: ir.Value, nodes: dict[ir.Node, None]) -> Array | None:
    """What a value is in float64, if it is computed from constants of floats; the nodes that do so, in order."""
    if is_constant(value):
        tensor = value.const_value
        is_weight = tensor is not None and tensor.dtype in ONNX_FLOATS and tensor.nbytes <= MOST_BYTES
        return in_float64(tensor) if is_weight else None
    node = value.producer()
    if node is None or len(node.outputs) != 1 or not (is_elementwise(node) or is_one_of(node, *_NORMS)):
        return None
    operands = node.inputs if is_elementwise(node) else node.inputs[:1]
    arguments = [None if v is None else _exact(v, nodes) for v in operands]
    if any(
        v is not None and (a is None or v.dtype is not value.dtype) for v, a in zip(operands, arguments, strict=True)
    ):
        return None
    with np.errstate(all="ignore"):
        found = _norm(node, arguments[0]) if node.op_type in _NORMS else computed(node, arguments)
    if found is not None:
        nodes[node] = None
    return found


def _norm(node: ir.Node, x: Array | None) -> Array | None:
    """A reduction over axes that it names."""
    given = integers(node, "axes")
    array = array_of(given) if isinstance(given, ir.Value) else None
    axes = given if isinstance(given, tuple) else () if array is None else tuple(array.tolist())
    if x is None or not axes:
        return None
    return _NORMS[node.op_type](x, axes, bool(node.attributes.get_int("keepdims", 1)))
