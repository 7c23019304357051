"""Whether a model can be read at all: tensors that are where and as large as it says, and a graph of values of known
kinds, each made once and before it is used."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import onnx
import onnx_ir as ir

from fusion_cli.errors import ModelError
from fusion_cli.load.accepted import bodies_in, graphs_of, nodes_of

_TYPED = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
"""Fields that hold a tensor's elements, where these are not raw bytes."""
_MOST_NODES = 250_000
"""Of a model, also with its functions where they are called: more take more than minutes and gigabytes."""
_MOST_PARTS = 10_000
"""Inputs or outputs of a node, or of a graph (aside from inputs that have an initializer, as all weights may). To
replace one takes time that grows with their number, and ONNX Runtime does something for each pair of inputs."""
_MOST_WEIGHTS = 100_000
"""Initializers of a graph: ONNX Runtime does something for each pair of these, a minute for so many."""
_MOST_AXES = 64
"""Of a tensor: as many as arrays have."""
_ONNX_DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.training", "ai.onnx.preview.training"})


def check_bodies(model: ir.Model, path: Path) -> None:
    """Refuse bodies whose operator may read meaning into their names and order, as BeamSearch of com.microsoft does."""
    for node in model.graph.all_nodes():
        if node.domain not in _ONNX_DOMAINS and bodies_of(node):
            raise ModelError(
                f"'{node.op_type}' of '{node.domain}' runs a graph of its own, which may have to stay as it is",
                where=str(path),
                hint="optimize that graph as a model by itself, before it becomes part of this one",
            )


def bodies_of(node: ir.Node) -> list[ir.Graph]:
    """The graphs that a node of control flow runs."""
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            found.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            found += attribute.as_graphs()
    return found


def check_text(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse names that are no text, which protobuf gives as bytes."""
    of_nodes = (name for n in nodes_of(proto) for name in (n.name, n.op_type, n.domain, *n.input, *n.output))
    of_values = (v.name for g in graphs_of(proto) for v in (*g.input, *g.output, *g.value_info, *g.initializer))
    for name in chain(of_nodes, of_values):
        if isinstance(name, bytes):
            hint = "export the model again with names in UTF-8"
            raise ModelError(f"the name {name!r} is not text", where=str(path), hint=hint)


def check_sizes(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse models, nodes and tensors of more parts than can be worked with."""
    nodes = sum(len(owner.node) for owner in (*graphs_of(proto), *proto.functions))
    if nodes > _MOST_NODES:
        hint = f"divide it into models: {_MOST_NODES} are the most"
        raise ModelError(f"the model has {nodes} nodes", where=str(path), hint=hint)
    read = ((f"a node '{n.op_type}'", "inputs", len(n.input)) for n in nodes_of(proto))
    made = ((f"a node '{n.op_type}'", "outputs", len(n.output)) for n in nodes_of(proto))
    shown = (("a graph", "outputs", len(g.output)) for g in graphs_of(proto))
    asked = (("a graph", "inputs without a value", _inputs_to_give(g)) for g in graphs_of(proto))
    for owner, role, count in chain(read, made, shown, asked):
        if count > _MOST_PARTS:
            hint = f"divide it: {_MOST_PARTS} are the most"
            raise ModelError(f"{owner} has {count} {role}", where=str(path), hint=hint)
    weights = max(len(g.initializer) + len(g.sparse_initializer) for g in graphs_of(proto))
    if weights > _MOST_WEIGHTS:
        hint = f"join some, or divide the model: {_MOST_WEIGHTS} are the most"
        raise ModelError(f"a graph has {weights} initializers", where=str(path), hint=hint)
    declared = (v for g in graphs_of(proto) for v in (*g.input, *g.output, *g.value_info))
    ranks = ((v.name, len(v.type.tensor_type.shape.dim)) for v in declared)
    for name, rank in chain(ranks, ((t.name, len(t.dims)) for t in tensors(proto))):
        if rank > _MOST_AXES:
            hint = f"a tensor has {_MOST_AXES} at the most"
            raise ModelError(f"'{name}' has {rank} axes", where=str(path), hint=hint)


def _inputs_to_give(graph: onnx.GraphProto) -> int:
    return len({v.name for v in graph.input} - {t.name for t in graph.initializer})


def check_references(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse attributes that refer to those of a function, outside of functions: there they have no value."""
    for graph in (proto.graph, *bodies_in(proto.graph)):
        for node in graph.node:
            for attribute in node.attribute:
                if attribute.ref_attr_name:
                    said = (
                        f"'{attribute.name}' of '{node.op_type}' refers to the attribute of a function, and is in none"
                    )
                    raise ModelError(said, where=str(path), hint="export the model again")


def check_types(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse maps, which classifiers of classical machine learning give out."""
    for graph in graphs_of(proto):
        for value in (*graph.input, *graph.output, *graph.value_info):
            kind = value.type
            while kind.HasField("sequence_type") or kind.HasField("optional_type"):
                kind = getattr(kind, str(kind.WhichOneof("value"))).elem_type
            if kind.HasField("map_type"):
                raise ModelError(
                    f"'{value.name}' is a map, and models with maps are not supported",
                    where=str(path),
                    hint="export the model without its ZipMap (`zipmap=False` in skl2onnx and onnxmltools)",
                )


def check_values(model: ir.Model, path: Path) -> None:
    """Refuse values that nothing makes, and graphs that give out a value of another graph."""
    read = (
        (v, f"an input of '{n.name or n.op_type}'") for n in model.graph.all_nodes() for v in n.inputs if v is not None
    )
    given = ((v, f"an output of the graph '{graph.name}'") for graph in model.graphs() for v in graph.outputs)
    for value, role in chain(read, given):
        if value.producer() is None and not value.is_graph_input() and not value.is_initializer():
            hint = "the model is incomplete; export it again"
            raise ModelError(f"no node or input makes '{value.name}', {role}", where=str(path), hint=hint)


def check_functions(model: ir.Model, path: Path) -> None:
    """Refuse functions that call themselves, and those that are more than can be worked with where they are called."""
    bodies = {name: [n.op_identifier() for n in f.all_nodes()] for name, f in model.functions.items()}
    calls = {name: Counter(op for op in ops if op in bodies) for name, ops in bodies.items()}
    sizes: dict[ir.OperatorIdentifier, int] = {}
    try:
        for name in TopologicalSorter(calls).static_order():
            own = sum(op not in bodies for op in bodies[name])
            sizes[name] = own + sum(times * sizes[called] for called, times in calls[name].items())
    except CycleError as e:
        loop = " -> ".join(f"'{name}'" for _, name, _ in e.args[1])
        raise ModelError(f"functions call themselves: {loop}", where=str(path), hint="export the model again") from e
    total = sum(sizes.get(node.op_identifier(), 1) for node in model.graph.all_nodes())
    if sizes and total > _MOST_NODES:
        hint = "write what they compute with fewer calls"
        raise ModelError(f"where its functions are called there are {total} nodes", where=str(path), hint=hint)


def put_in_order(model: ir.Model, path: Path) -> None:
    """Sort nodes that come before those whose results they read, as ONNX Runtime does."""
    for graph in (model.graph, *(f.graph for f in model.functions.values())):
        try:
            graph.sort()
        except ValueError as e:
            raise ModelError(f"nodes of '{graph.name}' need each other's results", where=str(path)) from e


def check_external_data(proto: onnx.ModelProto, path: Path) -> None:
    """Refuse external data that is missing, cut short or outside the model's folder, and raw data of a wrong size."""
    for tensor in tensors(proto):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _check_file(tensor, path)
        elif tensor.HasField("raw_data"):
            _check_raw(tensor, path)
        elif math.prod(tensor.dims) > 0 and not any(len(getattr(tensor, name)) for name in _TYPED):
            hint = "the file is damaged; export it again"
            raise ModelError(f"tensor '{tensor.name}' holds no data", where=str(path), hint=hint)


def _check_file(tensor: onnx.TensorProto, path: Path) -> None:
    info = {e.key: e.value for e in tensor.external_data}
    location = info.get("location", "")
    file = path.parent / location
    where = f"{path}: tensor '{tensor.name}'"
    folder = path.parent.resolve()
    own = location == path.name  # which `without_weights` refers to; it may be a link
    if (
        not location
        or "\0" in location
        or Path(location).is_absolute()
        or not (own or file.resolve().is_relative_to(folder))
    ):
        hint = "keep the data file beside the model"
        raise ModelError(f"external data '{location}' lies outside the model's folder", where=where, hint=hint)
    if not file.is_file():
        raise ModelError(f"external data file '{location}' is missing", where=where, hint="copy it beside the model")
    try:
        offset, length = int(info.get("offset", 0)), int(info.get("length", 0))
    except ValueError as e:
        raise ModelError("external data has a malformed offset or length", where=where) from e
    needed = _nbytes(tensor)
    if offset < 0 or length < 0 or (length and needed is not None and length != needed):
        data = "the tensor" if own else "external data"
        raise ModelError(f"{data} is {length} bytes where its shape needs {needed}", where=where)
    if offset + (length or needed or 0) > file.stat().st_size:
        raise ModelError(f"external data file '{location}' is cut short", where=where, hint="copy it again")


def _check_raw(tensor: onnx.TensorProto, path: Path) -> None:
    needed = _nbytes(tensor)
    if needed is not None and len(tensor.raw_data) != needed:
        raise ModelError(
            f"tensor '{tensor.name}' holds {len(tensor.raw_data)} bytes where its shape needs {needed}",
            where=str(path),
            hint="the file is damaged; export it again",
        )


def _nbytes(tensor: onnx.TensorProto) -> int | None:
    try:
        itemsize: float = ir.DataType(tensor.data_type).itemsize
    except (ValueError, TypeError):
        return None
    elements: int = math.prod(tensor.dims)
    return math.ceil(elements * itemsize)


def tensors(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for graph in graphs_of(proto):
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield from (sparse.values, sparse.indices)
    for node in nodes_of(proto):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            if attribute.HasField("sparse_tensor"):
                yield from (attribute.sparse_tensor.values, attribute.sparse_tensor.indices)
            yield from attribute.tensors


def locations(proto: onnx.ModelProto) -> Iterator[onnx.StringStringEntryProto]:
    """Where tensors say that their data are: in which files."""
    apart = (t for t in tensors(proto) if t.data_location == onnx.TensorProto.EXTERNAL)
    return (entry for t in apart for entry in t.external_data if entry.key == "location")
