"""A region's nodes as the body of a function."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fusion_cli.types import Region


def build_body(region: Region, nodes: Sequence[ir.Node]) -> ir.Graph:
    """A graph with copies of `nodes` (in any order), fed by the region's inputs as parameters i0, i1, ... and giving
    o0, o1, ... Embedded constants become Constant nodes; attributes are copied literally, which function inliners
    and evaluators handle best."""
    parameters = [ir.Value(name=f"i{i}", type=v.type, shape=v.shape) for i, v in enumerate(region.inputs)]
    # By name: an outlined call makes new values of the old names.
    values = {v.name or "": parameter for v, parameter in zip(region.inputs, parameters, strict=True)}
    body: list[ir.Node] = []
    for i, value in enumerate(region.constants):
        # A tensor of its own: the name of one that several models share changes with what is inlined in any of them.
        assert value.const_value is not None
        tensor = ir.Tensor(value.const_value.numpy(), value.const_value.dtype, name=f"c{i}")
        node = ir.node("Constant", [], {"value": tensor}, name=f"constant_{i}")
        node.outputs[0].name = f"c{i}"
        values[value.name or ""] = node.outputs[0]
        body.append(node)
    outputs = {v.name: f"o{i}" for i, v in enumerate(region.outputs)}
    for i, value in enumerate(v for n in nodes for v in n.outputs):
        values[value.name or ""] = ir.Value(name=outputs.get(value.name, f"v{i}"), type=value.type, shape=value.shape)
    for i, node in enumerate(nodes):
        inputs = [None if v is None else values[v.name or ""] for v in node.inputs]
        copies = [values[v.name] if v.name else ir.Value(name="") for v in node.outputs]
        attributes, name = node.attributes.values(), f"{node.op_type}_{i}"
        body.append(
            ir.Node(node.domain, node.op_type, inputs, attributes, overload=node.overload, outputs=copies, name=name)
        )
    graph = ir.Graph(parameters, [values[v.name or ""] for v in region.outputs], nodes=body)
    graph.sort()
    return graph
