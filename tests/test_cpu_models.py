"""The benchmark on models from wheels: its table, what is taken out of a wheel, one model from end to end, the page."""

from __future__ import annotations

import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks import cpu_models, cpu_models_model, cpu_models_page, wheel_models
from benchmarks.norms_written_out import with_norms
from benchmarks.wheel_models import ModelInput, Unavailable, WheelModel
from tests.helpers.graphs import parse

WEIGHT, FACTOR = np.ones((4, 3, 3, 3), np.float32), np.arange(1, 5, dtype=np.float32).reshape(1, 4, 1, 1)


def small_model() -> bytes:
    model = parse("g (float[1, 3, 8, 8] x) => (float[1, 4, 6, 6] y) { c = Conv (x, w) y = Mul (c, s) }")
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in (("w", WEIGHT), ("s", FACTOR)))
    return model.SerializeToString()


DATA = small_model()
SMALL = WheelModel(
    "small",
    "small==1.0",
    "small/model.onnx",
    hashlib.sha256(DATA).hexdigest(),
    {"x": ModelInput((1, 3, 8, 8), -1.0, 1.0)},
)


def fetch(package: str, folder: Path) -> Path:
    if package != SMALL.package:
        raise Unavailable(f"pip download {package}: no such version")
    wheel = folder / "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(SMALL.file, DATA)
    return wheel


def test_the_table_is_pinned() -> None:
    models = wheel_models.load_table()
    assert len({m.id for m in models}) == len(models) >= 20
    for model in models:
        assert "==" in model.package
        assert len(bytes.fromhex(model.sha256)) == 32
        for given in model.inputs.values():
            assert given.low <= given.high
    (rates,) = {int(m.inputs["sr"].values(np.random.default_rng(0))) for m in models if "sr" in m.inputs}
    assert rates == 16000


def test_what_cannot_be_had_is_skipped_with_the_reason(tmp_path: Path) -> None:
    gone = replace(SMALL, id="gone", package="gone==2.0")
    absent = replace(SMALL, id="absent", file="small/other.onnx")
    changed = replace(SMALL, id="changed", sha256="0" * 64)
    skipped = wheel_models.download([SMALL, gone, absent, changed], tmp_path, fetch)
    assert skipped == wheel_models.why_skipped(tmp_path)
    assert skipped["gone"] == "pip download gone==2.0: no such version"
    assert "has no small/other.onnx" in skipped["absent"]
    assert f"has sha256 {SMALL.sha256}" in skipped["changed"]
    assert [entry["id"] for entry in json.loads((tmp_path / "index.json").read_text())] == ["small"]
    assert onnx.load(SMALL.path(tmp_path)).graph.node[0].op_type == "Conv"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["index.json", "skipped.json", "small.npz", "small.onnx"]


def test_norms_are_written_out_behind_convolutions(tmp_path: Path) -> None:
    folded = parse("g (float[1, 3, 8, 8] x) => (float[1, 4, 6, 6] y) { c = Conv (x, w, b) y = Relu (c) }")
    folded.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in (("w", WEIGHT), ("b", FACTOR.ravel())))
    made = onnx.ModelProto.FromString(with_norms(folded.SerializeToString()))
    onnx.checker.check_model(made)
    assert [n.op_type for n in made.graph.node] == ["Conv", "Transpose", "Sub", "Mul", "Add", "Transpose", "Relu"]
    assert {t.name for t in made.graph.initializer} == {f"c/{part}" for part in ("kernel", "mean", "scale", "shift")}
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}
    want, found = (ReferenceEvaluator(m).run(None, feeds)[0] for m in (folded, made))
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)


def test_what_is_made_of_a_wheels_file_is_kept(tmp_path: Path) -> None:
    made = replace(SMALL, id="made", norms=True)
    wheel_models.download([SMALL, made], tmp_path, fetch)
    assert wheel_models.is_there(made, tmp_path)
    assert made.path(tmp_path).read_bytes() == with_norms(DATA)


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    wheel_models.download([SMALL], tmp_path, fetch)
    assert not wheel_models.download([SMALL], tmp_path, lambda *_: pytest.fail("fetched again"))
    SMALL.path(tmp_path).write_bytes(b"cut short")
    assert not wheel_models.is_there(SMALL, tmp_path)


def test_one_model_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel_models.download([SMALL], tmp_path, fetch)
    monkeypatch.setattr(cpu_models_model, "SECONDS", 0.0)
    cpu_models_model.main(SMALL.path(tmp_path), ["simplified"])
    (result,) = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith('{"status"')]
    assert (result["status"], result["mode"], result["nodes"]) == ("ok", "simplified", [2, 1])
    assert result["algebra"] == {"ConvAffine": 1}
    assert set(result["threads"]) == {"1", "2"}
    assert result["load"]["speed"]["low"] <= result["load"]["speed"]["high"]


def test_an_empty_folder_is_no_failure(tmp_path: Path) -> None:
    run = CliRunner().invoke(cpu_models.main, [str(tmp_path)])
    assert run.exit_code == 0
    assert f"--download {tmp_path}" in run.output


def test_the_page() -> None:
    compared = {"us": 1500.0, "rounds": 9, "speed": {"ratio": 1.5, "low": 1.25, "high": 1.75}}
    result: dict[str, Any] = {"id": "small", "mode": "written", "status": "ok", "nodes": [2, 1], "chosen": "simplified"}
    result |= {"threads": {"1": compared, "2": compared}, "load": compared, "algebra": {"ConvAffine": 1}}
    failed = {"id": "small", "mode": "kernels", "status": "crash", "detail": "exit code -11"}
    page = cpu_models_page.page([SMALL, replace(SMALL, id="gone")], [result, failed], {"gone": "no wheel"}, "a machine")
    times = "1.500 | 1.50x (1.25 to 1.75)"
    assert f"| small | 1x3x8x8 | 2 -> 1 | simplified | {times} | {times} | 1.5 -> 1.0 |" in page
    assert "| small | 1 ConvAffine |" in page
    assert "| gone | skipped | no wheel |" in page
    assert "| small | kernels: crash | exit code -11 |" in page
