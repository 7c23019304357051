"""Exact algebra in stock operators: what a model computes with fewer nodes, whatever it runs on.

A rule holds for all inputs but for rounding, computes constants in float64 and rounds them once. What rules of fusion
look for stays as it is: biases behind products, the weights of norms, the scale of an attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import onnx_ir as ir
import onnx_ir.passes.common as passes

from fusion_cli.simplify.algebra.activations import name_activations
from fusion_cli.simplify.algebra.blocked import write_batch_norms
from fusion_cli.simplify.algebra.branches import merge_branches
from fusion_cli.simplify.algebra.chains import combine_bounds, combine_factors
from fusion_cli.simplify.algebra.channels import pad_channels, pad_read_channels
from fusion_cli.simplify.algebra.constants import compute_constants
from fusion_cli.simplify.algebra.conv1d import lift_lines
from fusion_cli.simplify.algebra.edits import Applied
from fusion_cli.simplify.algebra.faint import drop_faint
from fusion_cli.simplify.algebra.fold_affine import fold_affine_nodes
from fusion_cli.simplify.algebra.gates import combine_gates
from fusion_cli.simplify.algebra.grids import read_whole
from fusion_cli.simplify.algebra.layers import LAYERS
from fusion_cli.simplify.algebra.padding import drop_pads, fold_pads, fold_slices
from fusion_cli.simplify.algebra.patches import join_patches
from fusion_cli.simplify.algebra.reshapes import add_in_shape, drop_shapes, join_reshapes, write_shapes
from fusion_cli.simplify.algebra.rolls import look_up_rolls
from fusion_cli.simplify.algebra.softmaxes import put_channels_last
from fusion_cli.simplify.algebra.splits import split_convolutions
from fusion_cli.simplify.algebra.spread import drop_spread
from fusion_cli.simplify.algebra.tables import compute_tables, gather_one_hot
from fusion_cli.simplify.algebra.transposes import cancel_transposes
from fusion_cli.simplify.algebra.triangles import compare_positions
from fusion_cli.simplify.algebra.uniform import drop_choices, drop_neutral
from fusion_cli.simplify.algebra.window_order import keep_windows
from fusion_cli.simplify.identities import drop_identities
from fusion_cli.types import Rewrite, label

BLOCK_RULES = frozenset({"Conv1D", "ConvSplit", "PadChannels", "PadConvChannels"})
"""Those that are applied for machines whose convolutions take channels in blocks."""
_FIRST_OPSET = 7
"""Before it arithmetic did not broadcast as it does."""
_FAMILIES: Mapping[Callable[[ir.Graph], Iterator[Applied]], tuple[str, ...]] = {
    write_shapes: ("ReshapeSizes",),  # first: what computes them is gone then
    drop_shapes: ("ExpandSame", "ReshapeSame", "SliceSame"),
    drop_pads: ("PadNothing",),
    read_whole: ("GatherWhole",),
    look_up_rolls: ("RollGather",),
    join_patches: ("SliceTranspose",),
    drop_spread: ("ExpandSpread",),
    drop_neutral: ("NeutralTensor",),
    drop_choices: ("WhereAlways",),
    compare_positions: ("TriangleMask",),
    combine_bounds: ("ClipClip",),  # before activations, in which they may be two nodes
    name_activations: ("HardSigmoid", "HardSwish"),  # before the additions in them are taken for biases
    compute_constants: ("ConstantFolding",),  # before anything is folded into weights
    gather_one_hot: ("OneHotMatMul",),
    compute_tables: ("GatherTable",),
    cancel_transposes: ("TransposeTranspose",),
    keep_windows: ("WindowOrder", "RowGather"),
    fold_affine_nodes: tuple(rule for op in LAYERS for rule in (f"{op}Affine", f"Affine{op}")),
    merge_branches: ("ConvBranches",),  # behind what batch norms of branches are folded into
    add_in_shape: ("ReshapeAdd",),
    join_reshapes: ("ReshapeReshape",),  # between which batch norms may have been
    fold_pads: ("PadConv",),
    fold_slices: ("ConvSlice",),
    combine_gates: ("AddMul",),
    put_channels_last: ("SoftmaxConv",),
    lift_lines: ("Conv1D",),
    write_batch_norms: ("BatchNorm",),
    combine_factors: ("MulMul",),  # after activations, whose factors have other factors behind them
    drop_faint: ("FaintWeight",),  # behind all that folds numbers into weights
    split_convolutions: ("ConvSplit",),
    pad_channels: ("PadChannels",),
    pad_read_channels: ("PadConvChannels",),  # where what makes the channels cannot make more
}
"""In order, with the names of the rules in each."""
RULES = frozenset(rule for rules in _FAMILIES.values() for rule in rules)
"""Each has witnesses in `rules/algebra`."""


def apply_algebra(model: ir.Model, blocks: bool = False) -> tuple[Rewrite, ...]:
    """Apply every rule wherever it holds, BLOCK_RULES with `blocks` only, in place, and say where that was."""
    places: dict[str, list[tuple[str, ...]]] = {}
    if model.opset_imports.get("", 0) < _FIRST_OPSET:
        return ()
    for family, rules in _FAMILIES.items():
        if not blocks and BLOCK_RULES.issuperset(rules):
            continue
        found = [applied for graph in list(model.graphs()) for applied in family(graph)]
        for rule, nodes in found:
            assert rule in rules
            places.setdefault(rule, []).append(tuple(map(label, nodes)))
        if found:
            drop_identities(model)
            passes.RemoveUnusedNodesPass()(model)
    return tuple(
        Rewrite(rule, tuple(dict.fromkeys(name for names in nodes for name in names)), len(nodes))
        for rule, nodes in places.items()
    )
