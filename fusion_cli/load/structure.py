"""Whether a model is a graph at all: values of known kinds, each made once and before it is used."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx_ir as ir

from fusion_cli.errors import ModelError
from fusion_cli.load.accepted import graphs_of

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
    for node in model.graph.all_nodes():
        for value in node.inputs:
            if value is not None and not _is_made(value):
                _refuse(value, f"an input of '{node.name or node.op_type}'", path)
    for graph in model.graphs():
        for value in graph.outputs:
            if not _is_made(value):
                _refuse(value, f"an output of the graph '{graph.name}'", path)


def _is_made(value: ir.Value) -> bool:
    return value.producer() is not None or value.is_graph_input() or value.is_initializer()


def _refuse(value: ir.Value, role: str, path: Path) -> None:
    hint = "the model is incomplete; export it again"
    raise ModelError(f"no node or input makes '{value.name}', {role}", where=str(path), hint=hint)


def put_in_order(model: ir.Model, path: Path) -> None:
    """Sort nodes that come before those whose results they read, as ONNX Runtime does."""
    for graph in (model.graph, *(f.graph for f in model.functions.values())):
        try:
            graph.sort()
        except ValueError as e:
            raise ModelError(f"nodes of '{graph.name}' need each other's results", where=str(path)) from e
