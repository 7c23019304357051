"""Standard clean-ups, all from libraries: what is left is easier to match and computes the same numbers."""

from __future__ import annotations

import onnx_ir as ir
import onnx_ir.passes.common as passes
from onnxscript import rewriter
from onnxscript.rewriter.rules.common import (
    fuse_batchnorm_into_conv_rule,
    fuse_batchnorm_into_conv_transpose_rule,
    fuse_batchnorm_into_gemm_rule,
)

from fusion_cli.simplify.libraries import attempt, fold_constants, infer_shapes, quiet

FOLD_INPUT_BYTES = 1 << 14
FOLD_OUTPUT_BYTES = 1 << 16
_FOLD_BATCH_NORM = (
    fuse_batchnorm_into_conv_rule,
    fuse_batchnorm_into_conv_transpose_rule,
    fuse_batchnorm_into_gemm_rule,
)


def simplify(model: ir.Model) -> ir.Model:
    """Inline local functions, infer symbolic shapes, fold constants, fold batch norms into convolutions, merge
    equal subexpressions and drop what is unused. Returns the model to go on with; `model` may have been changed.

    Shapes come first and last: with them, the exporters' run-time shape arithmetic mostly folds to constants, and
    the matcher can tell equal dimensions by their symbols.
    """
    with quiet():
        passes.InlinePass()(model)
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        infer_shapes(model)
        model = passes.ShapeInferencePass()(model).model
        infer_shapes(model)
        model = fold_constants(model, FOLD_INPUT_BYTES, FOLD_OUTPUT_BYTES)
        if any(n.op_type == "BatchNormalization" for n in model.graph):
            model = attempt(lambda m: rewriter.rewrite(m, _FOLD_BATCH_NORM), model)
        model = attempt(_tidy, model)
        infer_shapes(model)
    return model


def _tidy(model: ir.Model) -> None:
    for step in (
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        passes.CommonSubexpressionEliminationPass(),
        passes.DeduplicateInitializersPass(),
        passes.IdentityEliminationPass(),
        passes.RemoveUnusedNodesPass(),
        passes.NameFixPass(),
        passes.TopologicalSortPass(),
    ):
        step(model)
