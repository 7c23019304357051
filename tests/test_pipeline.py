"""The pipeline end to end on the CPU: what is written, that it is right, and what happens when something is not."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import fusion_cli
from fusion_cli import produce
from fusion_cli.errors import FusionError
from fusion_cli.report import Report
from fusion_cli.verify import choice
from tests.helpers.graphs import RNG, parse
from tests.helpers.timings import measured

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
    assert "TransformerLayer" in {f.rule for f in report.fusions}
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
    attention = next(f for f in saved["fusions"] if f["rule"] == "TransformerLayer")
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
    (data,) = tmp_path.glob("fused.onnx-*.data")
    assert data.stat().st_size > 50_000
    assert out.stat().st_size < 50_000
    np.testing.assert_allclose(outputs(stock(out))[0], outputs(stock(path))[0], rtol=1e-4, atol=1e-4)


def test_weights_that_the_model_is_read_from_are_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "layer.onnx"
    onnx.save(small_layer(), path, save_as_external_data=True, location="fused.onnx.data", size_threshold=64)
    before = {p: p.read_bytes() for p in tmp_path.iterdir()}
    for _ in range(2):
        fuse(path, tmp_path / "fused.onnx", targets=["portable"])
    assert {p: p.read_bytes() for p in before} == before
    assert len(list(tmp_path.glob("fused.onnx-*.data"))) == 1


def test_portable_builds_nothing_and_loads_in_stock_onnxruntime(layer: Path, tmp_path: Path) -> None:
    out = tmp_path / "fused.onnx"
    report = fuse(layer, out, targets=["portable"])
    assert report.fusions
    assert not report.libraries
    assert not report.sources
    np.testing.assert_allclose(outputs(stock(out))[0], outputs(stock(layer))[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["output-0_dim0", "batch size (N)", "7", "-1", "seq/2*", 'a"b'])
def test_the_name_of_a_size_may_be_anything(layer: Path, tmp_path: Path, name: str) -> None:
    """TorchScript names sizes after outputs, and these may be called anything."""
    plain = fusion_cli.optimize(layer, tmp_path / "plain.onnx", targets=["portable"], dims={"seq": 9})
    model = onnx.load(layer)
    dims = [v.type.tensor_type.shape.dim[1] for v in (*model.graph.input, *model.graph.output)]
    for dim in dims:
        dim.dim_param = name
    onnx.save(model, tmp_path / "named.onnx")
    report = fusion_cli.optimize(tmp_path / "named.onnx", tmp_path / "fused.onnx", targets=["portable"], dims={name: 9})
    assert (report.idioms, report.summary) == (plain.idioms, plain.summary)
    assert plain.summary != fusion_cli.optimize(layer, None, targets=["portable"], dims={"seq": 5}).summary
    fused = onnx.load(tmp_path / "fused.onnx").graph
    assert [v.type.tensor_type.shape.dim[1].dim_param for v in (*fused.input, *fused.output)] == [name, name]


def test_a_fused_model_is_optimized_anew(layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = fuse(layer, tmp_path / "fused.onnx")
    again = fuse(tmp_path / "fused.onnx", tmp_path / "again.onnx")
    assert {f.name for f in again.fusions} == {f.name for f in first.fusions}
    assert again.notes[0].startswith("optimized by fusion-cli already")
    assert (tmp_path / "again.fusion" / "report.json").is_file()
    # What had kernels is no choice: in its place that without.
    monkeypatch.setattr(choice, "measure", measured(lambda model, rules: 40.0 if model == "original" else 50.0))
    least = fusion_cli.optimize(tmp_path / "fused.onnx", tmp_path / "least.onnx", targets=["cpu"])
    assert least.choice is not None
    assert least.choice.chosen == "simplified"
    assert not onnx.load(tmp_path / "least.onnx").functions


def test_metadata_alone_do_not_keep_a_model_from_being_written(layer: Path, tmp_path: Path) -> None:
    model = onnx.load(layer)
    onnx.helper.set_model_props(model, {"fusion.version": "9", "fusion.bundle": "layer.fusion"})
    onnx.save(model, layer)
    assert fuse(layer, tmp_path / "fused.onnx", targets=["portable"]).fusions
    assert (tmp_path / "fused.onnx").is_file()


def test_sizes_that_were_made_up_are_those_at_which_the_model_ran(tmp_path: Path) -> None:
    """A table of 64 positions: 128, which are likelier, do not go with it."""
    model = parse(
        """g (float[1, seq, 4] x) => (float[1, seq, 4] y) <int64[1] zero = {0}, int64[1] one = {1}> {
            n = Shape <start = 1, end = 2> (x) rows = Slice (table, zero, n, one) a = Add (x, rows) y = Relu (a)
        }"""
    )
    model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 64, 4), np.float32), "table"))
    onnx.save(model, tmp_path / "m.onnx")
    ran = fusion_cli.optimize(tmp_path / "m.onnx", tmp_path / "o.onnx", targets=["portable"])
    told = fusion_cli.optimize(tmp_path / "m.onnx", tmp_path / "p.onnx", targets=["portable"], verify=False)
    assert (ran.assumed, told.assumed) == ({"seq": 64}, {"seq": 128})


def test_a_dry_run_writes_nothing(layer: Path, tmp_path: Path) -> None:
    report = fuse(layer, tmp_path / "fused.onnx", dry_run=True)
    assert report.fusions
    assert {p.name for p in tmp_path.iterdir()} == {"layer.onnx"}


def test_without_a_compiler_sources_are_written_and_the_model_is_right(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(produce, "find_compiler", lambda target: None)
    out = tmp_path / "fused.onnx"
    report = fuse(layer, out)
    assert not report.libraries
    assert report.sources
    assert any("no compiler for cpu" in note for note in report.notes)
    assert list((tmp_path / "fused.fusion" / "src" / "cpu").glob("TransformerLayer_*.cc"))
    np.testing.assert_allclose(outputs(stock(out))[0], outputs(stock(layer))[0], rtol=1e-5, atol=1e-5)


def test_what_was_there_before_survives_a_failure(layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "fused.onnx"
    fuse(layer, out)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def fail(*_: object) -> None:
        raise FusionError("the disk is full")

    monkeypatch.setattr(produce, "save_model", fail)
    with pytest.raises(FusionError, match="disk is full"):
        fuse(layer, out)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_an_output_folder_that_does_not_exist(layer: Path, tmp_path: Path) -> None:
    with pytest.raises(FusionError, match="no such folder"):
        fuse(layer, tmp_path / "nowhere" / "fused.onnx")


def test_a_layer_that_onnx_runtime_has_optimized_is_fused_as_it_was_exported(layer: Path, tmp_path: Path) -> None:
    optimized, out = tmp_path / "optimized.onnx", tmp_path / "fused.onnx"
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(optimized)
    ort.InferenceSession(layer, options, providers=["CPUExecutionProvider"])
    contributed = {n.op_type for n in onnx.load(optimized).graph.node if n.domain == "com.microsoft"}
    assert contributed >= {"FusedMatMul", "QuickGelu"}
    report = fuse(optimized, out)
    (whole,) = (f for f in report.fusions if f.rule == "TransformerLayer")
    assert any("Gelu" in name for name in whole.nodes)
    fused = fusion_cli.session(out, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(outputs(fused)[0], outputs(stock(layer))[0], rtol=1e-4, atol=1e-4)


def test_an_output_may_be_called_as_the_file_that_is_checked_once_was(layer: Path, tmp_path: Path) -> None:
    fuse(layer, tmp_path / "weightless.onnx", targets=["portable"])
    assert {p.name for p in tmp_path.iterdir()} == {"layer.onnx", "weightless.onnx", "weightless.fusion"}


NORM = """
g (float[rows, 32] x) => (float[rows, 32] y) <float two = {2.0}, float eps = {0.1}> {
    m = ReduceMean <axes = [-1]> (x) d = Sub (SUB) s = Pow (POW) v = ReduceMean <axes = [-1]> (s)
    e = Add (v, eps) r = Sqrt (e) n = Div (d, r) g = Mul (n, gamma) y = Add (g, beta)
}"""


@pytest.mark.parametrize(("sub", "power"), [("m, x", "d, two"), ("x, m", "two, d")])
def test_a_norm_that_onnx_runtime_optimizes_into_another_is_fused(tmp_path: Path, sub: str, power: str) -> None:
    """ONNX Runtime takes both for LayerNormalization, whatever the order of the operands."""
    model, out = tmp_path / "norm.onnx", tmp_path / "out.onnx"
    proto = parse(NORM.replace("SUB", sub).replace("POW", power), {"gamma": (32,), "beta": (32,)})
    onnx.save(proto, model)
    report = fuse(model, out)
    assert [(f.rule, f.targets) for f in report.fusions] == [("RowwiseRegion", ("cpu",))]
    assert [r for r in report.rejected if r.stage == "verify"] == []
    assert report.verification is not None
    assert report.verification.ok
    x = RNG.normal(size=(5, 32))
    gamma, beta = (onnx.numpy_helper.to_array(t).astype(np.float64) for t in proto.graph.initializer[-2:])
    d = (x - x.mean(-1, keepdims=True)) * (-1 if sub == "m, x" else 1)
    variance = (d**2 if power == "d, two" else 2**d).mean(-1, keepdims=True)
    expected = d / np.sqrt(variance + 0.1) * gamma + beta
    found = fusion_cli.session(out, providers=["CPUExecutionProvider"]).run(None, {"x": x.astype(np.float32)})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert np.abs(stock(model).run(None, {"x": x.astype(np.float32)})[0] - expected).max() > 0.1


def stem(tmp_path: Path) -> Path:
    text = """g (float[n, 4, 9, 9] x) => (float[n, 8, 7, 7] y) { c = Conv (x, w) m = Mul (c, s) y = Add (m, t) }"""
    path = tmp_path / "stem.onnx"
    onnx.save(parse(text, {"w": (8, 4, 3, 3), "s": (8, 1, 1), "t": (8, 1, 1)}), path)
    return path


def test_a_model_in_which_nothing_is_fused_is_verified_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = fuse(stem(tmp_path), tmp_path / "out.onnx", targets=["portable"], opt_level=0)
    assert [(r.rule, r.places) for r in report.algebra] == [("ConvAffine", 1)]
    assert not report.fusions
    assert report.verification is not None
    assert report.verification.ok
    assert [n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node] == ["Conv"]

    monkeypatch.setattr("fusion_cli.simplify.algebra.affine.Affine.then", lambda _, later: later)
    with pytest.raises(FusionError, match="differs by"):
        fuse(stem(tmp_path), tmp_path / "wrong.onnx", targets=["portable"], opt_level=0)
    assert not (tmp_path / "wrong.onnx").exists()


def test_algebra_can_be_left_out(tmp_path: Path) -> None:
    report = fuse(stem(tmp_path), tmp_path / "out.onnx", targets=["portable"], opt_level=0, algebra=False)
    assert not report.algebra
    assert [n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node] == ["Conv", "Mul", "Add"]


def test_viewers_are_told_what_calls_stand_for_and_what_functions_are(layer: Path, tmp_path: Path) -> None:
    rules = ["AttentionFFN", "HorizontalLinear"]
    report = fuse(layer, tmp_path / "fused.onnx", targets=["portable"], rules=rules)
    written = onnx.load(tmp_path / "fused.onnx")
    calls = {node.name: node for node in written.graph.node if node.domain == "fusion"}
    functions = {function.name: function for function in written.functions}
    for fusion in report.fusions:
        assert calls[fusion.call].doc_string.startswith(f"In place of {fusion.nodes[0]}")
        assert functions[fusion.name].doc_string.startswith(f"A fusion of the rule {fusion.rule}; its kernels: ")
    assert len({f.doc_string for f in written.functions}) > 1
