"""Write a model as one file, its weights straight from the files they lie in."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeVar

import onnx
import onnx_ir as ir

from fusion_cli.load.weights import GRAPH, INITIALIZER, RAW_DATA, InModelFile, message

_AT_ONCE = 500
"""Nodes or weights that are protobuf messages at a time: these take several times the memory of what is written."""

_T = TypeVar("_T")


def write_model(model: ir.Model, path: Path) -> None:
    """Serialize the model to `path`: what `onnx_ir.save` writes, in constant memory for weights that are in files."""
    graph = model.graph
    apart = [v for v in graph.initializers.values() if not v.is_graph_input()]
    overridable = [v for v in graph.initializers.values() if v.is_graph_input()]
    rest = copy.copy(model)
    rest.graph = ir.GraphView(  # type: ignore[assignment]  # as its documentation shows
        graph.inputs,
        graph.outputs,
        nodes=(),
        initializers=overridable,
        name=graph.name,
        doc_string=graph.doc_string,
        opset_imports=graph.opset_imports,
        metadata_props=graph.metadata_props,
    )
    proto = ir.to_proto(rest)
    # The fields of a message may come in any order, and those of a list in several runs.
    pieces = list(_pieces(proto.graph, overridable))
    for nodes in _batches(graph):
        pieces += _pieces(_message(nodes=nodes), ())
    for weights in _batches(apart):
        pieces += _pieces(_message(weights=weights), weights)
    proto.ClearField("graph")
    size = sum(piece.nbytes if isinstance(piece, InModelFile) else len(piece) for piece in pieces)
    with path.open("wb") as file:
        file.write(proto.SerializeToString())
        for piece in (*message(GRAPH, b"", more=size), *pieces):
            if isinstance(piece, InModelFile):
                piece.tofile(file)
            else:
                file.write(piece)


def _message(nodes: Sequence[ir.Node] = (), weights: Sequence[ir.Value] = ()) -> onnx.GraphProto:
    """Some of a graph, with the types of what the nodes make."""
    view = ir.GraphView((), (), nodes=nodes, initializers=weights)
    return ir.serde.serialize_graph(view)  # type: ignore[arg-type]  # made for views, too


def _pieces(proto: onnx.GraphProto, weights: Iterable[ir.Value]) -> Iterator[bytes | InModelFile]:
    """The content of a graph with these weights, which it loses."""
    tensors = {v.name: v.const_value for v in weights}
    for initializer in proto.initializer:
        yield from _initializer(initializer, tensors[initializer.name])
    proto.ClearField("initializer")
    yield proto.SerializeToString()


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    waiting = iter(items)
    while batch := list(islice(waiting, _AT_ONCE)):
        yield batch


def _initializer(proto: onnx.TensorProto, tensor: ir.TensorProtocol | None) -> Iterator[bytes | InModelFile]:
    """The field of one initializer in pieces."""
    if not isinstance(tensor, InModelFile):
        yield from message(INITIALIZER, proto.SerializeToString())
        return
    proto.ClearField("data_location")
    proto.ClearField("external_data")
    head = proto.SerializeToString() + next(message(RAW_DATA, b"", more=tensor.nbytes))
    yield from message(INITIALIZER, head, more=tensor.nbytes)
    yield tensor
