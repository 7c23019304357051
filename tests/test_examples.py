"""The bundled examples: real exports once restored."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from examples import weights
from examples.demo import EXAMPLES, SHOWN_REASONS, Outcome, table
from fusion_cli.pipeline import explain
from fusion_cli.types import Options
from tests.helpers.timings import timing

SHAPES = {
    "transformer_ts17": (2, 9, 768),
    "transformer_dyn23": (2, 9, 768),
    "transformer_ts17_fp16_d768": (1, 5, 768),
    "transformer_dyn23_fp16_d768": (1, 5, 768),
    "conv_stack": (1, 3, 33, 40),
    "snake_block": (2, 1, 50),
}
CPU = ["CPUExecutionProvider"]


def run(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    session = ort.InferenceSession(path, providers=CPU)
    dtype = np.float16 if "float16" in session.get_inputs()[0].type else np.float32
    x = np.random.default_rng(1).standard_normal(shape).astype(dtype)
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("name", SHAPES)
def test_a_restored_example_is_valid_and_runs(name: str, tmp_path: Path) -> None:
    path = weights.restore(name, tmp_path / "model.onnx")
    onnx.checker.check_model(str(path), full_check=True)
    y = run(path, SHAPES[name])
    assert np.isfinite(y).all()
    assert y.std() > 0.01


@pytest.mark.parametrize(
    ("name", "present", "absent"),
    [
        ("transformer_ts17", {"ReduceMean": 4, "Softmax": 1, "MatMul": 8, "Sigmoid": 1}, {"LayerNormalization"}),
        ("transformer_dyn23", {"LayerNormalization": 2, "Attention": 1, "MatMul": 6}, {"Softmax", "ReduceMean"}),
        ("conv_stack", {"Conv": 5, "BatchNormalization": 5, "Relu": 5}, {"Identity"}),
    ],
)
def test_examples_are_written_as_their_exporters_write(name: str, present: dict[str, int], absent: set[str]) -> None:
    counts = Counter(n.op_type for n in onnx.load(weights.graph_path(name)).graph.node)
    assert {op: counts[op] for op in present} == present
    assert not absent & counts.keys()


def test_weights_are_the_same_every_time(tmp_path: Path) -> None:
    first, second = (weights.restore("conv_stack", tmp_path / f"{i}.onnx").read_bytes() for i in "ab")
    assert first == second


def test_stripping_keeps_what_a_recipe_needs(tmp_path: Path) -> None:
    model = weights.fill(onnx.load(weights.graph_path("conv_stack")))
    stripped = onnx.ModelProto()
    stripped.CopyFrom(model)
    weights.strip(stripped)
    assert len(stripped.SerializeToString()) < len(model.SerializeToString()) / 100
    for before, after in zip(model.graph.initializer, weights.fill(stripped).graph.initializer, strict=True):
        a, b = numpy_helper.to_array(before), numpy_helper.to_array(after)
        # The range is that of the values drawn, which a small tensor does not fill.
        np.testing.assert_allclose(a, b, rtol=0, atol=0.15 * float(np.abs(a).max()))


def test_different_initializers_get_different_values() -> None:
    model = weights.fill(onnx.load(weights.graph_path("transformer_ts17")))
    contents = [t.raw_data for t in model.graph.initializer]
    assert len(set(contents)) == len(contents)


def test_the_graphs_are_small_and_name_no_files() -> None:
    paths = sorted(weights.MODELS.glob("*.weightless.onnx"))
    assert {p.name.removesuffix(".weightless.onnx") for p in paths} >= {e.name for e in EXAMPLES}
    assert sum(p.stat().st_size for p in paths) < 200_000
    for path in paths:
        assert b".py" not in path.read_bytes()


def test_the_demo_shows_the_time_first_and_three_refusals(tmp_path: Path) -> None:
    path = weights.restore("transformer_dyn23", tmp_path / "model.onnx")
    report, _ = explain(path, Options(targets=("cpu",), dims={"batch": (1, 1), "seq": (256, 256)}))
    refusals = {(r.rule, r.code) for r in report.rejected if r.stage not in ("match", "select")}
    assert len(refusals) > SHOWN_REASONS == 3
    outcome = Outcome(report, {"y": 0.0}, timing(2000.0, 1000.0), 0.01)
    shown = table([outcome] * len(EXAMPLES))
    rows = [str(cell) for cell in shown.columns[0].cells]
    assert rows[0] == "time on this CPU"
    assert next(iter(shown.columns[1].cells)).startswith("2.00 -> 1.00 ms: 2.00 times as fast")
    told = list(shown.columns[1].cells)[rows.index("turned down")].splitlines()
    assert [" x " in line for line in told][: SHOWN_REASONS + 1] == [True] * SHOWN_REASONS + [False]
    assert told[SHOWN_REASONS] == f"{len(refusals) - SHOWN_REASONS} reasons more, in report.json"
