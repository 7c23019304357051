"""What ONNX Runtime would fuse on a CPU to its own harm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import fusion_cli
from tests.helpers.graphs import parse

WEIGHTS = {"g": (64,), "b": (64,)}
NORM = "y = LayerNormalization <axis = -1> (a, g, b)"
X = "float[n, s, 64] x, float[n, s, 64] r"


def fused_by_onnx_runtime(path: Path) -> list[str]:
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(path.with_name("optimized.onnx"))
    ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return [n.op_type for n in onnx.load(options.optimized_model_filepath).graph.node]


def written(folder: Path, text: str, target: str = "portable", **options: object) -> tuple[Path, list[str]]:
    """The model as it was and what rules of algebra were applied to what was written beside it."""
    path = folder / "m.onnx"
    onnx.save(parse(text, WEIGHTS), path)
    report = fusion_cli.optimize(path, folder / "out.onnx", targets=[target], verify=False, **options)
    return path, [r.rule for r in report.algebra]


@pytest.mark.parametrize(
    "text",
    [
        f"g ({X}) => (float[n, s, 64] y) {{ a = Add (x, r) {NORM} }}",
        f"g ({X}) => (float[n, s, 64] z) {{ a = Add (x, r) {NORM} z = Mul (y, x) }}",
        f"g ({X}) => (float[n, s, 64] y) {{ t = Add (x, b) a = Add (t, r) {NORM} }}",
    ],
    ids=["alone", "read on", "with a bias"],
)
def test_residual_and_norm_stay_apart(tmp_path: Path, text: str) -> None:
    original, rules = written(tmp_path, text)
    assert "SkipLayerNormalization" in fused_by_onnx_runtime(original)
    assert rules == ["ResidualSum"]
    ours = fused_by_onnx_runtime(tmp_path / "out.onnx")
    assert "Sum" in ours
    assert "LayerNormalization" in ours
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((2, 5, 64)).astype(np.float32) for name in ("x", "r")}
    expected, found = (ort.InferenceSession(p).run(None, feeds)[0] for p in (original, tmp_path / "out.onnx"))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        f"g ({X}) => (float[n, s, 64] z) {{ a = Add (x, r) {NORM} z = Mul (y, a) }}",
        f"g ({X}) => (float[n, s, 64] y, float[n, s, 64] a) {{ a = Add (x, r) {NORM} }}",
        f"g (float[n, 64] x, float[n, 64] r) => (float[n, 64] y) {{ a = Add (x, r) {NORM} }}",
        f"g (float[n, s, 64] x, float[1, s, 64] r) => (float[n, s, 64] y) {{ a = Add (x, r) {NORM} }}",
        f"g (float[n, s, 64] x) => (float[n, s, 64] y) {{ a = Add (x, b) {NORM} }}",
    ],
    ids=["read twice", "an output", "two dimensions", "unequal", "a bias alone"],
)
def test_what_onnx_runtime_leaves_apart_is_left_as_it_is(tmp_path: Path, text: str) -> None:
    original, rules = written(tmp_path, text)
    assert "SkipLayerNormalization" not in fused_by_onnx_runtime(original)
    assert rules == []


@pytest.mark.parametrize(("target", "options"), [("sm_80", {}), ("portable", {"algebra": False})])
def test_it_is_left_out_for_gpus_and_where_that_is_asked_for(
    tmp_path: Path, target: str, options: dict[str, object]
) -> None:
    _, rules = written(tmp_path, f"g ({X}) => (float[n, s, 64] y) {{ a = Add (x, r) {NORM} }}", target, **options)
    assert rules == []
