"""A model that holds a fusion and its nodes, and goes by its sizes which of them runs: as a user has it made."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import fusion_cli
from fusion_cli.load import load_model
from fusion_cli.outline import inline_back, put_back
from fusion_cli.report import Report
from fusion_cli.save.stream import write_model
from fusion_cli.verify import choice
from tests.helpers.cli_helpers import call
from tests.helpers.crossing_models import BESIDE, DECODER, ENCODER, feeds, write
from tests.helpers.timings import timing

TEXTS = {"decoder": DECODER, "encoder": ENCODER}


@pytest.fixture(scope="module", params=list(TEXTS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def original(name: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp(name) / "model.onnx", TEXTS[name])


@pytest.fixture(scope="module")
def fused(original: Path) -> Path:
    output = original.with_name("fused.onnx")
    result = call("optimize", original, "-o", output, "--target", "cpu", "--no-verify")
    assert result.exit_code == 0, result.output
    return output


def guard_of(fused: Path) -> dict[str, object]:
    """What the report says of the one fusion."""
    report = json.loads((fused.with_suffix(".fusion") / "report.json").read_text())
    (fusion,) = (f for f in report["fusions"] if f["predicted"]["cpu"]["guard"])
    found: dict[str, object] = fusion["predicted"]["cpu"]["guard"]
    return found


def ran(model: Path, text: str, tokens: int, batch: int = 1) -> Collection[str]:
    """The operators that a session ran, with the kernels."""
    options = ort.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(model.with_suffix(""))
    session = fusion_cli.session(model, options, providers=["CPUExecutionProvider"])
    session.run(None, feeds(text, tokens, batch))
    trace = Path(session.end_profiling())
    found = {e["args"]["op_name"] for e in json.loads(trace.read_text()) if "op_name" in e.get("args", {})}
    trace.unlink()
    return found


def test_the_fusion_runs_on_its_side_of_the_limit_that_is_told_and_its_nodes_on_the_other(
    fused: Path, name: str
) -> None:
    guard = guard_of(fused)
    limit, is_from = guard["limit"], guard["is_from"]
    assert isinstance(limit, int)
    assert is_from == (name == "encoder")
    operator = next(f.name for f in onnx.load(fused).functions)
    at_limit, beyond = ran(fused, TEXTS[name], limit), ran(fused, TEXTS[name], limit - 1 if is_from else limit + 1)
    assert operator in at_limit
    assert "MatMul" not in at_limit
    assert operator not in beyond
    assert "MatMul" in beyond


def test_rows_are_counted_over_all_dimensions_that_they_are_made_of(tmp_path: Path) -> None:
    model = write(tmp_path / "model.onnx", DECODER)
    fused = tmp_path / "fused.onnx"
    fusion_cli.optimize(model, fused, targets="cpu", verify=False)
    assert "MatMul" not in ran(fused, DECODER, 1)
    assert "MatMul" in ran(fused, DECODER, 1, batch=2)


def test_both_sides_give_what_the_original_gives_with_kernels_and_without(
    original: Path, fused: Path, name: str
) -> None:
    provider = ["CPUExecutionProvider"]
    expected, stock = (ort.InferenceSession(m, providers=provider) for m in (original, fused))
    kernels = fusion_cli.session(fused, providers=provider)
    for tokens in (1, 2, 17, 18, 19, 64):
        given = feeds(TEXTS[name], tokens)
        for result in (stock.run(None, given), kernels.run(None, given)):
            for want, got in zip(expected.run(None, given), result, strict=True):
                np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_the_summary_the_explanation_and_the_page_say_so(fused: Path, name: str) -> None:
    said = {
        "decoder": "up to batch*sequence=1; beyond it",
        "encoder": f"from seq={guard_of(fused)['limit']} on; below it",
    }
    words = f"{said[name]} ONNX Runtime's own nodes"
    assert words in " ".join(call("explain", fused).output.split())
    assert words in " ".join((fused.with_suffix(".fusion") / "report.html").read_text().split())
    node = next(n for n in onnx.load(fused).graph.node if n.op_type == "If")
    assert said[name] in node.doc_string


def test_nodes_are_those_of_one_side(fused: Path, original: Path) -> None:
    """An If, the call in it, and what the condition takes, in place of the nodes; not those of the other branch."""
    summary = json.loads((fused.with_suffix(".fusion") / "report.json").read_text())["summary"]
    inside = lambda n: sum(len(a.g.node) for a in n.attribute if a.HasField("g"))  # noqa: E731
    proto = onnx.load(fused)
    guarded = next(n for n in proto.graph.node if n.op_type == "If")
    assert inside(guarded) > 2
    assert summary["nodes_after"] == len(proto.graph.node) + 1


def test_decisions_write_the_same_again_verified_on_both_sides(original: Path, fused: Path, tmp_path: Path) -> None:
    again = tmp_path / fused.name
    report = fusion_cli.optimize(original, again, decisions=fused.with_suffix(".fusion") / "report.json")
    assert again.read_bytes() == fused.read_bytes()
    assert report.verification is not None
    assert report.verification.ok
    guard = next(f.predicted["cpu"].guard for f in report.fusions)
    assert guard is not None
    assert {guard.holds(shapes[guard.value]) for shapes in report.verification.sizes} == {True, False}


def test_sizes_are_added_for_a_side_that_none_of_the_others_are_on(tmp_path: Path) -> None:
    """Both sizes that the encoder is tried at are above its limit."""
    report = verified(write(tmp_path / "model.onnx", ENCODER))
    assert report.verification is not None
    assert len(report.verification.sizes) == 3
    guard = next(f.predicted["cpu"].guard for f in report.fusions)
    assert guard is not None
    assert report.verification.sizes[-1]["x"][0] == guard.limit - 1


def test_a_model_that_is_slower_on_one_side_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(models: object, setting: choice.Setting) -> object:
        is_below = setting.feeds["x"].shape[0] < 18
        return timing(100.0, 100.0, 200.0 if is_below else 50.0)

    monkeypatch.setattr(choice, "measure", measure)
    model = write(tmp_path / "model.onnx", ENCODER)
    report = fusion_cli.optimize(model, tmp_path / "out.onnx", targets="cpu", remeasure=True)
    assert report.choice is not None
    assert report.choice.chosen == "original"


def test_putting_it_back_leaves_no_trace(original: Path, fused: Path, tmp_path: Path, name: str) -> None:
    """The nodes are those that they are where there never was a guard."""
    told = {"decoder": {"batch": 1, "sequence": 1}, "encoder": {"seq": 128}}[name]
    fusion_cli.optimize(original, tmp_path / "one.onnx", targets="cpu", verify=False, dims=told)
    models = load_model(fused), load_model(tmp_path / "one.onnx")
    for model in models:
        inline_back(model, lambda _: True)
    assert models[0].graph.initializers.keys() == models[1].graph.initializers.keys()
    guarded, plain = ([(n.name, n.op_type, [v.name for v in n.outputs]) for n in m.graph] for m in models)
    assert guarded == plain


@pytest.mark.parametrize("kept", ["LayerNormLinear", "PointwiseRegion"])
def test_names_stay_apart_where_one_of_two_fusions_is_put_back(tmp_path: Path, kept: str) -> None:
    """Both have values of the same names inside."""
    original = write(tmp_path / "model.onnx", BESIDE)
    fusion_cli.optimize(original, tmp_path / "fused.onnx", targets="cpu", verify=False)
    model = load_model(tmp_path / "fused.onnx")
    assert {f.name.partition("_")[0] for f in model.functions.values()} == {"LayerNormLinear", "PointwiseRegion"}
    put_back(model, lambda name: not name.startswith(kept))
    write_model(model, tmp_path / "fewer.onnx")
    ort.InferenceSession(tmp_path / "fewer.onnx", providers=["CPUExecutionProvider"])
    assert any(n.op_type == "If" for n in model.graph) == (kept == "LayerNormLinear")


def test_what_was_optimized_is_optimized_anew(fused: Path, tmp_path: Path) -> None:
    report = fusion_cli.optimize(fused, tmp_path / "anew.onnx", targets="cpu", verify=False)
    assert [n.op_type for n in onnx.load(tmp_path / "anew.onnx").graph.node].count("If") == 1
    assert sum(f.predicted["cpu"].guard is not None for f in report.fusions) == 1


def verified(model: Path) -> Report:
    """Optimized twice: as predicted, then the same again, which is verified and not timed."""
    first, second = model.with_name("first.onnx"), model.with_name("second.onnx")
    fusion_cli.optimize(model, first, targets="cpu", verify=False)
    return fusion_cli.optimize(model, second, decisions=first.with_suffix(".fusion") / "report.json")
