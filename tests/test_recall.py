"""What was measured on this machine is not measured again: the same command does the same."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

import fusion_cli
from fusion_cli import pipeline, recall
from fusion_cli.build.cache import entries
from fusion_cli.cli import main
from fusion_cli.report import Report
from fusion_cli.verify import choice, rollback
from tests.helpers.timings import measured
from tests.test_decisions import US, files
from tests.test_pipeline import small_layer

Optimize = Callable[..., Report]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, in which decisions are kept; kernels lie where they do."""
    monkeypatch.setattr(recall, "default_cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(pipeline, "recall", recall.recall)
    monkeypatch.setattr(pipeline, "remember", recall.remember)
    monkeypatch.setattr(rollback, "_OPS_SECONDS", 0.0)
    return tmp_path / "cache"


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    path = tmp_path / "layer.onnx"
    onnx.save(small_layer(), path)
    return path


@pytest.fixture
def optimize(layer: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Optimize:
    """Optimize the layer into a folder, with made-up times of that name; without, nothing may be timed."""

    def run(folder: str, times: str | None = None, **options: object) -> Report:
        (tmp_path / folder).mkdir(exist_ok=True)
        monkeypatch.setattr(choice, "measure", nothing if times is None else measured(US[times]))
        return fusion_cli.optimize(layer, tmp_path / folder / "out.onnx", **{"targets": ["cpu"], **options})

    return run


def nothing(*_: object, **__: object) -> None:
    raise AssertionError("timed")


@pytest.mark.parametrize("times", US)
def test_a_second_run_writes_the_same_and_times_nothing(optimize: Optimize, tmp_path: Path, times: str) -> None:
    first, second = optimize("a", times), optimize("b")
    assert files(tmp_path / "a" / "out.onnx") == files(tmp_path / "b" / "out.onnx")
    assert first.choice is not None
    assert second.choice is not None
    assert dataclasses.replace(second.choice, measured_at="") == first.choice
    assert second.choice.measured_at > "2026-"
    assert (second.targets, second.options) == (first.targets, first.options)
    assert [f.name for f in second.fusions] == [f.name for f in first.fusions]
    assert {(r.code, r.rule, r.target) for r in second.rejected} == {(r.code, r.rule, r.target) for r in first.rejected}


def test_times_of_kernels_are_told_again(optimize: Optimize, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollback, "_OPS_SECONDS", 0.01)
    first = optimize("a", "kernels", force=False)
    monkeypatch.setattr("fusion_cli.sessions.process.RemoteRunner.time_against", nothing)
    second = optimize("b")
    told = [[(c.op, c.before_us, c.after_us) for f in r.fusions for c in f.measured] for r in (first, second)]
    assert told[0] == told[1]
    assert all(before for _, before, _ in told[0])


def test_the_first_line_says_so(layer: Path, optimize: Optimize, tmp_path: Path) -> None:
    optimize("a", "kernels")
    command = ["optimize", str(layer), "-o", str(tmp_path / "b.onnx"), "--target", "cpu", "-q"]
    run = CliRunner().invoke(main, command)
    assert run.exit_code == 0
    assert "2.00x on this CPU" in run.output
    assert ", as measured on 20" in run.output
    assert "--remeasure" in run.output


def test_remeasure_decides_anew_and_that_is_kept(optimize: Optimize, cache: Path) -> None:
    optimize("a", "kernels")
    again = optimize("b", "original", remeasure=True)
    assert again.choice is not None
    assert again.choice.chosen == "original"
    later = optimize("c")
    assert later.choice is not None
    assert later.choice.chosen == "original"
    assert len([e for e in entries(cache) if "decisions" in e.path.parts]) == 1


@pytest.mark.parametrize("options", [{"force": True}, {"tune": True}])
def test_what_is_forced_or_tuned_is_neither_kept_nor_recalled(
    optimize: Optimize, tmp_path: Path, options: dict[str, object]
) -> None:
    if "tune" in options:
        options = {**options, "tuning": tmp_path / "tuning.json"}
    optimize("a", "kernels", **options)
    decided = optimize("b", "simplified")
    assert decided.choice is not None
    assert (decided.choice.chosen, decided.choice.measured_at) == ("simplified", "")
    forced = optimize("c", "kernels", **options)
    assert forced.choice is not None
    assert forced.choice.chosen == "kernels"


@pytest.mark.parametrize("changed", ["options", "inputs", "cores", "rules", "model"])
def test_what_was_decided_for_something_else_is_not_taken(
    optimize: Optimize, layer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    arrays, folder = tmp_path / "inputs.npz", tmp_path / "own"
    shape = [d.dim_value or 3 for d in onnx.load(layer).graph.input[0].type.tensor_type.shape.dim]
    np.savez(arrays, x=np.zeros(shape, np.float32))
    folder.mkdir()
    given: dict[str, object] = {"rule_paths": [folder], "inputs": arrays}
    optimize("a", "kernels", **given)
    if changed == "options":
        given["opt_level"] = 1
    elif changed == "inputs":
        np.savez(arrays, x=np.ones(shape, np.float32))
    elif changed == "cores":
        monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(99)), raising=False)
    elif changed == "rules":
        (folder / "notes.txt").write_text("a rule that was changed")
    else:
        model = onnx.load(layer)
        model.doc_string = "another"
        onnx.save(model, layer)
    found = optimize("b", "original", **given)
    assert found.choice is not None
    assert (found.choice.chosen, found.choice.measured_at) == ("original", "")


@pytest.mark.parametrize("damage", ["cut", "kernel gone"])
def test_what_does_not_hold_any_more_is_measured_anew(optimize: Optimize, cache: Path, damage: str) -> None:
    optimize("a", "kernels")
    (kept,) = (e.path for e in entries(cache) if "decisions" in e.path.parts)
    if damage == "cut":
        kept.write_text(kept.read_text()[:1000])
    else:
        report = json.loads(kept.read_text())
        report["fusions"][0]["name"] = "Gone_00000000"
        kept.unlink()
        fresh = kept.with_name("new.json")
        fresh.write_text(json.dumps(report))
        recall.put(fresh, kept.parent)
    found = optimize("b", "simplified")
    assert found.choice is not None
    assert (found.choice.chosen, found.choice.measured_at) == ("simplified", "")


def test_a_cache_that_cannot_be_written_to_is_no_error(optimize: Optimize, cache: Path) -> None:
    cache.write_text("a file in its place")
    report = optimize("a", "simplified", targets=["portable"])
    assert report.choice is not None
    assert report.choice.chosen == "simplified"
