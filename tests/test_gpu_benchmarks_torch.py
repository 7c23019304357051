"""The workers of the GPU benchmarks from end to end on small models, on whatever there is (needs torch)."""

from __future__ import annotations

import gc
import json
import weakref
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

torch = pytest.importorskip("torch")

from benchmarks import gpu_case, gpu_clock, gpu_dynamic_case, gpu_once, gpu_write, kernel_time, kernel_write  # noqa: E402
from benchmarks.contenders import Contender, Setting, of_session, open_session  # noqa: E402
from benchmarks.gpu_specs import load_specs, spec_of  # noqa: E402
from benchmarks.gpu_zoo import KINDS, build  # noqa: E402
from benchmarks.kernel_cases import CASES, case_of  # noqa: E402
from benchmarks.kernel_yardsticks import MATH, exact, yardsticks  # noqa: E402
from benchmarks.wide_tiles_time import rows_of  # noqa: E402

LAYER = "tiny_layer_b1_s128_d768"


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith('{"status"')]


def said(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What holds in the end."""
    return list({line["mode"]: line for line in lines(capsys)}.values())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / f"{LAYER}.onnx"
    gpu_write.main(path, ["export", "quick"])
    return path


def test_a_layer_from_end_to_end(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu_case.main(written, ["quick", "ORT", "torch", "ORT, NHWC, graph"])
    results = said(capsys)
    assert [r["mode"] for r in results] == ["quick", "ORT", "torch", "ORT, NHWC, graph"]
    for result in results[:3]:
        assert result["status"] == "ok"
        assert result["p10"] <= result["ms"] <= result["p90"]
        assert 0 < result["error"] < 1e-2, "the reference is in double precision"
        assert result["machine"]["torch"] == torch.__version__
    assert results[3]["status"] == ("ok" if results[0]["machine"]["device"] != "cpu" else "skipped")


def test_ways_are_timed_in_turn_and_told_before_anything_is_compiled(
    written: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def contender(case: gpu_case.Case, way: str) -> Contender:
        def call() -> Any:
            calls.append(way)
            return case.like

        return Contender(call)

    monkeypatch.setattr(gpu_case.Case, "contender", contender)
    gpu_case.main(written, ["quick", "torch, compiled", "ORT"])
    told = [line["mode"] for line in lines(capsys)]
    assert told == ["quick", "ORT"] * 2 + ["torch, compiled"] + ["quick", "ORT", "torch, compiled"]
    changes = sum(a != b for a, b in pairwise(calls))
    assert changes > 2 * gpu_clock.ROUNDS, "their runs alternate"


def test_what_was_not_written_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gpu_write.main(tmp_path / f"{LAYER}.onnx", ["quick"])
    gpu_case.main(tmp_path / f"{LAYER}.onnx", ["ORT", "quick", "torch"])
    assert [r["status"] for r in lines(capsys)] == ["error", "error", "error", "ok", "ok"]


def test_a_wrong_model_is_told(written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.load(written)
    weight = max(model.graph.initializer, key=lambda t: len(t.raw_data))
    weight.raw_data = np.zeros(len(weight.raw_data), np.uint8).tobytes()
    onnx.save(model, tmp_path / written.name)
    gpu_case.main(tmp_path / written.name, ["ORT"])
    assert [r["status"] for r in said(capsys)] == ["wrong"]


def test_a_library_that_does_not_load_is_an_error(written: Path, tmp_path: Path) -> None:
    made = gpu_write.made_path(written, "quick")
    moved = tmp_path / made.name  # without its bundle
    onnx.save(onnx.load(made), moved)
    with pytest.raises(RuntimeError, match="without its fused kernels"):
        open_session(moved, Setting("quick"), None)


def test_one_run_for_a_profiler(written: Path) -> None:
    with torch.no_grad():
        gpu_once.main(written, "unoptimized")
        gpu_once.main(written, "quick")


def test_inputs_live_as_long_as_what_reads_them(written: Path) -> None:
    """A session knows no more of them than where they lie."""
    case = gpu_case.Case(written)
    alive = [weakref.ref(x) for x in case.example.inputs.values()]
    contender = of_session(written, Setting(), case.example.inputs, case.like)
    del case
    gc.collect()
    assert contender.call()
    assert alive
    assert all(x() is not None for x in alive)


def test_every_model_of_the_table_has_a_builder() -> None:
    assert {s.kind for table in ("model", "dynamic") for s in load_specs(table)} == set(KINDS)  # type: ignore[arg-type]


def test_a_model_is_the_same_on_every_call_and_has_no_biases_of_zero() -> None:
    first, second = build(spec_of(LAYER)), build(spec_of(LAYER))
    for (name, a), b in zip(first.module.named_parameters(), second.module.parameters(), strict=True):
        assert torch.equal(a, b), name
        assert a.float().std() > 0.01, name
    assert torch.equal(first.inputs["x"], second.inputs["x"])


@pytest.mark.parametrize("id", ["tiny_bert_any", "tiny_qwen7b_2l_any"])
def test_open_sizes_share_one_session(id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers")
    path = tmp_path / f"{id}.onnx"
    gpu_write.main(path, ["export", "quick"])
    gpu_dynamic_case.main(path, ["quick 1x1", "quick 3x17", "quick 1x64"])
    results = said(capsys)[2:]
    assert [r["status"] for r in results] == ["ok"] * 3
    assert all(r["libraries"] == results[0]["libraries"] and len(r["libraries"]) == 1 for r in results)


def test_a_decoder_step_appends_to_its_cache() -> None:
    pytest.importorskip("transformers")
    made = build(spec_of("tiny_decoder_4l_b2_cache33"))
    hidden, *cache = made.module(*made.inputs.values())
    past = [x for name, x in made.inputs.items() if name != "x"]
    assert hidden.shape == made.inputs["x"].shape
    assert all(torch.equal(new[:, :, :-1], old) for new, old in zip(cache, past, strict=True))
    assert {t.shape[2] for t in cache} == {8}


def test_kernels_beside_their_yardsticks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ids = ["tiny_gated_1x18944x3584", "tiny_silu_product_128x768"]
    for id in ids:
        kernel_write.main(tmp_path / f"{id}.onnx", ["kernels", "own"] if "gated" in id else ["kernels"])
    gpu_once.main(tmp_path / f"{ids[0]}.onnx", "own")
    kernel_time.main(tmp_path, [*ids, "tiny_bias_gelu_128x3072x768"])
    *_, gated, silu, absent = said(capsys)
    assert set(gated["us"]) == {"kernels", "own", "ORT", "cuBLASLt + glu", "copy"}
    assert set(silu["us"]) == set(silu["near"]) == {"kernels", "ORT", "empty", "copy of the first"}
    assert gated["near"] == {}
    for result in (gated, silu):
        assert result["status"] == "ok"
        assert result["made"]["kernels"] == {"error": pytest.approx(0, abs=1e-2), "repeatable": True}
    assert (absent["status"], absent["detail"]) == ("error", "no kernels were built")


@pytest.mark.parametrize("case", [case_of(f"tiny_{c.id}") for c in CASES], ids=lambda c: c.id)
def test_a_case_computes_what_it_is_held_against(case: Any) -> None:
    """The graph by onnx's own interpreter."""
    inputs = {name: kernel_time.values_of(case, name) for name in case.inputs}
    want = exact(case, inputs)
    got = ReferenceEvaluator(case.model()).run(None, {n: x.numpy() for n, x in inputs.items() if not n.endswith("_w")})
    for a, b in zip(want, got, strict=True):
        np.testing.assert_allclose(a.numpy(), b.astype(np.float32), atol=2e-2 * float(a.abs().max()))


def test_every_case_has_its_mathematics_and_something_to_be_held_against() -> None:
    assert {c.math for c in CASES} == set(MATH)
    for case in (case_of(f"tiny_{c.id}") for c in CASES):
        assert yardsticks(case, {name: kernel_time.values_of(case, name) for name in case.inputs})


def test_kernels_that_overlap_count_once() -> None:
    assert gpu_clock.covered([(5.0, 7.0), (0.0, 2.0), (1.0, 4.0), (1.5, 2.0)]) == 6.0
    assert gpu_clock.covered([]) == 0.0


def event(name: str, start: float, end: float, device: str = "CUDA", annotation: bool = False) -> SimpleNamespace:
    span, where = SimpleNamespace(start=start, end=end), getattr(torch.autograd.DeviceType, device)
    return SimpleNamespace(name=name, time_range=span, device_type=where, is_user_annotation=annotation)


def test_the_profilers_events_without_those_that_flush_the_cache() -> None:
    events = [
        event("reduce_kernel<512, 1, ReduceOp<int, ArgMaxOps<int>>>", 0, 100),
        event("gemm", 99, 110),  # started before the one ahead of it ended
        event("pass", 109, 115),
        event("aten::copy_", 0, 200, device="CPU"),
        event("step", 0, 200, annotation=True),
    ]
    assert gpu_clock.busy_us(events) == (15, 2)
    with pytest.raises(RuntimeError, match="no kernel"):
        gpu_clock.busy_us(events[:1])


def test_results_are_of_a_fresh_run() -> None:
    kept, calls = torch.ones(3), []

    def call() -> list[Any]:
        calls.append(kept.clone())
        if len(calls) == 1:
            kept.fill_(2.0)
        return [kept]

    assert gpu_clock.fresh(Contender(call))[0].tolist() == [0.0, 0.0, 0.0], "what a run leaves out is not there"
    numbers = iter(range(9))
    assert not gpu_clock.is_repeatable(Contender(lambda: [torch.full((2,), float(next(numbers)))]))


def test_tiles_are_held_against_what_is_known_to_be_fast(tmp_path: Path) -> None:
    id = "tiny_bias_gelu_512x3072x768"
    kernel_write.main(tmp_path / f"{id}.onnx", ["kernels"])
    rows = [[cell.strip() for cell in row.split("|")[1:4]] for row in rows_of(case_of(id), tmp_path, 2)]
    assert {row[0] for row in rows} == {id}
    assert {row[1] for row in rows} >= ({"none"} if not torch.cuda.is_available() else set())
    assert len(rows) > 1
    assert all(len(row[2].split()) == 2 for row in rows), "a time of each round, and none wrong"
