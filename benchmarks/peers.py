"""What other tools make of a model: each as a function that writes the model it leaves and says what it recognised."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort
from onnx import TensorProto

from benchmarks.idioms import in_operators

Idioms = Mapping[str, int]
TYPES = ("bert", "gpt2", "bart", "t5", "clip", "unet", "vae", "mmdit")
"""Model types of ONNX Runtime's transformer optimizer that stand for its different classes. Not here: types of a class
that is here already (vit, swin, tnlr, qwen3), conformer and sam2, which on a third of the corpus never found more, and
phi, which raises an error on every model that has no local function."""


def onnx_runtime(model: Path, output: Path) -> Idioms:
    """All of ONNX Runtime's graph optimizations but those of the memory layout, on the CPU."""
    if not _optimized(model, output, ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED):
        # A type that ONNX Runtime cannot compute in: nothing is fused, and what the exporter wrote stays.
        output.write_bytes(model.read_bytes())
    return in_operators(onnx.load(output))


def transformer_optimizer(model: Path, output: Path, is_right: Callable[[Path], bool]) -> Idioms:
    """ONNX Runtime's transformer optimizer, the model type that finds most; of equals the first whose numbers are
    right. Raises the last type's error if none comes through."""
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_by_fusion

    logging.disable(logging.CRITICAL)
    basic = output.with_suffix(".basic.onnx")
    # As `optimize_model` does at its default level, whose own way there needs torch. On the CPU the level would
    # surround half-precision operators with casts.
    if _is_reduced(model) or not _optimized(
        model, basic, ort.GraphOptimizationLevel.ORT_ENABLE_BASIC, disabled_optimizers=["ConstantSharing"]
    ):
        basic = model
    found: dict[str, Counter[str]] = {}
    errors = []
    for kind in TYPES:
        try:
            optimized = optimize_by_fusion(onnx.load(basic), kind, optimization_options=FusionOptions(kind))
        except Exception as error:  # the type does not fit the model
            errors.append(error)
            continue
        found[kind] = in_operators(optimized.model)
        optimized.save_model_to_file(str(output.with_suffix(f".{kind}.onnx")))
    if not found:
        raise errors[-1]
    most = max(c.total() for c in found.values())
    best = [kind for kind, c in found.items() if c.total() == most]
    right = (kind for kind in best if is_right(output.with_suffix(f".{kind}.onnx")))
    kind = next(right, best[0])
    output.with_suffix(f".{kind}.onnx").rename(output)
    return found[kind]


def onnxscript_fusions(model: Path, output: Path) -> Idioms:
    """onnxscript's fusions for ONNX Runtime. An instance that it reports to have fused and puts back because no larger
    fusion took it counts."""
    import onnx_ir as ir
    from onnxscript.rewriter.ort_fusions import optimize_for_ort

    optimized, fused = optimize_for_ort(ir.load(model))
    ir.save(optimized, output)
    found: dict[str, Any] = dict(in_operators(onnx.load(output)))
    for idiom, fusion in (("rope", "rotary_embedding"), ("attention", "sdpa"), ("rmsnorm", "rms_normalization")):
        found[idiom] = max(found.get(idiom, 0), fused[fusion])
    return found


def _optimized(model: Path, output: Path, level: ort.GraphOptimizationLevel, **settings: Any) -> bool:
    """Write the model as ONNX Runtime optimizes it at `level`; whether it could."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(output)
    try:
        ort.InferenceSession(model, options, providers=["CPUExecutionProvider"], **settings)
    except Exception:  # ONNX Runtime's errors have no base class of their own
        return False
    return True


def _is_reduced(model: Path) -> bool:
    """Whether weights are in half precision."""
    weights = onnx.load(model, load_external_data=False).graph.initializer
    return any(w.data_type in (TensorProto.FLOAT16, TensorProto.BFLOAT16) for w in weights)
