"""Identity nodes: taken out, but for those that a graph needs to give a value out."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir


def drop_identities(model: ir.Model) -> None:
    """Let the readers of an Identity's result read its operand instead, in all graphs of the model, in place.

    A graph must make each of its outputs itself, and under a name of its own: an Identity that makes an output stays
    where it hands on an input, a constant, another output or a value from outside the graph.
    """
    for graph in model.graphs():
        for node in graph:
            source = node.inputs[0] if node.inputs else None
            if node.op_type != "Identity" or node.domain or source is None:
                continue
            result = node.outputs[0]
            if result.is_graph_output():
                producer = source.producer()
                if producer is None or producer.graph is not node.graph or source.is_graph_output():
                    continue
            source.shape = source.shape or result.shape
            source.type = source.type or result.type
            ir.convenience.replace_all_uses_with(result, source, replace_graph_outputs=True)
            if source.is_graph_output():
                source.name = result.name
            graph.remove(node, safe=True)


def copied_outputs(graph: ir.Graph) -> frozenset[str]:
    """The names of the outputs that Identity nodes make."""
    made = ((v.name or "", v.producer()) for v in graph.outputs)
    return frozenset(name for name, node in made if node is not None and node.op_type == "Identity")


def copy_outputs(graph: ir.Graph, names: Collection[str]) -> None:
    """Make those outputs again by an Identity that nodes of the graph read as well. That is what the Identity was for:
    fusions of ONNX Runtime lose outputs that are read (Transpose into Gemm)."""
    for i, value in enumerate(graph.outputs):
        producer = value.producer()
        if value.name not in names or producer is None or producer.op_type == "Identity" or not value.uses():
            continue
        copy = ir.Value(name=value.name, type=value.type, shape=value.shape)
        graph.append(ir.Node("", "Identity", [value], outputs=[copy]))
        graph.outputs[i] = copy
        value.name = f"{copy.name}_copied"
