"""The pipeline end to end on the CPU: what is written, that it is right, and what happens when something is not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import fusion_cli
from fusion_cli import pipeline
from fusion_cli.errors import FusionError, NothingToDo
from fusion_cli.report import Report
from tests.graphs import RNG, parse

LAYER = """
g (float[batch, seq, 64] x) => (float[batch, seq, 64] y) {
    n = LayerNormalization <axis = -1> (x, gamma, beta)
    qp = MatMul (n, wq) kp = MatMul (n, wk) vp = MatMul (n, wv)
    heads = Constant <value = int64[4] {0, 0, 4, 16}> ()
    qr = Reshape (qp, heads) kr = Reshape (kp, heads) vr = Reshape (vp, heads)
    q = Transpose <perm = [0, 2, 1, 3]> (qr) k = Transpose <perm = [0, 2, 3, 1]> (kr)
    v = Transpose <perm = [0, 2, 1, 3]> (vr)
    quarter = Constant <value = float {0.25}> ()
    s = MatMul (q, k) t = Mul (s, quarter) p = Softmax <axis = -1> (t) o = MatMul (p, v)
    ot = Transpose <perm = [0, 2, 1, 3]> (o)
    merged = Constant <value = int64[3] {0, 0, 64}> ()
    om = Reshape (ot, merged)
    a = MatMul (om, wo) ab = Add (a, bo) r = Add (ab, x)
    n2 = LayerNormalization <axis = -1> (r, gamma, beta)
    h = MatMul (n2, w1) hb = Add (h, b1) sg = Sigmoid (hb) m = Mul (hb, sg)
    f = MatMul (m, w2) fb = Add (f, b2) y = Add (fb, r)
}"""
WEIGHTS = {
    "gamma": (64,), "beta": (64,), "wq": (64, 64), "wk": (64, 64), "wv": (64, 64), "wo": (64, 64), "bo": (64,),
    "w1": (64, 96), "b1": (96,), "w2": (96, 64), "b2": (64,),
}  # fmt: skip


def small_layer() -> onnx.ModelProto:
    model = parse(LAYER, WEIGHTS)
    for tensor in model.graph.initializer:
        if len(tensor.dims) == 2:
            array = onnx.numpy_helper.to_array(tensor) * 0.1
            tensor.CopyFrom(onnx.numpy_helper.from_array(array.astype(np.float32), tensor.name))
    return model


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    path = tmp_path / "layer.onnx"
    onnx.save(small_layer(), path)
    return path


def outputs(session: ort.InferenceSession, batch: int = 2, seq: int = 7) -> list[np.ndarray]:
    x = np.random.default_rng(3).normal(size=(batch, seq, 64)).astype(np.float32)
    return session.run(None, {"x": x})


def stock(path: Path) -> ort.InferenceSession:
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"])


def fuse(model: Path, output: Path, **options: object) -> Report:
    return fusion_cli.optimize(model, output, **{"targets": ["cpu"], "force": True, **options})


def test_a_layer_is_fused_and_computes_the_same_with_and_without_its_kernels(layer: Path, tmp_path: Path) -> None:
    out = tmp_path / "fused.onnx"
    report = fuse(layer, out)
    assert "AttentionFFN" in {f.rule for f in report.fusions}
    assert report.verification is not None
    assert report.verification.ok
    assert not report.verification.skipped
    onnx.checker.check_model(out, full_check=True)
    expected = outputs(stock(layer))
    fused = fusion_cli.session(out, providers=["CPUExecutionProvider"])
    for session in (stock(out), fused):
        np.testing.assert_allclose(outputs(session)[0], expected[0], rtol=1e-4, atol=1e-4)
    for batch, seq in ((1, 1), (3, 33), (0, 5)):
        np.testing.assert_allclose(outputs(fused, batch, seq)[0], outputs(stock(layer), batch, seq)[0], atol=1e-4)


def test_the_bundle_says_what_was_done(layer: Path, tmp_path: Path) -> None:
    report = fuse(layer, tmp_path / "fused.onnx")
    bundle = tmp_path / "fused.fusion"
    saved = json.loads((bundle / "report.json").read_text())
    manifest = json.loads((bundle / "manifest.json").read_text())
    names = {op["name"] for op in manifest["ops"]}
    assert names == {f["name"] for f in saved["fusions"]} == {f.name for f in report.fusions}
    assert {path.stem for path in (bundle / "src" / "cpu").glob("*.cc")} >= names
    (library,) = manifest["libraries"]
    assert (bundle / library["path"]).is_file()
    assert set(library["ops"]) == names
    original = {n.name or f"{n.op_type}->{n.output[0]}" for n in small_layer().graph.node}
    attention = next(f for f in saved["fusions"] if f["rule"] == "AttentionFFN")
    assert len(attention["nodes"]) > 10
    assert len(original) >= len(attention["nodes"])


def test_a_second_run_compiles_nothing(layer: Path, tmp_path: Path) -> None:
    fuse(layer, tmp_path / "fused.onnx")
    report = fuse(layer, tmp_path / "again.onnx")
    assert [lib.compiled for lib in report.libraries] == [0]


def test_external_weights_stay_external(tmp_path: Path) -> None:
    path = tmp_path / "layer.onnx"
    onnx.save(small_layer(), path, save_as_external_data=True, location="layer.bin", size_threshold=64)
    out = tmp_path / "fused.onnx"
    fuse(path, out)
    assert (tmp_path / "fused.onnx.data").stat().st_size > 50_000
    assert out.stat().st_size < 50_000
    np.testing.assert_allclose(outputs(stock(out))[0], outputs(stock(path))[0], rtol=1e-4, atol=1e-4)


def test_portable_builds_nothing_and_loads_in_stock_onnxruntime(layer: Path, tmp_path: Path) -> None:
    out = tmp_path / "fused.onnx"
    report = fuse(layer, out, targets=["portable"])
    assert report.fusions
    assert not report.libraries
    assert not report.sources
    np.testing.assert_allclose(outputs(stock(out))[0], outputs(stock(layer))[0], rtol=1e-5, atol=1e-5)


def test_a_model_of_ours_is_left_alone(layer: Path, tmp_path: Path) -> None:
    out = tmp_path / "fused.onnx"
    fuse(layer, out)
    before = out.read_bytes()
    with pytest.raises(NothingToDo, match="already optimized"):
        fuse(out, out)
    assert out.read_bytes() == before


def test_a_dry_run_writes_nothing(layer: Path, tmp_path: Path) -> None:
    report = fuse(layer, tmp_path / "fused.onnx", dry_run=True)
    assert report.fusions
    assert {p.name for p in tmp_path.iterdir()} == {"layer.onnx"}


def test_without_a_compiler_sources_are_written_and_the_model_is_right(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "find_compiler", lambda target: None)
    out = tmp_path / "fused.onnx"
    report = fuse(layer, out)
    assert not report.libraries
    assert report.sources
    assert any("no compiler for cpu" in note for note in report.notes)
    assert list((tmp_path / "fused.fusion" / "src" / "cpu").glob("AttentionFFN_*.cc"))
    np.testing.assert_allclose(outputs(stock(out))[0], outputs(stock(layer))[0], rtol=1e-5, atol=1e-5)


def test_what_was_there_before_survives_a_failure(layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "fused.onnx"
    fuse(layer, out)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def fail(*_: object) -> None:
        raise FusionError("the disk is full")

    monkeypatch.setattr(pipeline, "save_model", fail)
    with pytest.raises(FusionError, match="disk is full"):
        fuse(layer, out)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_an_output_folder_that_does_not_exist(layer: Path, tmp_path: Path) -> None:
    with pytest.raises(FusionError, match="no such folder"):
        fuse(layer, tmp_path / "nowhere" / "fused.onnx")


SNAKE = """
g (float[batch, 4, time] x) => (float[batch, 4, time] y) {
    two = Constant <value_float = 2.0> ()
    ax = Mul (a, x) s = Sin (ax) q = Pow (s, two) w = Div (q, a) y = Add (x, w)
}"""


@pytest.mark.parametrize("wrong", [False, True])
def test_a_fusion_whose_numbers_differ_is_taken_back(tmp_path: Path, wrong: bool) -> None:
    rules = tmp_path / "rules"
    shutil.copytree(Path(__file__).parents[1] / "examples" / "custom_rule", rules)
    if wrong:
        template = rules / "snake.cc.jinja"
        source = template.read_text()
        assert "x[i] + sine" in source
        template.write_text(source.replace("x[i] + sine", "x[i] - sine"))
    model, out = tmp_path / "snake.onnx", tmp_path / "out.onnx"
    onnx.save(parse(SNAKE, {"a": (1, 4, 1)}), model)
    report = fuse(model, out, rules=("Snake",), rule_paths=(rules,))
    assert [f.rule for f in report.fusions] == ([] if wrong else ["Snake"])
    reasons = [(r.rule, r.code) for r in report.rejected if r.stage == "verify"]
    assert reasons == ([("Snake", "FUS401")] if wrong else [])
    x = {"x": RNG.normal(size=(3, 4, 33)).astype(np.float32)}
    fused = fusion_cli.session(out, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(fused.run(None, x)[0], stock(model).run(None, x)[0], rtol=1e-5, atol=1e-5)
