"""The parts of the benchmarks that decide something: tallies, recall, resumption and repeatability."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from benchmarks import corpus, idioms, quiet_core, repeat, runs, tally
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
        choice = {"chosen": chosen, "measured": [{"models": [{"us": us}]}]}
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


def test_a_thread_is_kept_on_the_core_that_is_quickest_then_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = os.sched_getaffinity(0)
    first, last = min(allowed), max(allowed)
    quick = {last}
    monkeypatch.setattr(quiet_core, "_loop", lambda: 1e-5 if os.sched_getaffinity(0) == quick else 2e-5)
    with quiet_core.QuietestCore() as core:
        assert os.sched_getaffinity(0) == {last}
        core.look_again()
        assert os.sched_getaffinity(0) == {last}
        quick = {first}
        core.look_again()
        assert os.sched_getaffinity(0) == {first}
    assert os.sched_getaffinity(0) == allowed
