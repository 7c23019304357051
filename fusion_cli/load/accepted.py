"""Forms that ONNX Runtime accepts and the stages after this one do not know, brought into the common form.

Sparse tensors become dense ones, the domain "ai.onnx" the empty one that it stands for, and negative dimensions
unknown ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from fusion_cli.errors import ModelError

_MAX_DENSE_BYTES = 1 << 31
"""A few bytes of a sparse tensor can stand for any number of zeros."""


def to_common_form(proto: onnx.ModelProto, path: Path) -> None:
    """Change `proto` in place. Raises ModelError for a sparse tensor that is malformed or too large when dense."""
    for owner in (proto, *proto.functions):
        for opset in owner.opset_import:
            opset.domain = _common_domain(opset.domain)
    for graph in graphs_of(proto):
        for value in (*graph.input, *graph.output, *graph.value_info):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_value < 0:
                    dim.ClearField("dim_value")
        for sparse in graph.sparse_initializer:
            graph.initializer.append(_dense(sparse, path))
        graph.ClearField("sparse_initializer")
    for node in nodes_of(proto):
        node.domain = _common_domain(node.domain)
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor") and node.op_type == "Constant":
                attribute.CopyFrom(onnx.helper.make_attribute("value", _dense(attribute.sparse_tensor, path)))


def nodes_of(proto: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node: of the graph, of the bodies in it, and of the functions."""
    for graph in graphs_of(proto):
        yield from graph.node
    for function in proto.functions:
        yield from function.node


def graphs_of(proto: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """The graph and every body in it and in the functions."""
    yield proto.graph
    yield from bodies_in(proto.graph, *proto.functions)


def bodies_in(*owners: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.GraphProto]:
    """Every body in these graphs and functions."""
    pending: list[Iterable[onnx.NodeProto]] = [owner.node for owner in owners]
    while pending:
        for node in pending.pop():
            for attribute in node.attribute:
                for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                    yield body
                    pending.append(body.node)


def _common_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def _dense(sparse: onnx.SparseTensorProto, path: Path) -> onnx.TensorProto:
    name = sparse.values.name
    where = f"{path}: sparse tensor '{name}'"
    try:
        values = numpy_helper.to_array(sparse.values, str(path.parent))
        indices = numpy_helper.to_array(sparse.indices, str(path.parent))
        if math.prod(sparse.dims) * values.itemsize > _MAX_DENSE_BYTES:
            hint = "replace it by what it is used for"
            raise ModelError(f"is more than {_MAX_DENSE_BYTES >> 30} GiB when dense", where=where, hint=hint)
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        if indices.ndim == 1:
            dense.reshape(-1)[indices] = values
        else:
            dense[tuple(indices.T)] = values
    except (ValueError, TypeError, IndexError) as e:
        raise ModelError(f"is malformed: {e}", where=where, hint="export the model again") from e
    return numpy_helper.from_array(dense, name)
