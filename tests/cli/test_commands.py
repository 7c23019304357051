"""The commands other than `optimize` doing their work, their options from a file, and their completion."""

from __future__ import annotations

import io
import json
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from rich.console import Console

from fusion_cli.cli import main
from tests.helpers.cli_helpers import call, needs_compiler, stdout_json


@needs_compiler
def test_verify_compares_every_output(model: Path, fused: Path) -> None:
    result = stdout_json("verify", model, fused, "--json")
    assert result["ok"] is True
    assert [o["output"] for o in result["outputs"]] == ["y"]
    assert "ok       y: largest error" in call("verify", model, fused, "--dim", "seq=5").stdout


def test_verify_ends_with_3_when_numbers_differ(folder: Path, model: Path) -> None:
    proto = onnx.load(model)
    array = onnx.numpy_helper.to_array(proto.graph.initializer[0]) * np.float32(1.5)
    proto.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(array, proto.graph.initializer[0].name))
    other = folder / "other.onnx"
    onnx.save(proto, other)
    result = call("verify", model, other)
    assert result.exit_code == 3
    assert "DIFFERS  y" in result.stdout
    assert "error: " in result.stderr
    machine = call("verify", model, other, "--json")
    assert machine.exit_code == 3
    assert json.loads(machine.stdout)["ok"] is False
    assert "error: " in machine.stderr


@needs_compiler
def test_bench_times_both_in_turn(model: Path, fused: Path) -> None:
    result = stdout_json("bench", model, fused, "--seconds", "0.05", "--dim", "batch=3", "--json")
    assert result["a_us"] > 0
    assert result["b_us"] > 0
    assert result["ratio"] == pytest.approx(result["a_us"] / result["b_us"])
    assert result["shapes"]["x"][0] == 3
    assert 0 < result["b_percentiles"]["p50"] <= result["b_percentiles"]["p90"] <= result["b_percentiles"]["p99"]
    alone = call("bench", fused, "--seconds", "0.05").stdout
    assert "runs/s" in alone
    assert "(stock)" in alone
    assert "(its libraries)" in alone


def test_bench_without_the_provider_says_so(model: Path) -> None:
    import onnxruntime

    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this ONNX Runtime has the CUDA provider")
    result = call("bench", model, "--provider", "cuda")
    assert result.exit_code == 1
    assert "no CUDAExecutionProvider here" in result.stderr


def test_explain_narrows_to_a_rule_and_to_a_node(model: Path) -> None:
    everything = stdout_json("explain", model, "--target", "cpu", "--json")
    rule = everything["rejected"][0]["rule"]
    some = stdout_json("explain", model, "--target", "cpu", "--rule", rule, "--json")
    assert some["rejected"]
    assert all(rule in (r["rule"], *r.get("part_of", ())) for r in some["rejected"] + some["fusions"])
    node = everything["rejected"][0]["node"]
    some = stdout_json("explain", model, "--target", "cpu", "--node", node, "--json")
    assert some["rejected"]
    assert all(node in r["nodes"] for r in some["rejected"])
    text = call("explain", model, "--target", "cpu", "--node", node).stdout
    assert "expected " in text
    assert "found " in text
    assert 3 <= len(text.splitlines()) <= 10


@needs_compiler
def test_explain_tells_what_a_run_made_of_a_model(model: Path, fused: Path) -> None:
    bundle = fused.with_suffix(".fusion")
    told = call("explain", fused)
    assert told.exit_code == 0, told.output
    assert told.stdout.startswith("4.00x on this CPU at x [1,128,32]\n")  # the times are made up
    assert "error " in told.stdout
    assert call("explain", bundle / "report.json").stdout == told.stdout
    assert stdout_json("explain", fused, "--json")["choice"]["chosen"] == "kernels"
    node = call("explain", bundle / "report.json", "--node", "MatMul/h").stdout
    assert node.splitlines()[0] == "MatMul MatMul/h: fused"
    assert len(node.splitlines()) <= 10


@needs_compiler
def test_explain_of_a_report_refuses_what_cannot_be_changed_any_more(fused: Path, tmp_path: Path) -> None:
    result = call("explain", fused, "--target", "cpu")
    assert result.exit_code == 2
    assert "--target is for models" in result.stderr
    result = call("explain", fused.with_suffix(".fusion") / "report.json", "--node", "MatMul/hh")
    assert result.exit_code == 1
    assert "did you mean 'MatMul/h'?" in result.stderr
    (tmp_path / "report.json").write_text("[]")
    assert call("explain", tmp_path / "report.json").exit_code == 1


def test_explain_tells_a_wrong_name_from_nothing_to_say(model: Path) -> None:
    result = call("explain", model, "--rule", "LayerNormLinaer")
    assert result.exit_code == 1
    assert "did you mean 'LayerNormLinear'?" in result.stderr
    result = call("explain", model, "--node", "Sigmoid/gat")
    assert result.exit_code == 1
    assert "did you mean 'Sigmoid/gate'?" in result.stderr
    assert call("explain", model, "--rule", "ConvBatchNormRelu").exit_code == 0


def test_rules_list_show_and_lint(tmp_path: Path) -> None:
    listed = stdout_json("rules", "list", "--json")
    names = {r["name"] for r in listed if r["kind"] == "fusion"}
    assert {"LayerNormLinear", "AttentionFFN", "PointwiseRegion"} <= names
    assert "LayerNormLinear" in call("rules", "list").stdout
    assert "LayerNormLinear (" in call("rules", "show", "LayerNormLinear").stdout
    result = call("rules", "show", "LayerNormLiner")
    assert result.exit_code == 1
    assert "did you mean 'LayerNormLinear'?" in result.stderr
    assert "no fault found" in call("rules", "lint").stdout
    header = '<domain: "fusion.rules", opset_import: ["": 17, "pattern": 1]>'
    (tmp_path / "bad.rule").write_text(f"{header}\nBad (x) => (y) {{ y = Reluu (x) }}")
    for path in (tmp_path, tmp_path / "bad.rule"):
        result = call("rules", "lint", path)
        assert result.exit_code == 1
        assert "bad.rule:2:22:" in result.stdout
        assert "did you mean 'Relu'?" in result.stdout
    (tmp_path / "bad.rule").write_text(f"{header}\nBad (x) => (y) {{ y = pattern.Sillu (x) }}")
    result = call("rules", "lint", tmp_path / "bad.rule")
    assert "did you mean 'Silu'?" in result.stdout


def test_devices_list_and_show() -> None:
    names = [d["name"] for d in stdout_json("devices", "list", "--json")]
    assert "cpu" in names
    for name in names:
        assert name in call("devices", "list").stdout
        assert "bandwidth_gbs" in call("devices", "show", name).stdout
    result = call("devices", "show", "h20")
    assert result.exit_code == 1
    assert "did you mean 'h200'?" in result.stderr


def test_doctor_tells_what_is_there() -> None:
    findings = {f["name"]: f for f in stdout_json("doctor", "--json")}
    assert {"python", "onnx", "onnxruntime", "C++ compiler", "nvcc", "GPU", "build cache", "rules"} <= set(findings)
    assert findings["python"]["ok"] is True
    assert findings["rules"]["ok"] is True
    assert "build cache" in call("doctor").stdout


def test_doctor_fails_without_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    doctor = import_module("fusion_cli.cli.doctor")
    monkeypatch.setattr(doctor, "versions", lambda: {"onnx": "1.0", "onnxscript": "1.0", "onnxruntime": "1.0"})
    result = call("doctor")
    assert result.exit_code == 1
    assert "pip install onnx-ir" in result.stdout


def test_shells_complete_commands_and_options() -> None:
    def offered(line: str, word: int) -> set[str]:
        env = {"_FUSION_CLI_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(word)}
        result = CliRunner().invoke(main, [], prog_name="fusion-cli", env=env)
        return {entry.split(",")[-1] for entry in result.output.split()}

    assert offered("fusion-cli ch", 1) == {"check"}
    assert {"--max-error", "--max-slowdown"} <= offered("fusion-cli check --max", 2)
    assert offered("fusion-cli optimize --target sm_9", 3) == {"sm_90a"}


@pytest.mark.parametrize(
    ("name", "head"), [("fusion.toml", ""), ("pyproject.toml", '[project]\nname = "x"\n[tool.fusion-cli]\n')]
)
def test_options_may_stand_in_a_file_and_the_command_line_goes_before(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, head: str
) -> None:
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    options = 'target = ["portable"]\ndim = ["batch=3"]\nseconds = 0.05\nno-algebra = true\n'
    (tmp_path / name).write_text(head + options)
    report = stdout_json("optimize", model, "--dry-run", "--json")
    assert (report["targets"], "batch" in report["assumed"]) == (["portable"], False)
    assert stdout_json("optimize", model, "--dry-run", "--json", "--target", "cpu")["targets"] == ["cpu"]
    assert stdout_json("bench", model, "--json")["shapes"]["x"][0] == 3
    (tmp_path / name).write_text(head + 'targe = ["cpu"]\n')
    result = call("optimize", model, "--dry-run")
    assert result.exit_code == 1
    assert f"{name}: no option 'targe' (did you mean 'target'?)" in result.stderr
    (tmp_path / name).write_text("[[")
    assert call("doctor").exit_code == 1


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("doctor", ("doctor",)),
        ("models", ("bench", "m.onnx", "--seconds", "0")),
        ("inspect_models", ("diff", "m.onnx", "f.onnx")),
    ],
)
def test_lines_break_between_words_on_a_narrow_terminal(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(model, "m.onnx")
    if "f.onnx" in arguments:
        assert call("optimize", "m.onnx", "-o", "f.onnx", "--target", "portable", "--force", "-q").exit_code == 0
    wide = call(*arguments).stdout.split()
    console = Console(width=50, record=True, force_terminal=True, file=io.StringIO())
    monkeypatch.setattr(f"fusion_cli.cli.{module}.stdout", lambda: console)
    assert call(*arguments).exit_code == 0
    text = console.export_text()
    assert max(len(line.rstrip()) for line in text.splitlines() if " " in line.strip()) <= 50
    assert len(text.splitlines()) > 3
    assert text.split()[:5] == wide[:5]
