"""What ONNX Runtime fuses on a CPU to its own harm, written so that it does not."""

from __future__ import annotations

import onnx_ir as ir

from fusion_cli.score.vendor_fusions import adds_equals
from fusion_cli.sizes.dims import dtype_of
from fusion_cli.types import Rewrite, label

RULE = "ResidualSum"
"""Its name among those of algebra."""


def keep_apart(model: ir.Model) -> tuple[Rewrite, ...]:
    """Call the Add of a residual before a LayerNormalization Sum, which is the same operator by a name that ONNX
    Runtime does not look for: of Add it makes a SkipLayerNormalization, which takes five times as long on a CPU."""
    changed = [node for node in model.graph if _is_merged(node)]
    for node in changed:
        node.op_type = "Sum"
    return (Rewrite(RULE, tuple(map(label, changed)), len(changed)),) if changed else ()


def _is_merged(node: ir.Node) -> bool:
    """Whether ONNX Runtime merges it with the norm, which nothing else may read it beside."""
    sum_ = node.outputs[0]
    if node.op_type != "Add" or node.domain or dtype_of(sum_) != "float32" or not adds_equals(node):
        return False
    return not sum_.is_graph_output() and _is_normalized(sum_)


def _is_normalized(value: ir.Value) -> bool:
    readers = {user for user, _ in value.uses()}
    operators = sorted(user.op_type for user in readers if not user.domain)
    return len(operators) == len(readers) and operators in (["LayerNormalization"], ["ReduceMean", "Sub"])
