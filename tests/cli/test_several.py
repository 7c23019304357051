"""Several models in one run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from fusion_cli.errors import BuildError, NumbersDiffer
from tests.helpers.cli_helpers import ROOT, call, write_model

HOW = ("--target", "portable", "--no-verify")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    (folder / "below").mkdir(parents=True)
    (folder / ".hidden").mkdir()
    write_model(folder / "a.onnx")
    write_model(folder / "below" / "b.onnx")
    write_model(folder / ".hidden" / "c.onnx")
    (folder / "bad.onnx").write_bytes(b"no model")
    (folder / "notes.txt").write_text("no model")
    return folder


def test_a_folder_is_optimized_into_a_folder_and_a_failing_model_stops_no_other(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "out"
    result = call("optimize", models, "-o", out, *HOW)
    assert result.exit_code == 1
    assert sorted(p.relative_to(out) for p in out.rglob("*.onnx")) == [Path("a.onnx"), Path("below/b.onnx")]
    assert "bad.onnx: not an ONNX model" in result.stderr
    table = result.stdout[result.stdout.index("model ") :]
    assert [line.split()[0] for line in table.splitlines()[1:4]] == [
        str(models / name) for name in ("a.onnx", "bad.onnx", "below/b.onnx")
    ]
    assert "FAILED" in table
    assert table.endswith("3 models: 2 done, 1 failed\n")


def test_what_is_done_already_is_left(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    (models / "bad.onnx").unlink()
    assert call("optimize", models, "-o", out, *HOW).exit_code == 0
    before = (out / "a.fusion" / "report.json").stat().st_mtime_ns
    (out / "below" / "b.onnx").unlink()  # as where a run was stopped
    result = call("optimize", models, "-o", out, *HOW)
    assert result.exit_code == 0
    assert "2 models: 2 done, 1 of them by an earlier run, 0 failed" in result.stdout
    assert (out / "a.fusion" / "report.json").stat().st_mtime_ns == before
    assert (out / "below" / "b.onnx").is_file()
    result = call("optimize", models, "-o", out, *HOW, "--no-algebra")  # another thing to do
    assert "2 done, 0 failed" in result.stdout
    changed = onnx.load(models / "a.onnx")
    weight = changed.graph.initializer[0]
    weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight) + 1, weight.name))
    onnx.save(changed, models / "a.onnx")
    assert "1 of them by an earlier run" in call("optimize", models, "-o", out, *HOW, "--no-algebra").stdout


@pytest.mark.parametrize("changed", ["weights", "rule", "inputs"])
def test_what_reads_a_file_that_was_changed_is_done_again(tmp_path: Path, changed: str) -> None:
    models, rules, arrays, out = tmp_path / "models", tmp_path / "rules", tmp_path / "in.npz", tmp_path / "out"
    (models / "a").mkdir(parents=True)
    rules.mkdir()
    model = onnx.load(write_model(models / "a" / "a.onnx"))
    onnx.save(model, models / "a" / "a.onnx", save_as_external_data=True, location="a.data", size_threshold=0)
    rule = Path(ROOT / "rules" / "fusions" / "norm_linear.rule")
    (rules / rule.name).write_text(rule.read_text())
    np.savez(arrays, x=np.zeros((1, 2, 32), np.float32))
    how = (*HOW, "--rule-path", rules, "--inputs", arrays)
    assert call("optimize", models, "-o", out, *how).exit_code == 0
    assert "1 of them by an earlier run" in call("optimize", models, "-o", out, *how).stdout
    os.utime({"weights": models / "a" / "a.data", "rule": rules / rule.name, "inputs": arrays}[changed])
    assert "1 model: 1 done, 0 failed" in call("optimize", models, "-o", out, *how).stdout


def test_what_has_to_be_verified_is_done_again_where_it_was_not(models: Path, tmp_path: Path) -> None:
    out, how = tmp_path / "out", ("--target", "portable", "--force")
    (models / "bad.onnx").unlink()
    assert call("optimize", models, "-o", out, *how).exit_code == 0
    again = call("optimize", models, "-o", out, *how, "--require-verified")
    assert "2 of them by an earlier run" in again.stdout
    for path in out.rglob("report.json"):
        report = json.loads(path.read_text())
        path.write_text(json.dumps({**report, "verification": {**report["verification"], "skipped": "no session"}}))
    assert "2 of them by an earlier run" in call("optimize", models, "-o", out, *how).stdout
    again = call("optimize", models, "-o", out, *how, "--require-verified")
    assert "2 models: 2 done, 0 failed" in again.stdout


def test_debug_shows_where_a_model_failed(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr("fusion_cli.pipeline.optimize", fails)
    result = call("optimize", models, "-o", tmp_path / "out", *HOW)
    assert result.exit_code == 70
    assert "error: internal: KeyError: 'ours' (a fault of fusion-cli; --debug shows where)" in result.stderr
    assert "in fails" in call("optimize", models, "-o", tmp_path / "out", *HOW, "--debug").stderr


def test_what_is_not_ours_is_not_replaced(models: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.onnx").write_text("mine")
    result = call("optimize", models / "a.onnx", models / "below" / "b.onnx", "-o", out, *HOW)
    assert result.exit_code == 1
    assert "a.onnx: exists, and nothing says that fusion-cli wrote it" in result.stderr
    assert (out / "a.onnx").read_text() == "mine"
    assert (out / "b.onnx").is_file()


def test_a_pattern_stands_for_the_files_it_fits(models: Path, tmp_path: Path) -> None:
    out = models / "out"  # what lies there is no model to be optimized
    for _ in range(2):
        result = call("optimize", models / "**" / "[ab].onnx", "-o", out, *HOW, "--json")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        assert [Path(o["output"]).relative_to(out) for o in found] == [Path("a.onnx"), Path("below/b.onnx")]
        assert all(o["report"]["summary"]["fusions"] >= 0 and o["error"] is None for o in found)
    assert all(o["is_old"] for o in found)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("models", "-o", "models/a.onnx"), 1, "is no folder, and there are several models"),
        (("models/a.onnx", "models/./a.onnx", "-o", "out"), 1, "goes to the same place: a.onnx"),
        (("models/*.none", "-o", "out"), 1, "there are no models"),
        (("models", "-o", "out", "--lock", "fusion.lock"), 2, "--lock is for one model"),
        (("models", "-o", "out", "--in-place"), 2, "--in-place is for one model"),
        (("models",), 2, "give the output"),
    ],
)
def test_what_is_wrong_is_said(
    models: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, message: str
) -> None:
    monkeypatch.chdir(models.parent)
    result = call("optimize", *arguments)
    assert result.exit_code == code
    assert message in result.stderr


def test_failures_of_different_kinds_exit_with_1(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    errors = {"a.onnx": NumbersDiffer("no"), "b.onnx": BuildError("no")}

    def fails(model: Path, *_: object) -> None:
        raise errors[model.name]

    (models / "bad.onnx").unlink()
    monkeypatch.setattr("fusion_cli.pipeline.optimize", fails)
    assert call("optimize", models, "-o", tmp_path / "out", *HOW).exit_code == 1
    errors = dict.fromkeys(("a.onnx", "b.onnx", "bad.onnx"), BuildError("no"))
    assert call("optimize", models, "-o", tmp_path / "out", *HOW).exit_code == 5
