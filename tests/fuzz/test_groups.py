"""Graphs by the dozen: what is compiled at once is right, and neither a crash nor the end of the time takes what others
found along."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import fusion_cli
from fusion_cli.build import find_compiler
from fusion_cli.sessions.process import Process
from fusion_cli.targets import resolve_targets
from tests.fuzz import groups, together
from tests.fuzz.__main__ import main
from tests.fuzz.groups import Groups
from tests.fuzz.trial import GOOD, Trials
from tests.helpers.graphs import parse

(SM_90A,) = resolve_targets(["sm_90a"])
needs_nvcc = pytest.mark.skipif(find_compiler(SM_90A) is None, reason="nvcc is not installed")


def test_graphs_whose_kernels_are_compiled_together_compute_the_same() -> None:
    found = dict(Groups("cpu", together=2, jobs=2, end=time.monotonic() + 600).outcomes(range(60, 64)))
    assert set(found) == set(range(60, 64))
    assert all(said in GOOD for said in found.values())


@needs_nvcc
def test_kernels_of_many_graphs_for_gpus_are_compiled_together(tmp_path: Path) -> None:
    sources = {}
    for name in ("add", "mul"):
        text = f"g (float[n, 4] x) => (float[n, 4] y) {{ a = Exp (x) y = {name.title()} (a, x) }}"
        (tmp_path / f"{name}.onnx").write_bytes(parse(text).SerializeToString())
        with together.collected() as found:
            fusion_cli.optimize(
                tmp_path / f"{name}.onnx", tmp_path / f"{name}.out.onnx", targets=["sm_90a"], force=True, verify=False
            )
        sources |= found
    library = together.compiled(sources, SM_90A, tmp_path)
    assert len(sources) == 2
    assert library is not None
    assert b"sm_90" in library.read_bytes()


def test_after_a_failure_models_run_in_a_new_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    processes: list[Process] = []

    def compare(trials: together.Trials, _: Path) -> str:
        processes.append(trials.process)
        return "fails: an illegal memory access" if len(processes) == 2 else "right"

    monkeypatch.setattr(together.Trials, "optimize", lambda *_, **__: "")
    monkeypatch.setattr(together.Trials, "compare", compare)
    monkeypatch.setattr(together, "compiled", lambda *_: tmp_path / "all.so")
    found = dict(together.outcomes(range(4), "cpu", tmp_path))
    assert list(found.values()) == ["right", "fails: an illegal memory access", "right", "right"]
    first, same, new, still = processes
    assert first is same
    assert same is not new
    assert new is still


def standing_in(monkeypatch: pytest.MonkeyPatch, at_three: str) -> None:
    """A process that does something else than to run graphs, at seed 3."""
    script = f"""
import json, os, sys, time
for seed in map(int, sys.argv[2:]):
    print(json.dumps((seed, "")), flush=True)
    if seed == 3: {at_three}
    print(json.dumps((seed, "right")), flush=True)
"""
    monkeypatch.setattr(groups, "_PROCESS", (sys.executable, "-c", script))


def outcomes_of(seeds: Sequence[int], seconds: float) -> dict[int, str]:
    return dict(Groups("cpu", together=4, jobs=2, end=time.monotonic() + seconds).outcomes(seeds))


def test_a_crash_is_one_graphs_only(monkeypatch: pytest.MonkeyPatch) -> None:
    standing_in(monkeypatch, 'print("stumbled", file=sys.stderr); os.abort()')
    found = outcomes_of(range(1, 11), 60)
    assert found.pop(3) == "crash: its process ended with exit code -6: stumbled"
    assert found == dict.fromkeys([1, 2, *range(4, 11)], "right")


def test_what_was_found_in_time_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    standing_in(monkeypatch, "time.sleep(100)")
    start = time.monotonic()
    assert outcomes_of(range(1, 11), 5) == dict.fromkeys([1, 2, *range(5, 11)], "right")
    assert time.monotonic() - start < 30


def asked(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["fuzz", *arguments])
    return main()


def test_the_report_says_which_seeds_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    standing_in(monkeypatch, "time.sleep(100)")
    arguments = ("--target", "cpu", "--graphs", "9", "--mutants", "0", "--together", "4", "--keep", str(tmp_path))
    assert asked(monkeypatch, *arguments, "--jobs", "2", "--seconds", "5") == 0
    said = capsys.readouterr().out
    assert "8 graphs, seeds 0 to 2, 4 to 8: 8 right" in said
    assert "1 graphs were not reached in time: seeds 3" in said


def test_a_crash_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    standing_in(monkeypatch, "os.abort()")
    arguments = ("--target", "cpu", "--seed", "2", "--graphs", "3", "--mutants", "0", "--keep", str(tmp_path))
    assert asked(monkeypatch, *arguments) == 1
    said = capsys.readouterr().out
    assert "graphs 3: crash: its process ended with exit code -6" in said
    assert "3 graphs, seeds 2 to 4: 2 right, 1 crash" in said
    assert not list(tmp_path.iterdir())


def test_what_is_not_right_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Trials, "graph", lambda trials, seed: "right" if seed < 2 else "wrong: y is off by 1")
    monkeypatch.setattr("tests.fuzz.__main__.smallest", lambda trials, data, *_: data)
    assert asked(monkeypatch, "--graphs", "3", "--mutants", "0", "--keep", str(tmp_path)) == 1
    said = capsys.readouterr().out
    assert "graphs 2: wrong: y is off by 1" in said
    assert "3 graphs, seeds 0 to 2: 2 right, 1 wrong" in said
    assert [path.name for path in tmp_path.iterdir()] == ["graphs-2.onnx"]


def test_without_a_gpu_it_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Process, "available_providers", lambda _: ["CPUExecutionProvider"])
    with pytest.raises(SystemExit):
        asked(monkeypatch, "--target", "cuda")
    assert "cuda needs a GPU here, nvcc that knows it, and onnxruntime-gpu" in capsys.readouterr().err
