"""What would help where a rule did not match. Nothing is advised that would not change what is matched."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from fusion_cli.codes.advice import FLOAT_FIRST, FOR_INFERENCE, INFER_SHAPES, UNOPTIMISED
from fusion_cli.graph.index import GraphIndex
from fusion_cli.graph.origins import QUANTISED, origin_of
from fusion_cli.operators.versions import first_opset
from fusion_cli.simplify.libraries import can_be_inferred
from fusion_cli.types import label

CONTROL_FLOW = frozenset({"If", "Loop", "Scan"})
_INFERRED = ("", "com.microsoft")
"""Domains whose operators ONNX Runtime's shape inference knows; it fails on a model with any other."""


def why_not_constant(value: ir.Value, index: GraphIndex) -> str:
    """How to make a value the constant that a rule needs; "" if it is one, or if nothing would."""
    match origin_of(value, index):
        case "overridable":
            return (
                f"`{value.name}` is a graph input with an initializer, so callers may override it: "
                f"pass --assume-constant {value.name}"
            )
        case "given":
            return f"`{value.name}` is a graph input: export the model with it as an initializer"
        case "foldable":
            producer = value.producer()
            assert producer is not None
            return f"{producer.op_type} computes `{value.name}` from constants at run time: fold it into the model"
        case "dequantized":
            return f"the value is dequantized at run time: {FLOAT_FIRST}"
    return ""


def why_not_shaped(value: ir.Value, index: GraphIndex) -> str:
    """Where the type or the shape of a value was lost on the way to it, and how to get it back."""
    origin = index.unshaped.get(value)
    if origin is None:
        return f"declare the type and the rank of `{value.name}` in the model"
    given = next((v for v in origin.inputs if v is not None and (v.dtype is None or v.shape is None)), None)
    if given is not None:
        return why_not_shaped(given, index)
    lost = f"shapes are unknown from {origin.op_type} {label(origin)} on"
    if origin.domain not in _INFERRED:
        made = origin.outputs[0].name
        return f"{lost}, which only its author knows: declare the type and shape of `{made}` in the model's value_info"
    return lost if can_be_inferred(origin) else f"{lost}: `{INFER_SHAPES}` may know them"


def not_of_the_opset(node: ir.Node, index: GraphIndex) -> tuple[str, str]:
    """Why an operator is none of the operator sets that the model imports, and what to do about it."""
    opset = index.graph.opset_imports.get(node.domain)
    if node.domain:
        add = f"onnx.helper.make_opsetid('{node.domain}', 1)"
        return f"but the model imports no '{node.domain}'", f"append {add} to the model's opset_import"
    if not onnx.defs.has(node.op_type):
        return "but it is ONNX Runtime's own", UNOPTIMISED
    first = first_opset(node.op_type)
    return f"which ONNX has from opset {first} on, not in {opset}", f"export the model with opset {first} or newer"


def around(*nodes: ir.Node | None) -> str:
    """What a node next to the place where a rule stopped says about it."""
    kinds = {n.op_type for n in nodes if n is not None}
    if kinds & CONTROL_FLOW:
        return "no rule reaches across the border of a control-flow body"
    if kinds & QUANTISED:
        return f"rules are about float operators: {FLOAT_FIRST}"
    if any(n.domain == "com.microsoft" for n in nodes if n is not None):
        return UNOPTIMISED
    if any(n.op_type == "Dropout" and len(n.inputs) > 2 for n in nodes if n is not None):
        return FOR_INFERENCE
    return ""
