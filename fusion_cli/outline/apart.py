"""What ONNX Runtime fuses on a CPU to its own harm, written so that it does not."""

from __future__ import annotations

import onnx_ir as ir

from fusion_cli.sizes.dims import dims_of, dtype_of
from fusion_cli.types import Rewrite, label

RULE = "ResidualSum"


def keep_apart(model: ir.Model) -> tuple[Rewrite, ...]:
    """Call the Add of a residual before a LayerNormalization Sum, which is the same operator by a name that ONNX
    Runtime does not look for: of Add it makes a SkipLayerNormalization, which takes five times as long on a CPU."""
    changed = [node for node in model.graph if _is_merged(node)]
    for node in changed:
        node.op_type = "Sum"
    return (Rewrite(RULE, tuple(map(label, changed)), len(changed)),) if changed else ()


def _is_merged(node: ir.Node) -> bool:
    """Whether ONNX Runtime would: two equal shapes of three dimensions, and no reader but the norm."""
    if node.op_type != "Add" or node.domain or dtype_of(node.outputs[0]) != "float32":
        return False
    shapes = [None if v is None or v.const_value is not None else dims_of(v) for v in node.inputs]
    is_residual = shapes[0] is not None and shapes[0] == shapes[1] and len(shapes[0]) == 3
    return is_residual and not node.outputs[0].is_graph_output() and _is_normalized(node.outputs[0])


def _is_normalized(value: ir.Value) -> bool:
    readers = {user for user, _ in value.uses()}
    operators = sorted(user.op_type for user in readers if not user.domain)
    return len(operators) == len(readers) and operators in (["LayerNormalization"], ["ReduceMean", "Sub"])
