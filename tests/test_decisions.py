"""Decisions of an earlier run, done again: the same files, and nothing measured; and sizes that are fixed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import fusion_cli
from fusion_cli.errors import FusionError
from fusion_cli.measured import OutputCheck
from fusion_cli.report import Report
from fusion_cli.verify import choice, rollback
from tests.helpers.timings import measured
from tests.test_pipeline import small_layer


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    path = tmp_path / "layer.onnx"
    onnx.save(small_layer(), path)
    return path


def optimize(model: Path, output: Path, target: str = "cpu", **options: object) -> Report:
    return fusion_cli.optimize(model, output, targets=[target], **options)


def files(output: Path) -> dict[str, bytes]:
    """All that was written, but for the reports, which tell times."""
    folder = output.with_suffix(".fusion")
    paths = [output, *(p for p in folder.rglob("*") if p.is_file() and p.stem != "report")]
    return {str(p.relative_to(output.parent)): p.read_bytes() for p in paths}


US: dict[str, Callable[[str, frozenset[str]], float]] = {
    "kernels": lambda model, rules: {"original": 100, "simplified": 90}.get(model, 50),
    "one rule's": lambda model, rules: {"original": 100, "simplified": 90}.get(
        model, 120 if "TransformerLayer" in rules else 50
    ),
    "simplified": lambda model, rules: {"original": 100, "simplified": 50}.get(model, 70),
    "original": lambda model, rules: {"original": 40, "simplified": 50}.get(model, 70),
}


@pytest.mark.parametrize("name", US)
def test_the_same_is_written_and_nothing_is_timed(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.setattr(choice, "measure", measured(US[name]))
    monkeypatch.setattr(rollback, "_OPS_SECONDS", 0.0)
    first = optimize(layer, tmp_path / "a" / "out.onnx")

    def nothing(*_: object, **__: object) -> None:
        raise AssertionError("timed")

    monkeypatch.setattr(choice, "measure", nothing)
    monkeypatch.setattr(rollback, "_OPS_SECONDS", 10.0)
    monkeypatch.setattr("fusion_cli.sessions.process.RemoteRunner.time_against", nothing)
    report = tmp_path / "a" / "out.fusion" / "report.json"
    again = optimize(layer, tmp_path / "b" / "out.onnx", "portable", decisions=report)
    assert files(tmp_path / "a" / "out.onnx") == files(tmp_path / "b" / "out.onnx")
    assert first.choice is not None
    assert again.choice is not None
    assert (again.choice.chosen, again.choice.why) == (first.choice.chosen, f"as {report} decided")
    assert again.targets == ("cpu",)
    assert {f.name for f in again.fusions} == {f.name for f in first.fusions}
    if name != "original":
        assert again.verification is not None
        assert again.verification.outputs


@pytest.mark.parametrize("kept", [True, False])
def test_the_order_in_which_kernels_were_given_up_does_not_show(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """<ir_version: 9, opset_import: ["": 17]> g (float[n, 64, 256] x, float[256] s) => (float[n, 64, 256] y) {
        two = Constant <value = float {2.0}> ()
        a = Sin (x) b = Mul (a, two) c = Tanh (b) d = Mul (c, x) h = Softmax <axis = 1> (d)
        e = Cos (h) f = Mul (e, two) k = LayerNormalization <axis = -1> (f, s) y = Add (k, h)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    timed: list[frozenset[str]] = []

    def us(model: str, rules: frozenset[str]) -> float:
        """Those of the later rule do not help, and then, though they did alone, those of the earlier may not."""
        timed.append(rules)
        helps = rules == {"PointwiseRegion"} and (kept or timed.count(rules) == 1)
        return {"original": 100.0, "simplified": 90.0}.get(model, 50.0 if helps else 120.0)

    monkeypatch.setattr(choice, "measure", measured(us))
    monkeypatch.setattr(rollback, "_OPS_SECONDS", 0.0)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    report = optimize(tmp_path / "m.onnx", tmp_path / "a" / "out.onnx")
    given_up = [r.rule for r in report.rejected if r.stage == "verify"]
    assert given_up == (["RowwiseRegion"] if kept else ["RowwiseRegion", "PointwiseRegion"])
    decided = tmp_path / "a" / "out.fusion" / "report.json"
    again = optimize(tmp_path / "m.onnx", tmp_path / "b" / "out.onnx", decisions=decided)
    assert files(tmp_path / "a" / "out.onnx") == files(tmp_path / "b" / "out.onnx")
    assert again.summary == report.summary


FUSION = {
    "name": "", "rule": "R", "kernel": "auto", "call": "", "targets": ["cpu"], "nodes": [], "stages": [],
    "predicted": {}, "measured": [], "schedules": {},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("not json", "cannot be read as a report"),
        ({"schema": 1}, "no report of this version's schema"),
        ({"fusions": [{"name": "Gone_1"}]}, "the report is damaged"),
        ({"output": None}, "no report of a model that was written"),
        ({"model_sha256": "0"}, "the report is of another model"),
        ({"versions": {"fusion-cli": "0"}}, "made by fusion-cli 0"),
        ({"fusions": [{**FUSION, "name": "Gone_1"}]}, "operator Gone_1 is not found in this model"),
    ],
)
def test_decisions_that_do_not_fit_are_errors(
    layer: Path, tmp_path: Path, changed: str | dict[str, object], message: str
) -> None:
    optimize(layer, tmp_path / "out.onnx", "portable", verify=False)
    report = tmp_path / "out.fusion" / "report.json"
    is_text = isinstance(changed, str)
    report.write_text(changed if is_text else json.dumps({**json.loads(report.read_text()), **changed}))
    with pytest.raises(FusionError, match=message):
        optimize(layer, tmp_path / "again.onnx", "portable", decisions=report)
    assert not (tmp_path / "again.onnx").exists()


def test_numbers_that_do_not_hold_here_are_an_error(
    layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimize(layer, tmp_path / "out.onnx", force=True)
    monkeypatch.setattr("fusion_cli.verify.ops.compare", lambda *_: [OutputCheck("y", 0.5, 1e-3)])
    with pytest.raises(FusionError, match="leave --decisions out"):
        optimize(layer, tmp_path / "again.onnx", force=True, decisions=tmp_path / "out.fusion" / "report.json")
    assert not (tmp_path / "again.onnx").exists()


def test_a_size_may_be_fixed_in_the_model_that_is_written(layer: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    report = optimize(layer, out, "portable", fixed_dims={"seq": 7})
    (value,) = onnx.load(out).graph.input
    assert [d.dim_value or d.dim_param for d in value.type.tensor_type.shape.dim] == ["batch", 7, 64]
    assert report.verification is not None
    assert {sizes["x"][1] for sizes in report.verification.sizes} == {7}
    x = np.random.default_rng(0).standard_normal((3, 7, 64)).astype(np.float32)
    found, expected = (ort.InferenceSession(p).run(None, {"x": x})[0] for p in (out, layer))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_fixed_model_is_written_also_where_the_original_is_as_fast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 4] y) { y = Relu (x) }'
    )
    onnx.save(model, tmp_path / "m.onnx")
    monkeypatch.setattr(choice, "measure", measured(lambda model, _: {"original": 40}.get(model, 50)))
    optimize(tmp_path / "m.onnx", tmp_path / "out.onnx", "portable", fixed_dims={"n": 3})
    graph = onnx.load(tmp_path / "out.onnx").graph
    for value in (*graph.input, *graph.output):
        assert [d.dim_value for d in value.type.tensor_type.shape.dim] == [3, 4]


def test_a_fixed_size_that_the_model_has_not_is_an_error(layer: Path, tmp_path: Path) -> None:
    with pytest.raises(FusionError, match="no size 'sec', which --fix-dim gives"):
        optimize(layer, tmp_path / "out.onnx", fixed_dims={"sec": 7})
