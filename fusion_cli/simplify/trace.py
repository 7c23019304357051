"""What became of a node of the file when the model was simplified."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from fusion_cli.codes import simplify as codes
from fusion_cli.load.overridable import is_constant
from fusion_cli.types import label


@dataclass(frozen=True, eq=False)
class Traced:
    """A node or a value of the file by name: the node that computes it in the simplified model, and if that is another
    one (or none), why: a code of `simplify.codes` and what it is now."""

    operator: str
    node: ir.Node | None
    code: str = ""
    became: str = ""


def trace(name: str, original: ir.Model, simplified: ir.Model) -> Traced | None:
    """Find a node by its name, by the name of one of its outputs, or as "OpType->output"; None if there is none."""
    node = _find(name, simplified.graph.all_nodes())
    before = _find(name, _all_nodes(original))
    if before is None or (node is not None and node.op_type == before.op_type):
        return None if node is None else Traced(node.op_type, node)
    if node is not None:
        return Traced(before.op_type, node, codes.ABSORBED, f"part of {node.op_type} {label(node)}")
    code, became, instead = _fate(before, simplified)
    return Traced(before.op_type, instead, code, became)


def names(original: ir.Model, simplified: ir.Model) -> set[str]:
    """Every name that `trace` finds."""
    nodes = [*_all_nodes(original), *simplified.graph.all_nodes()]
    return {n.name for n in nodes if n.name} | {v.name for n in nodes for v in n.outputs if v.name}


def _all_nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from model.graph.all_nodes()
    for function in model.functions.values():
        yield from function.all_nodes()


def _find(name: str, nodes: Iterator[ir.Node]) -> ir.Node | None:
    """By name before by output: exporters name nodes and values alike."""
    by_output = None
    for node in nodes:
        if name in (node.name, label(node)):
            return node
        if by_output is None and any(v.name == name for v in node.outputs if v.name):
            by_output = node
    return by_output


def _fate(node: ir.Node, simplified: ir.Model) -> tuple[str, str, ir.Node | None]:
    """Why a node is gone: seen from those that read it and are still there, which read something else in its place."""
    left = {v.name: n for n in simplified.graph.all_nodes() for v in n.outputs}
    outputs = {v.name: v for v in simplified.graph.outputs}
    waiting, seen = [node], {node}
    while waiting:
        current = waiting.pop(0)
        for value in current.outputs:
            if current is node and value.name in simplified.graph.initializers:
                return codes.FOLDED, f"the constant '{value.name}'", None
            if value.is_graph_output() and value.name in outputs:
                return _replaced(node, current, outputs[value.name])
            for user, index in value.uses():
                same = next((left[v.name] for v in user.outputs if v.name in left), None)
                if same is not None and same.op_type == user.op_type and index < len(same.inputs):
                    return _replaced(node, current, same.inputs[index])
                if same is not None:
                    return codes.ABSORBED, f"part of {same.op_type} {label(same)}", same
                if user not in seen:
                    seen.add(user)
                    waiting.append(user)
    return codes.UNUSED, "", None


def _replaced(node: ir.Node, last: ir.Node, value: ir.Value | None) -> tuple[str, str, ir.Node | None]:
    """`value` stands where `last`, which is `node` or computed from it, was read."""
    if value is None:
        return codes.ABSORBED, "an input that is left out", None
    if is_constant(value):
        return codes.FOLDED, f"the constant '{value.name}'", None
    instead = value.producer()
    if instead is None:
        return codes.ABSORBED, f"'{value.name}', which it only passed on", None
    if last is node and instead.op_type == node.op_type:
        return codes.MERGED, f"{instead.op_type} {label(instead)}", instead
    return codes.ABSORBED, f"{instead.op_type} {label(instead)}", instead
