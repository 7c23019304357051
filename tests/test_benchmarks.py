"""The parts of the benchmarks that decide something: tallies, recall, resumption, recipes, and GPU checks."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from benchmarks import corpus, gpu_page, gpu_prepare, idioms, repeat, runs, tally
from examples import weights
from fusion_cli.match import load_rules

ENTRIES: list[dict[str, Any]] = [
    {"id": "a", "exporter": "ts", "opset": 17, "dtype": "f32", "truth": {"layernorm": 3, "gelu_erf": 1}},
    {"id": "b", "exporter": "ts", "opset": 17, "dtype": "f32", "truth": {"layernorm": 2}},
    {"id": "c", "exporter": "dyn", "opset": 23, "dtype": "f16", "truth": {"silu": 1, "conv": 4}},
]


def result(model: str, mode: str = "cpu", status: str = "ok", **facts: Any) -> dict[str, Any]:
    return {"id": model, "mode": mode, "status": status, "detail": "", **facts}


def test_one_models_surplus_does_not_hide_anothers_misses() -> None:
    results = [
        result("a", idioms={"LayerNorm": 5}, in_file={"layernorm": 9, "gelu_erf": 0}),
        result("b", idioms={"LayerNorm": 1}, in_file={"layernorm": 1}),
    ]
    found = tally.recall(ENTRIES, results)
    assert found["layernorm", "ts17"] == tally.Recall(truth=5, present=4, found=4, extra=2)
    assert found["gelu_erf", "ts17"] == tally.Recall(truth=1, present=0, found=0, extra=0)
    assert ("silu", "dyn23") not in found, "a model without a report says nothing about recognition"


def test_every_mapped_idiom_is_a_rule() -> None:
    known = {rule.name for rule in load_rules().idioms}
    assert {name for names in idioms.IDIOMS.values() for name in names} <= known


def test_statuses_are_counted_by_mode_and_exporter() -> None:
    counts = tally.statuses(ENTRIES, [result("a"), result("b", status="wrong"), result("c"), result("unknown")])
    assert dict(counts["cpu", "ts17"]) == {"ok": 1, "wrong": 1}
    assert dict(counts["cpu", "dyn23"]) == {"ok": 1}


def test_the_page_names_every_model_that_is_not_ok() -> None:
    results = [
        result(
            "a",
            idioms={"LayerNorm": 3},
            in_file={"layernorm": 3},
            fusions={"ResidualNorm": 2},
            nodes_before=10,
            nodes_after=4,
            rolled_back=["RowwiseRegion"],
            chosen="kernels",
            speed=[1.234, 1.1, 1.3],
        ),
        result("b", status="wrong", worst=0.5, idioms={}, in_file={"layernorm": 1}, fusions={}),
        result("c", status="crash", detail="exit code -11: boom | bang"),
    ]
    page = tally.markdown(ENTRIES, results)
    assert "| b | `cpu` | wrong | error 0.5 |" in page
    assert "exit code -11: boom \\| bang" in page
    assert "| layernorm | 3/4 (75%) [5] | 3/4 (75%) [5] |" in page
    assert "| RowwiseRegion | 1 |" in page
    assert "| ResidualNorm | 2 |" in page
    assert "| the simplified model with kernels | 1 |" in page
    assert "| a | the simplified model with kernels | 1.23x | 1.10 to 1.30 |" in page


def test_a_crash_is_one_result_and_the_other_modes_still_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[list[str]] = []

    def dies_at_the_second(run: runs.Run, entry: Any, modes: Any) -> tuple[list[Any], dict[str, str]]:
        calls.append(list(modes))
        done = [{"mode": m, "status": "ok"} for m in modes]
        return (done[:1], {"status": "crash", "detail": "killed"}) if len(calls) == 1 else (done, {})

    monkeypatch.setattr(runs.Run, "process", dies_at_the_second)
    run = runs.Run(tmp_path, "benchmarks.corpus_model", jobs=1, timeout=1)
    results = run.model(ENTRIES[0], ["portable", "cpu", "cpu --force"])
    assert [(r["mode"], r["status"]) for r in results] == [("portable", "ok"), ("cpu", "crash"), ("cpu --force", "ok")]
    assert calls == [["portable", "cpu", "cpu --force"], ["cpu --force"]]


def test_a_process_that_dies_is_reported_with_its_last_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "dies"
    program.write_text('#!/bin/sh\necho \'{"status": "ok", "mode": "portable"}\'\necho oh no >&2\nexit 7\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    run = runs.Run(tmp_path, "benchmarks.corpus_model", jobs=1, timeout=60)
    found, failure = run.process(ENTRIES[0], ["portable", "cpu"])
    assert found == [{"status": "ok", "mode": "portable"}]
    assert failure == {"status": "crash", "detail": "exit code 7: oh no"}


def test_results_survive_an_interruption(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(result("a")) + "\n" + json.dumps(result("b", status="error")) + '\n{"id": "c", "mo')
    assert set(runs.load_results(path)) == {("a", "cpu"), ("b", "cpu")}


def test_no_corpus_is_no_failure(tmp_path: Path) -> None:
    run = CliRunner().invoke(corpus.main, [str(tmp_path / "absent")])
    assert run.exit_code == 0
    assert "nothing to do" in run.output


def test_one_corpus_model_in_every_mode(tmp_path: Path) -> None:
    folder = runs.default_folder()
    if not (folder / "index.json").is_file():
        pytest.skip(f"no corpus at {folder}")
    name = "zoo.swiglu.ts17.dynamic"
    run = CliRunner().invoke(corpus.main, [str(folder), "--only", name, "--results", str(tmp_path / "r.jsonl")])
    results = runs.load_results(tmp_path / "r.jsonl")
    assert {mode: r["status"] for (_, mode), r in results.items()} == dict.fromkeys(corpus.MODES, "ok"), run.output
    assert run.exit_code == 0


def test_runs_differ_by_their_files_and_by_what_of_the_report_is_not_measured(tmp_path: Path) -> None:
    def written(
        name: str, model: bytes = b"m", chosen: str = "kernels", us: float = 1.0, stage: str = "verify"
    ) -> Path:
        output = tmp_path / name / "out.onnx"
        repeat.report_of(output).parent.mkdir(parents=True)
        output.write_bytes(model)
        fusion = {"rule": "R", "measured": {"cpu": us}}
        choice = {"chosen": chosen, "measured": [{"candidates": [{"us": us}]}]}
        report = {"fusions": [fusion], "rejected": [{"stage": stage, "found": us}], "choice": choice, "timings": us}
        repeat.report_of(output).write_text(json.dumps(report))
        return output

    first = written("first")
    assert not repeat.differ([first, written("again", us=2.0)])
    assert repeat.differ([first, written("model", model=b"n")])
    assert repeat.differ([first, written("choice", chosen="original")])
    assert repeat.differ([first, written("reason", stage="score")])
    failed = tmp_path / "failed" / "out.onnx"
    failed.parent.mkdir()
    (failed.parent / "error.txt").write_text("error: no")
    assert repeat.differ([first, failed])


def test_folded_weights_travel_as_recipes() -> None:
    fused = weights.fill(onnx.load(weights.graph_path("conv_stack")))
    factors = np.linspace(0.5, 2.0, 64, dtype=np.float32).reshape(-1, 1, 1, 1)
    expected = {}
    for tensor in fused.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if tensor.name == "3.weight":
            values = values * factors
        expected[f"renamed {tensor.name}"] = values
        tensor.CopyFrom(numpy_helper.from_array(values, f"renamed {tensor.name}"))
    size = len(fused.SerializeToString())
    gpu_prepare.forget_weights(fused, onnx.load(weights.graph_path("conv_stack")))
    assert len(fused.SerializeToString()) < size / 50
    for tensor in weights.fill(fused).graph.initializer:
        np.testing.assert_allclose(numpy_helper.to_array(tensor), expected[tensor.name], rtol=1e-5, atol=1e-6)


def test_weights_of_unknown_origin_keep_their_data() -> None:
    tensor = numpy_helper.from_array(np.arange(100, dtype=np.float32), "new")
    fused = helper.make_model(helper.make_graph([], "g", [], [], [tensor]))
    gpu_prepare.forget_weights(fused, onnx.load(weights.graph_path("conv_stack")))
    assert fused.graph.initializer[0].data_type == TensorProto.FLOAT
    assert fused.graph.initializer[0].raw_data == tensor.raw_data


GOOD: dict[str, Any] = {
    "example": "layer", "shape": [1, 2], "dtype": "float16", "device": "NVIDIA H200", "calls": {"Op_1": 2},
    "rules": {"R": 2}, "forced": True,
    "errors": {"fused": 1.4e-3, "fused, graph": 1.4e-3, "ORT": 1e-3}, "failures": {}, "floor_ms": 0.1,
    "ms": {"fused": 0.5, "ORT": 1.0}, "placement": {"Op_1": {"CUDAExecutionProvider": 2}}, "elsewhere": {"Shape": 1},
}  # fmt: skip


def test_a_good_gpu_case_has_no_problems(tmp_path: Path) -> None:
    assert gpu_page.problems(GOOD) == []
    page = gpu_page.write_page([GOOD], tmp_path)
    assert page.name == "gpu-nvidia-h200.md"
    assert "| layer | 2.00x |" in page.read_text()
    assert "| layer | 2 R (forced) | 1.40e-03 | 1.40e-03 | 1.00e-03 | 2 of 2 | 1 Shape | yes |" in page.read_text()
    assert json.loads(page.with_suffix(".json").read_text()) == [GOOD]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"errors": {"fused": 1.6e-3, "ORT": 1e-3}}, "error 1.60e-03"),
        ({"errors": {"fused": float("nan"), "ORT": 1e-3}}, "error nan"),
        ({"placement": {}}, "ran nowhere"),
        ({"placement": {"Op_1": {"CPUExecutionProvider": 2}}}, "CPUExecutionProvider"),
        ({"failures": {"fused, graph": "capture failed"}}, "capture failed"),
        ({"failures": {"case": "not done within 9 s"}}, "not done"),
    ],
)
def test_gpu_problems_are_found(change: dict[str, Any], said: str) -> None:
    found = gpu_page.problems({**GOOD, **change})
    assert any(said in problem for problem in found), found
