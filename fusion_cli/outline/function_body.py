"""A region's nodes as the body of a function."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fusion_cli.types import Region


def build_body(region: Region, nodes: Sequence[ir.Node]) -> ir.Graph:
    """A graph with copies of `nodes` (in any order), fed by the region's inputs as parameters i0, i1, ... and giving
    o0, o1, ... Embedded constants become Constant nodes; attributes are copied literally, which function inliners
    and evaluators handle best."""
    values: dict[str, ir.Value] = {}
    parameters = [_parameter(v, f"i{i}") for i, v in enumerate(region.inputs)]
    for value, parameter in zip(region.inputs, parameters, strict=True):
        values[value.name or ""] = parameter
    body: list[ir.Node] = []
    for i, value in enumerate(region.constants):
        node = ir.node("Constant", [], {"value": value.const_value}, name=f"constant_{i}")
        node.outputs[0].name = f"c{i}"
        values[value.name or ""] = node.outputs[0]
        body.append(node)
    made = [v for n in nodes for v in n.outputs]
    outputs = {v.name: f"o{i}" for i, v in enumerate(region.outputs)}
    for i, value in enumerate(made):
        values[value.name or ""] = ir.Value(name=outputs.get(value.name, f"v{i}"), type=value.type, shape=value.shape)
    for i, node in enumerate(_ordered(nodes)):
        inputs = [None if v is None else values[v.name or ""] for v in node.inputs]
        copies = [values[v.name] if v.name else ir.Value(name="") for v in node.outputs]
        body.append(
            ir.Node(
                node.domain,
                node.op_type,
                inputs,
                list(node.attributes.values()),
                overload=node.overload,
                outputs=copies,
                name=f"{node.op_type}_{i}",
            )
        )
    return ir.Graph(parameters, [values[v.name or ""] for v in region.outputs], nodes=body)


def _parameter(value: ir.Value, name: str) -> ir.Value:
    return ir.Value(name=name, type=value.type, shape=value.shape)


def _ordered(nodes: Sequence[ir.Node]) -> list[ir.Node]:
    """Topological order; names tell values apart because an outlined call makes new values of the old names."""
    makers = {v.name: n for n in nodes for v in n.outputs}
    done: dict[ir.Node, None] = {}
    for start in nodes:
        stack = [start]
        while stack:
            node = stack[-1]
            waiting = [
                m
                for v in node.inputs
                if v is not None and (m := makers.get(v.name)) not in (None, node) and m not in done
            ]
            if node in done or not waiting:
                stack.pop()
                done[node] = None
            else:
                stack += [m for m in waiting if m is not None]
    return list(done)
