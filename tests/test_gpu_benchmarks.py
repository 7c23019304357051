"""The GPU benchmarks as far as they go without one: their tables, resumption, pages, and what tools say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner

import fusion_cli
from benchmarks import (
    front_page,
    gpu_dynamic_page,
    gpu_models,
    gpu_models_page,
    kernels,
    kernels_page,
)
from benchmarks.gpu_specs import chosen, load_specs, spec_of
from benchmarks.kernel_cases import CASES, case_of, small
from benchmarks.kernel_write import MODES
from benchmarks.runs import TOLERANCE, Run

MACHINE = {"device": "NVIDIA H200", "onnxruntime": "1.31.1", "torch": "2.11.0"}
MS = {
    "fused": 0.5, "fused, graph": 0.4, "fused, captured": 0.45, "ORT": 1.0, "ORT, graph": 0.8, "ORT, captured": 0.85,
    "ORT, NHWC": 0.9, "ORT, NHWC, graph": 0.7, "ORT, NHWC, captured": 0.75, "torch": 0.9, "torch, graph": 0.6,
}  # fmt: skip
ALONE = {"fused": 0.5, "torch": 0.6, "ORT": 0.8}


def test_the_table_of_models() -> None:
    specs = [*load_specs("model"), *load_specs("dynamic")]
    assert len({s.id for s in specs}) == len(specs) >= 18
    assert sum(bool(s.target) for s in specs) == 15
    assert all(s.target["graph"] <= s.target["fused"] for s in specs if s.target)
    assert all(s.dynamic for s in load_specs("dynamic"))
    assert spec_of("decoder_4l_b4_cache4095").cached == 4095


def test_tiny_models_are_the_same_ones_with_few_tokens() -> None:
    for spec, tiny in zip(load_specs("model"), load_specs("model", tiny=True), strict=True):
        assert spec_of(tiny.id) == tiny
        assert (tiny.kind, tiny.dtype, tiny.dynamic) == (spec.kind, spec.dtype, spec.dynamic)
        assert tiny.batch * tiny.seq <= 32
        assert not tiny.target


def test_models_are_chosen_by_globs() -> None:
    specs = load_specs("model", tiny=True)
    assert [s.id for s in chosen(specs, "vit*, bert_b1_s128")] == ["tiny_bert_b1_s128", "tiny_vit_b8"]
    assert chosen(specs, "nothing") == []


def test_readme_has_the_times_that_were_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = front_page.README.read_text("utf-8")
    assert front_page.front_page(text) == text, "`make goldens` writes it anew"
    rows = json.loads(front_page.RESULTS.read_text("utf-8"))
    page = front_page.RESULTS.with_suffix(".md").read_text("utf-8")
    assert gpu_models_page.page(rows, "NVIDIA H200") == page
    for row in rows:
        row["times"] = {way: {**found, "ms": 1.0} for way, found in row["times"].items()}
        row["times"][row["made"]]["ms"] = 0.25
    monkeypatch.setattr(front_page, "RESULTS", tmp_path / "gpu-models-nvidia-h200.json")
    front_page.RESULTS.write_text(json.dumps(rows))
    others = front_page.front_page(text)
    assert "| ViT-B/16, 8 images, float16 | 0.250 | 1.000 | 1.000 | 4.00x | 4.00x |" in others
    assert "4.00x (4.00x to 4.00x) over ONNX Runtime and 4.00x (4.00x to 4.00x) over PyTorch" in others
    assert others.partition("**Text")[2] == text.partition("**Text")[2]


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, tuple[str, ...]]]:
    """Workers that only note what they were asked, and know all times."""
    asked: list[tuple[str, str, tuple[str, ...]]] = []

    def process(self: Run, entry: dict[str, Any], modes: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        asked.append((self.worker, entry["id"], tuple(modes)))
        if self.worker == "benchmarks.gpu_write":
            facts = {"status": "ok", "nodes": [31, 2], "fusions": {"AttentionFFN": 1}, "chosen": "kernels"}
            return [{**facts, "mode": m, "seconds": 1.5} for m in modes], {}
        done = [m for m in modes if entry["id"] != "vit_b8" or "fused" not in m]
        found = [
            {"status": "ok", "mode": m, "ms": MS[m], "alone": ALONE.get(m, 1.0), "error": 1e-3, "machine": MACHINE}
            for m in done
        ]
        found += [{"status": "error", "mode": m, "detail": "CUDA error 700"} for m in modes if m not in done]
        return sorted(found, key=lambda r: modes.index(r["mode"])), {}

    monkeypatch.setattr(Run, "process", process)
    return asked


def run_models(tmp_path: Path, *more: str) -> Any:
    folders = ["--work", str(tmp_path / "work"), "--results", str(tmp_path / "results")]
    return CliRunner().invoke(gpu_models.main, [*folders, *more])


def page_of(tmp_path: Path) -> str:
    return (tmp_path / "results" / "gpu-models-nvidia-h200.md").read_text()


def test_models_are_exported_together_and_timed_one_by_one(
    tmp_path: Path, processes: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    run = run_models(tmp_path, "--only", "layer_b1_s1_d4096,resnet50_b*")
    assert run.exit_code == 0, run.output
    assert sorted(processes[:2]) == [
        ("benchmarks.gpu_write", "layer_b1_s1_d4096", ("export", "quick")),
        ("benchmarks.gpu_write", "resnet50_b8", ("export", "quick")),
    ]
    assert processes[2:4] == [
        ("benchmarks.gpu_write", "layer_b1_s1_d4096", ("fused",)),
        ("benchmarks.gpu_case", "layer_b1_s1_d4096", tuple(MS)),
    ]
    assert (
        "| layer_b1_s1_d4096 | 0.5000 | 0.4000 | 0.4500 | 1.0000 | 0.8000 | 0.8500 | 0.9000 | 0.7000 | 0.7500 |"
        " 0.9000 | 0.6000 | - |"
    ) in page_of(tmp_path)


def test_a_second_run_does_only_what_is_missing(
    tmp_path: Path, processes: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    run_models(tmp_path, "--only", "resnet50_b8")
    del processes[:]
    assert run_models(tmp_path, "--only", "resnet50_b8,layer_b8*").exit_code == 0
    assert {model for _, model, _ in processes} == {"layer_b8_s128_d768"}
    del processes[:]
    run_models(tmp_path, "--only", "resnet50_b8", "--again")
    assert [(worker, modes[0]) for worker, _, modes in processes] == [
        ("benchmarks.gpu_write", "quick"),
        ("benchmarks.gpu_write", "fused"),
        ("benchmarks.gpu_case", "fused"),
    ], "exports are kept"


def test_what_fails_is_told_and_the_others_go_on(
    tmp_path: Path, processes: list[tuple[str, str, tuple[str, ...]]]
) -> None:
    run = run_models(tmp_path, "--only", "vit_b8,resnet50_b8")
    assert run.exit_code == 1
    assert "| vit_b8 | times fused | error | CUDA error 700 |" in page_of(tmp_path)
    assert "| vit_b8 | -, 1.50x | -, 1.15x | -, 0.950 | -, 0.900 | - | no |" in page_of(tmp_path)
    row = "| resnet50_b8 | 1.75x, 1.50x | 1.50x, 1.15x | 0.5000, 0.750 | 0.4000, 0.550 | 1.60x, 1.20x | yes |"
    assert row in page_of(tmp_path)
    del processes[:]
    run_models(tmp_path, "--only", "vit_b8", "--retry")
    assert [modes for _, _, modes in processes] == [("fused", "fused, graph", "fused, captured")]


def test_quick_is_another_model_and_marked_so(
    tmp_path: Path, processes: list[tuple[str, str, tuple[str, ...]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_models(tmp_path, "--only", "resnet50_b8")
    del processes[:]
    monkeypatch.setitem(MS, "quick", 0.3)
    monkeypatch.setitem(MS, "quick, graph", 0.2)
    monkeypatch.setitem(MS, "quick, captured", 0.1)
    run_models(tmp_path, "--only", "resnet50_b8", "--quick")
    assert [modes for _, _, modes in processes] == [("quick", "quick, graph", "quick, captured")]
    assert "| resnet50_b8 \\* | 0.3000 | 0.2000 | 0.1000 | 1.0000 |" in page_of(tmp_path)


def test_after_its_time_no_model_is_begun(tmp_path: Path, processes: list[tuple[str, str, tuple[str, ...]]]) -> None:
    run = run_models(tmp_path, "--only", "layer*", "--seconds", "-1")
    assert run.exit_code == 3
    assert "run the same command again for the other 5 models" in run.output
    assert not any(worker == "benchmarks.gpu_case" for worker, _, _ in processes)


def test_an_unknown_model_is_a_usage_error(tmp_path: Path) -> None:
    run = run_models(tmp_path, "--only", "nothing")
    assert run.exit_code == 2
    assert "no model of gpu_models.toml is called nothing" in run.output


def timed_row(id: str, **ms: float) -> dict[str, Any]:
    times = {w: {"mode": w, "status": "ok", "ms": t, "error": 1e-3, "machine": MACHINE} for w, t in ms.items()}
    return {"id": id, "made": "fused", "date": "2026-01-01", "core": "quietest", "written": {}, "times": times}


def test_the_page_keeps_models_that_were_not_measured_now(tmp_path: Path) -> None:
    gpu_models_page.write_page([timed_row("vit_b8", fused=2.0), timed_row("bert_b1_s128", fused=1.0)], tmp_path)
    path = gpu_models_page.write_page([timed_row("vit_b8", fused=0.9)], tmp_path)
    assert "| vit_b8 | 0.9000 |" in path.read_text()
    assert "| bert_b1_s128 | 1.0000 |" in path.read_text()
    assert [row["id"] for row in json.loads(path.with_suffix(".json").read_text())] == ["vit_b8", "bert_b1_s128"]


@pytest.mark.parametrize(
    ("model", "change", "reached"),
    [
        ("bert_b1_s128", {}, "yes"),
        ("bert_b1_s128", {"ORT, NHWC, graph": 0.59}, "no"),
        ("bert_b1_s128", {"torch, compiled": 0.45}, "no"),
        ("bert_b1_s128", {"fused, graph": 0.44}, "no"),
        ("bert_b1_s128", {"fused, graph": 0.44, "fused, captured": 0.42}, "yes"),
        ("bert_b1_s128", {"ORT, captured": 0.59}, "no"),
        ("layer_b1_s2048_d4096", {"ORT": 0.47, "torch": 0.41}, "yes"),
        ("layer_b1_s2048_d4096", {"ORT": 0.45}, "no"),
        ("qwen7b_2l_b1_s1", {"fused": 0.3, "fused, graph": 0.2, "ORT": 0.38}, "no"),
    ],
)
def test_a_model_reaches_its_targets_or_not(model: str, change: dict[str, float], reached: str) -> None:
    ms = {"fused": 0.65, "fused, graph": 0.4, "ORT": 0.9, "torch": 0.6, **change}
    assert f"| {reached} |" in gpu_models_page.page([timed_row(model, **ms)], "a GPU")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_a_case_becomes_kernels_alone(case: Any, tmp_path: Path) -> None:

    onnx.save(small(case).model(), tmp_path / "case.onnx")
    report = fusion_cli.optimize(tmp_path / "case.onnx", targets=["sm_90a"], force=True, dry_run=True)
    assert sum(len(f.nodes) for f in report.fusions) == report.summary.nodes_before, report.rejected[:3]


def test_the_work_of_cases() -> None:
    by_id = {c.id: c for c in CASES}
    assert len(by_id) == len(CASES)
    product, few = by_id["bias_gelu_1024x3072x768"], by_id["bias_silu_1x16384x4096"]
    assert product.work(product.sizes) == 2 * 1024 * 3072 * 768
    assert few.work(few.sizes) == 2 * (4096 + 4096 * 16384 + 16384 + 16384)
    full, causal = by_id["full_b4_h32by32_s4096_d64"], by_id["causal_b4_h32by32_s4096_d64"]
    assert full.work(full.sizes) == 4 * 4 * 32 * 4096 * 4096 * 64 == 2 * causal.work(causal.sizes)
    norm = by_id["residual_layer_norm_8192x4096"]
    assert norm.work(norm.sizes) == 4 * 2 * 8192 * 4096
    assert case_of("tiny_" + norm.id).sizes == {"M": 16, "N": 16}
    assert norm.weight("g_w").tobytes() == norm.weight("g_w").tobytes()


def test_products_of_any_size_are_cases() -> None:
    assert [case_of(c.id).sizes for c in CASES] == [c.sizes for c in CASES]
    three, gated = case_of("qkv_70x768+2x128x64"), case_of("tiny_gated_512x5504x2048")
    assert three.sizes == {"M": 70, "K": 64, "Q": 768, "V": 128}
    assert three.family == "horizontal"
    assert (gated.family, gated.sizes) == ("gated", {"M": 16, "N": 16, "K": 16})
    with pytest.raises(KeyError):
        case_of("bias_tanh_512x3072x768")


def test_kernels_are_built_together_and_timed_family_by_family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str, tuple[str, ...]]] = []

    def process(self: Run, entry: dict[str, Any], modes: Sequence[str]) -> tuple[list[dict[str, Any]], dict[str, str]]:
        asked.append((self.worker, entry["id"], tuple(modes)))
        if self.worker == "benchmarks.kernel_write":
            return [{"status": "ok" if m == "kernels" else "skipped", "mode": m} for m in modes], {}
        made = {"kernels": {"error": 1e-4, "repeatable": True}}
        us = {"kernels": [50.0, 1.0], "copy": [40.0, 1.0], "empty": [30.0, 1.0]}
        return [
            {"status": "ok", "mode": m, "us": us, "near": {}, "made": made, "failures": {}, "machine": MACHINE}
            for m in modes
        ], {}

    monkeypatch.setattr(Run, "process", process)
    folders = ["--work", str(tmp_path), "--results", str(tmp_path / "results")]
    run = CliRunner().invoke(kernels.main, [*folders, "--only", "pointwise"])
    assert run.exit_code == 0, run.output
    own = tuple(c.id for c in CASES if c.family == "pointwise")
    assert sorted(asked[:-1]) == sorted(("benchmarks.kernel_write", id, MODES) for id in own)
    assert asked[-1] == ("benchmarks.kernel_time", "pointwise", own)
    page = (tmp_path / "results" / "kernels-nvidia-h200.md").read_text()
    assert (
        "| silu_product_8192x4096 | 50.0 (1) | - | - | copy 40.0, empty 30.0 | 4.03 TB/s | 6.71 TB/s | 0.60 * |" in page
    )
    assert CliRunner().invoke(kernels.main, [*folders, "--only", "nothing"]).exit_code == 2


def kernel_result(**change: Any) -> dict[str, Any]:
    made = {"kernels": {"error": 1e-4, "repeatable": True}}
    return {
        "us": {"kernels": [10.0, 1.0], "own": [8.0, 2.0], "ORT": [20.0, 3.0], "cuBLASLt": [8.0, 1.0]},
        "made": made,
        **change,
    }


def test_a_kernel_is_as_fast_as_the_faster_of_ours() -> None:
    cells = kernels_page.row(case_of("bias_gelu_1024x3072x768"), kernel_result())
    assert cells[2:9] == ["10.0 (1)", "8.0 (2)", "20.0 (3)", "cuBLASLt 8.0", "603.98 TFLOP/s", "603.98 TFLOP/s", "1.00"]
    cells = kernels_page.row(case_of("bias_gelu_1024x3072x768"), kernel_result(us={"cuBLASLt": [8.0, 1.0]}, made={}))
    assert cells[8] == "-"
    assert cells[-1] == "no"


@pytest.mark.parametrize(("us", "share"), [(3.0, "1.50"), (3.2, "1.60 *")])
def test_a_small_kernel_is_held_against_an_empty_one(us: float, share: str) -> None:
    result = kernel_result(us={"kernels": [9.0, 1.0], "empty": [2.5, 1.0]}, near={"kernels": us, "empty": 2.0})
    cells = kernels_page.row(case_of("silu_product_128x768"), result)
    assert cells[2:9] == ["9.0 (1)", "-", "-", "empty 2.5", f"{us} us", "2.0 us", share]


def sized(mode: str, fused: float, library: str = "a.so", **change: Any) -> dict[str, Any]:
    times = {"ort_ms": 1.0, "fused_ms": fused, "ort_error": 1e-3, "error": 1e-3}
    return {"id": "bert_any", "mode": mode, "status": "ok", **times, "libraries": {library: "00"}, **change}


def test_a_size_that_is_slower_or_another_library_is_a_problem() -> None:
    good = [sized("fused 1x1", 0.5), sized("fused 8x512", 1.01)]
    assert gpu_dynamic_page.problems(good) == []
    assert "| bert_any | 1x1 | 1.0000 | 0.5000 | 2.00x |" in gpu_dynamic_page.page([], good, "a GPU")
    slow, another = sized("fused 1x7", 1.03), sized("fused 1x7", 0.5, "b.so")
    assert "slower than ONNX Runtime" in gpu_dynamic_page.problems([*good, slow])[0][2]
    assert "one library expected" in gpu_dynamic_page.problems([*good, another])[0][2]
    failed = {"id": "bert_any", "mode": "fused 1x2", "status": "error", "detail": "no memory"}
    assert "| bert_any | fused 1x2 | no memory |" in gpu_dynamic_page.page([], [*good, failed], "a GPU")


WORKER = """
import sys
for mode in sys.argv[3:]:
    if mode == "dies":
        sys.exit("out of memory")
    print('{"status": "ok", "ms": 1, "mode": "%s"}' % mode, flush=True)
for mode in sys.argv[3:]:
    print('{"status": "ok", "ms": 2, "mode": "%s"}' % mode, flush=True)
"""


def test_of_what_a_worker_tells_anew_the_last_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_worker_of_two_rounds.py").write_text(WORKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = Run(tmp_path, "a_worker_of_two_rounds", 1, 60)
    entry = {"id": "m", "dtype": next(iter(TOLERANCE))}
    assert {r["mode"]: r["ms"] for r in run.model(entry, ["a", "b"])} == {"a": 2, "b": 2}
    found = run.model(entry, ["a", "dies", "b", "c"])
    assert [(r["mode"], r["status"], r.get("ms")) for r in found] == [
        ("a", "ok", 1), ("dies", "crash", None), ("b", "ok", 2), ("c", "ok", 2)
    ]  # fmt: skip
    assert "out of memory" in found[1]["detail"]
