"""Affine nodes, among them batch norms, folded into the weights and the bias of the layer beside them.

The libraries have rules for parts of this, which compute in the type of the weights, want a bias, take single numbers
only, or do not see through a Transpose.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from fusion_cli.simplify.algebra.affine import (
    UNCHANGED,
    ZERO,
    Affine,
    Step,
    steps_after,
    steps_before,
    total,
)
from fusion_cli.simplify.algebra.edits import (
    Applied,
    Array,
    add_constant,
    become,
    graph_of,
    hand_on,
    only_reader,
    put_before,
    rounded,
    starts_there,
)
from fusion_cli.simplify.algebra.layers import Layer, layer_of


def fold_affine_nodes(graph: ir.Graph) -> Iterator[Applied]:
    """Fold the affine nodes after and before each layer, in place."""
    for node in list(graph):
        layer = layer_of(node)
        if layer is None:
            continue
        after = steps_after(node.outputs[0], layer.result)
        if _fold_after(layer, after):
            yield f"{node.op_type}Affine", [node, *(s.node for s in after)]
        assert node.inputs[0] is not None
        before, start = steps_before(node.inputs[0], layer.source)
        if starts_there(start) and _fold_before(layer, before):
            yield f"Affine{node.op_type}", [*(s.node for s in before), node]


def _fold_after(layer: Layer, steps: list[Step]) -> bool:
    found = total(steps)
    if not steps:
        return False
    if layer.node.op_type in ("Gemm", "MatMul") and found.scale.size == 1:
        return False  # the scale of an attention is one that rules look for, and additions are biases as they are
    taken = found if layer.takes_bias else found.scaling()
    left = ZERO if layer.takes_bias else found.shift
    return _replace(layer, UNCHANGED, taken, steps, steps[-1], left)


def _fold_before(layer: Layer, steps: list[Step]) -> bool:
    found = total(steps)
    if not steps:
        return False
    if layer.takes_shift or not found.is_shifting:
        return _replace(layer, found, UNCHANGED, steps, steps[0], ZERO)
    # x * scale + shift is (x + shift / scale) * scale: one node stays, at the border of what is padded too.
    if len(steps) == 1 or not found.scale.all():
        return False
    return _replace(layer, found.scaling(), UNCHANGED, steps, steps[0], found.shift / found.scale)


def _replace(layer: Layer, before: Affine, after: Affine, steps: list[Step], kept: Step, left: np.ndarray) -> bool:
    """Let the layer do the work of the steps, but for a shift that is left to one of them."""
    numbers = rounded(left[None], layer.weight.dtype)
    if numbers is None or not layer.take(before, after):
        return False
    is_left, is_regrouped = bool(left.any()), kept.channels.rank != layer.result.rank
    for step in steps:
        if step is kept and is_left and not is_regrouped:
            constant = add_constant(graph_of(step.node), _shift_name(step.node), step.channels.spread(numbers[0]))
            become(step.node, "Add", [step.data, constant])
        else:
            hand_on(step.node, step.data)
    if is_left and is_regrouped:
        _shift_result(layer, numbers[0], _shift_name(kept.node))
    return True


def _shift_result(layer: Layer, numbers: Array, name: str) -> None:
    """Add a bias to what a layer makes, in front of the Reshape that reads it, where rules look for one."""
    made, reader = layer.node.outputs[0], only_reader(layer.node.outputs[0])
    assert reader is not None
    bias = add_constant(graph_of(layer.node), name, layer.result.spread(numbers))
    added = put_before(reader[0], "Add", [made, bias], f"{made.name}_shifted", made.type, made.shape)
    reader[0].replace_input_with(reader[1], added)


def _shift_name(node: ir.Node) -> str:
    return f"{node.outputs[0].name}_shift"
