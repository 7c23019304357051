"""`fusion-cli optimize`, and the same from Python: what is written, and what is said of it."""

from __future__ import annotations

import json
from dataclasses import fields
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import fusion_cli
from fusion_cli.types import Options
from fusion_cli.verify import largest_error
from tests.helpers.cli_helpers import call, needs_compiler, spawn, stdout_json
from tests.helpers.graphs import parse
from tests.report.test_report_json import SCHEMA, problems


@needs_compiler
def test_bundle_is_whole_and_its_report_follows_the_schema(fused: Path) -> None:
    bundle = fused.with_suffix(".fusion")
    report = json.loads((bundle / "report.json").read_text("utf-8"))
    assert list(problems(report, SCHEMA)) == []
    assert report["summary"]["fusions"] >= 1
    assert report["verification"]["ok"] is True
    assert all(m["error"] <= m["tolerance"] for f in report["fusions"] for m in f["measured"])
    for source in report["sources"]:
        assert list(bundle.rglob(source["filename"])), source
    for library in report["libraries"]:
        assert (bundle / "lib" / library["path"]).is_file()
    onnx.checker.check_model(fused, full_check=True)
    written = {n.name for n in onnx.load(fused).graph.node}
    assert {f["call"] for f in report["fusions"]} <= written
    original = {"LayerNormalization/n", "MatMul/h", "Add/hb", "Sigmoid/gate", "Mul/act", "MatMul/o", "Add/y"}
    assert {n for f in report["fusions"] for n in f["nodes"]} <= original


def test_summary_says_what_was_done(model: Path, tmp_path: Path) -> None:
    result = call("optimize", model, "-o", tmp_path / "out.onnx", "--target", "portable")
    assert result.exit_code == 0
    for text in ("operators found", "candidates", "predicted ", "fused", "verification       passed", "next: "):
        assert text in result.stdout
    assert result.stderr == ""


def test_json_is_all_there_is_on_stdout(model: Path, tmp_path: Path) -> None:
    result = spawn("optimize", model, "-o", tmp_path / "out.onnx", "--target", "portable", "--json")
    assert result.returncode == 0
    assert list(problems(json.loads(result.stdout), SCHEMA)) == []
    assert result.stderr == ""


def test_synonyms(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    arguments = ("--input", model, "--output", out, "--fusion-rules", "PointwiseRegion", "--target", "portable")
    report = stdout_json("optimize", *arguments, "--json")
    assert out.is_file()
    assert {f["rule"] for f in report["fusions"]} <= {"PointwiseRegion"}


def test_dry_run_writes_nothing(model: Path, tmp_path: Path) -> None:
    report = stdout_json("optimize", model, "-o", tmp_path / "out.onnx", "--dry-run", "--force", "--json")
    assert report["output"] is None
    assert report["fusions"]
    assert list(tmp_path.iterdir()) == []


@needs_compiler
def test_what_is_optimized_already_is_written_with_its_report(fused: Path, tmp_path: Path) -> None:
    out = tmp_path / "again.onnx"
    report = stdout_json("optimize", fused, "-o", out, "--target", "cpu", "--force", "--json")
    assert report["fusions"]
    assert out.is_file()
    assert call("verify", fused, out).exit_code == 0


def test_without_a_compiler_the_first_line_says_so(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("fusion_cli.build.toolchain"), "find_cxx", lambda _: None)
    for target, why in (("auto", "on this machine"), ("cpu", "for cpu")):
        result = call("optimize", model, "-o", tmp_path / "out.onnx", "--target", target, "--force", "-q")
        assert result.exit_code == 0
        assert result.stdout.startswith(f"NO KERNELS, for there is no compiler {why}; ")
    result = call("optimize", model, "-o", tmp_path / "out.onnx", "--target", "portable", "-q")
    assert "NO KERNELS" not in result.stdout  # which was asked for


def test_without_a_compiler_sources_are_written_and_the_advice_given(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("fusion_cli.build.toolchain"), "find_cxx", lambda _: None)
    out = tmp_path / "out.onnx"
    result = call("optimize", model, "-o", out, "--target", "cpu", "--force")
    assert result.exit_code == 0
    assert "note: no compiler for cpu" in result.stdout
    assert "install" in result.stdout
    assert list((tmp_path / "out.fusion" / "src").rglob("*.cc"))
    assert call("verify", model, out).exit_code == 0


@needs_compiler
def test_weights_that_callers_could_override_can_be_assumed_constant(model: Path, tmp_path: Path) -> None:
    proto = onnx.load(model)
    for t in proto.graph.initializer:
        proto.graph.input.append(onnx.helper.make_tensor_value_info(t.name, t.data_type, t.dims))
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(proto, path)
    cautious = stdout_json("optimize", path, "-o", out, "--target", "cpu", "--force", "--json")
    assert "Linear" not in cautious["idioms"]
    assert "--assume-constant" in cautious["notes"][0]
    assert len(onnx.load(out).graph.input) == len(proto.graph.input)
    bold = stdout_json("optimize", path, "-o", out, "--target", "cpu", "--force", "--assume-constant", "all", "--json")
    assert bold["idioms"]["Linear"] == 2
    assert bold["verification"]["ok"] is True
    assert [i.name for i in onnx.load(out).graph.input] == ["x"]
    assert call("verify", path, out).exit_code == 0
    result = call("optimize", path, "-o", out, "--assume-constant", "w3")
    assert result.exit_code == 1
    assert "did you mean 'w2'" in result.stderr


@needs_compiler
def test_the_same_from_python(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    report = fusion_cli.optimize(str(model), str(out), targets=["cpu"], force=True)
    assert report.summary.fusions >= 1
    session = fusion_cli.session(out, providers=["CPUExecutionProvider"])
    stock = fusion_cli.session(model, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(3).standard_normal((3, 7, 32), dtype=np.float32)
    assert largest_error(stock.run(None, {"x": x})[0], session.run(None, {"x": x})[0]) < 1e-3


def test_options_from_python_may_be_plain_values(model: Path) -> None:
    options: dict[str, Any] = {"rules": ["PointwiseRegion"], "rule_paths": [str(model.parent)], "dims": {"batch": 4}}
    report = fusion_cli.optimize(model, targets=["cpu"], shapes={"x": [4, 8, 32]}, **options)
    assert report.output is None
    assert {f.rule for f in report.fusions} <= {"PointwiseRegion"}
    with pytest.raises(TypeError, match="optlevel"):
        fusion_cli.optimize(model, targets=["cpu"], optlevel=3)


def test_the_options_of_python_are_those_there_are() -> None:
    parameters = {name for name, p in signature(fusion_cli.optimize).parameters.items() if p.kind is p.KEYWORD_ONLY}
    assert parameters == {f.name for f in fields(Options)}


def test_a_model_in_memory_and_one_target_as_text(model: Path, tmp_path: Path) -> None:
    report = fusion_cli.optimize(onnx.load(model), tmp_path / "out.onnx", targets="portable", force=True)
    assert (report.model, report.targets) == ("a model in memory", ("portable",))
    assert (tmp_path / "out.onnx").is_file()
    session = fusion_cli.session((tmp_path / "out.onnx").read_bytes(), providers=["CPUExecutionProvider"])
    assert session.run(None, {"x": np.zeros((1, 2, 32), np.float32)})[0].shape == (1, 2, 32)


@needs_compiler
def test_a_session_takes_the_arguments_of_onnx_runtimes(fused: Path) -> None:
    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.intra_op_num_threads = 1
    session = fusion_cli.session(fused, settings, ["CPUExecutionProvider"], [{}])
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_session_options().intra_op_num_threads == 1


def test_quiet_prints_the_verdict_alone(model: Path, tmp_path: Path) -> None:
    result = call("optimize", model, "-o", tmp_path / "out.onnx", "--target", "portable", "-q")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 1


def test_a_model_with_nothing_to_fuse_is_written_all_the_same(tmp_path: Path) -> None:
    onnx.save(parse("g (float[2] x) => (float[2] y) { y = Relu (x) }"), tmp_path / "m.onnx")
    report = stdout_json("optimize", tmp_path / "m.onnx", "-o", tmp_path / "out.onnx", "--json")
    assert report["fusions"] == []
    assert (tmp_path / "out.onnx").is_file()
