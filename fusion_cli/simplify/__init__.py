"""Standard clean-ups, all from libraries: what is left is easier to match and computes the same numbers."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import onnx_ir as ir
import onnx_ir.passes.common as passes
from onnx_shape_inference import infer_symbolic_shapes
from onnxscript import optimizer, rewriter
from onnxscript.rewriter.rules.common import (
    fuse_batchnorm_into_conv_rule,
    fuse_batchnorm_into_conv_transpose_rule,
    fuse_batchnorm_into_gemm_rule,
)

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
    with _quiet():
        passes.InlinePass()(model)
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        _infer_shapes(model)
        model = passes.ShapeInferencePass()(model).model
        _infer_shapes(model)
        optimizer.optimize_ir(
            model,
            num_iterations=2,
            input_size_limit=FOLD_INPUT_BYTES,
            output_size_limit=FOLD_OUTPUT_BYTES,
            onnx_shape_inference=False,
            should_fold=_fold_filled,
        )
        rewriter.rewrite(model, _FOLD_BATCH_NORM)
        _register_constants(model.graph)
        passes.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(model)
        passes.CommonSubexpressionEliminationPass()(model)
        passes.DeduplicateInitializersPass()(model)
        passes.IdentityEliminationPass()(model)
        passes.RemoveUnusedNodesPass()(model)
        passes.NameFixPass()(model)
        passes.TopologicalSortPass()(model)
        _infer_shapes(model)
    return model


def _fold_filled(node: ir.Node) -> bool | None:
    """Fold ConstantOfShape, which the folder leaves alone by default: exporters compute Expand's shapes with it."""
    return True if node.op_type == "ConstantOfShape" else None


def _infer_shapes(model: ir.Model) -> None:
    """Symbolic shapes, as far as the library gets: an operator it fails on costs knowledge, not the run."""
    try:
        infer_symbolic_shapes(model, warn_on_missing=False)
    except Exception as e:
        logging.getLogger(__name__).debug("symbolic shape inference stopped: %s", e)


def _register_constants(graph: ir.Graph) -> None:
    """Name and register constants that the optimizer made for two nodes under one name, of which it registers one."""
    inputs = {id(v) for v in graph.inputs}
    for node in graph:
        for value in node.inputs:
            if value is None or value.producer() is not None or value.graph is not None or id(value) in inputs:
                continue
            if value.const_value is not None:
                stem, n = value.name, 0
                while value.name in graph.initializers:
                    n += 1
                    value.name = f"{stem}_{n}"
                graph.register_initializer(value)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the libraries' remarks about single nodes they could not fold off the user's terminal."""
    loggers = [logging.getLogger(n) for n in ("onnxscript", "onnx_ir", "onnx_shape_inference")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
