"""The forms that operators had in older opsets: what was an attribute and is an input, or meant something else."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.defs
import onnx.helper
import onnx_ir as ir

from fusion_cli.operators.registry import OPERATORS, ROW_OPERATORS

_INTEGERS: Mapping[str, tuple[str, ...]] = {
    **{op: ("axes",) for op in sorted(ROW_OPERATORS) if op.startswith("Reduce")},
    "Expand": ("shape",),
    "Reshape": ("shape",),
    "Slice": ("starts", "ends", "axes", "steps"),
    "Split": ("split",),
    "Squeeze": ("axes",),
    "Tile": ("repeats",),
    "Unsqueeze": ("axes",),
}
"""The inputs after the first that are lists of integers."""
SHAPE_INPUTS = {(op, i): name for op, names in _INTEGERS.items() for i, name in enumerate(names, 1)}
INPUT_ATTRIBUTES = {place: name for place, name in SHAPE_INPUTS.items() if name not in ("shape", "repeats")}
"""Those that are attributes in another opset, as which patterns see them: (operator, input index) -> attribute name."""
_PLACES = {(op, name): i for (op, i), name in SHAPE_INPUTS.items()}

_DEFAULTS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("com.microsoft", "FusedMatMul"): {"transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0, "alpha": 1.0},
    ("com.microsoft", "QuickGelu"): {"alpha": 1.702},
    ("com.microsoft", "SkipLayerNormalization"): {"epsilon": 1e-12},
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): {"epsilon": 1e-12},
    ("", "SimplifiedLayerNormalization"): {"axis": -1, "epsilon": 1e-5},
}


def opset_version(node: ir.Node) -> int:
    """The version of the ONNX operator set that the node is written in."""
    if node.version is not None:
        return node.version
    imports = {} if node.graph is None else node.graph.opset_imports
    return imports.get("", imports.get("ai.onnx", 1))


@cache
def first_opset(operator: str) -> int:
    """The opset that brought an operator of ONNX's own domain."""
    schemas = onnx.defs.get_all_schemas_with_history()
    return min(s.since_version for s in schemas if s.name == operator and not s.domain)


@cache
def defaults(domain: str, op: str, opset: int) -> Mapping[str, Any]:
    """What the operator's attributes are where a node does not say; of an operator that came with a later opset, what
    they are there."""
    found = dict(_DEFAULTS.get((domain, op), {}))
    if not domain and onnx.defs.has(op):
        known = onnx.defs.has(op, max_inclusive_version=opset)
        schema = onnx.defs.get_schema(op, opset) if known else onnx.defs.get_schema(op)
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name:
                value = onnx.helper.get_attribute_value(attribute.default_value)
                found[name] = value.decode() if isinstance(value, bytes) else value
    return found


def attribute(node: ir.Node, name: str) -> Any:
    """A number or text that the node gives, or that the operator has where it does not; None if neither has one."""
    if name in node.attributes:
        return node.attributes[name].value
    found = defaults(node.domain, node.op_type, opset_version(node)).get(name)
    return float(str(np.float32(found))) if isinstance(found, float) else found  # 1e-5 as people write it


def parameters(node: ir.Node) -> dict[str, Any]:
    """Those of what a known operator depends on beside its operands that the node gives or that have a default."""
    names = OPERATORS[node.domain, node.op_type].parameters
    return {name: value for name in names if (value := attribute(node, name)) is not None}


def integers(node: ir.Node, name: str) -> ir.Value | tuple[int, ...] | None:
    """A list of integers that is an attribute in some opsets and an input in others."""
    if name in node.attributes:
        return tuple(node.attributes.get_ints(name) or ())
    place = _PLACES[node.op_type, name]
    return node.inputs[place] if place < len(node.inputs) else None


def training_mode(node: ir.Node) -> ir.Value | None:
    """What makes a Dropout drop anything: an input since opset 12; before, inference did without."""
    return node.inputs[2] if len(node.inputs) > 2 else None


def is_over_later_axes(node: ir.Node) -> bool:
    """Whether the node works over all axes from the given one on together, as these operators did before opset 13."""
    return node.op_type in ("Softmax", "LogSoftmax", "Hardmax") and not node.domain and opset_version(node) < 13


def has_weights_by_group(node: ir.Node) -> bool:
    """Whether a norm of groups has a weight for each of them, as before opset 21, rather than for each channel."""
    return node.op_type == "GroupNormalization" and opset_version(node) < 21


def windows(node: ir.Node, axes: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Strides, dilations and pads of a node with windows over so many axes, which it need not give."""
    strides, dilations = (tuple(node.attributes.get_ints(n) or (1,) * axes) for n in ("strides", "dilations"))
    return strides, dilations, tuple(node.attributes.get_ints("pads") or (0,) * (2 * axes))
