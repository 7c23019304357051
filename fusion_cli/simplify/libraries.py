"""The passes of other libraries, held to two rules: none ends the run, and none talks to the user's terminal.

A model can hold anything, and a pass that fails on one operator would cost the whole model. What fails is left out: a
shape not inferred or a constant not folded costs fusions, which `explain` shows.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import onnx_ir as ir
import onnx_ir.passes.common as passes
from onnx_shape_inference import infer_symbolic_shapes
from onnxscript import optimizer

_log = logging.getLogger(__name__)


def attempt(step: Callable[[ir.Model], object], model: ir.Model) -> ir.Model:
    """The model after `step`, which changes it in place; the model as it was if the step fails."""
    copy = model.clone()
    try:
        step(copy)
    except Exception as e:
        _log.debug("a clean-up failed: %s", e)
        return model
    return copy


def infer_shapes(model: ir.Model) -> None:
    """Symbolic shapes, in place, up to the first operator that the library fails on."""
    try:
        infer_symbolic_shapes(model, warn_on_missing=False)
    except Exception as e:
        _log.debug("symbolic shape inference stopped: %s", e)


def fold_constants(model: ir.Model, input_bytes: int, output_bytes: int) -> ir.Model:
    """Fold what is computed from constants of up to `input_bytes` into constants of up to `output_bytes`."""

    def fold(copy: ir.Model) -> None:
        # Folded values make more of the graph constant: a second round finds what the first could not.
        for _ in range(2):
            optimizer.fold_constants_ir(
                copy,
                input_size_limit=input_bytes,
                output_size_limit=output_bytes,
                onnx_shape_inference=False,
                # Left alone by default; exporters compute the shapes of Expand with it.
                should_fold=lambda node: True if node.op_type == "ConstantOfShape" else None,
            )
            passes.RemoveUnusedNodesPass()(copy)
        _register_constants(copy.graph)

    return attempt(fold, model)


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
def quiet() -> Iterator[None]:
    """Keep the libraries' remarks about single nodes off the user's terminal."""
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
