"""`optimize --lock` and `check`: what was fused is held against what still is, and the exit code tells."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest

from fusion_cli.lock import Lock, LockedKernel, LockedMiss, LockedSpeed
from fusion_cli.lock.compare import Limits, compare
from fusion_cli.lock.lockfile import read_lock, write_lock
from fusion_cli.measured import OutputCheck
from tests.helpers.cli_helpers import ROOT, call, needs_compiler, write_model
from tests.helpers.timings import timing

pytestmark = needs_compiler
ARGUMENTS = ("--target", "cpu", "--force", "--dim", "batch=2", "--dim", "seq=16")


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model, and its lock."""
    folder = tmp_path_factory.mktemp("locked")
    model, lock = write_model(folder / "model.onnx"), folder / "fusion.lock"
    result = call("optimize", model, "-o", folder / "out.onnx", *ARGUMENTS, "--lock", lock)
    assert result.exit_code == 0, result.output
    assert f"next: fusion-cli check {model} --lock {lock}" in result.stdout
    return model, lock


def with_an_abs(model: Path, folder: Path) -> Path:
    """The same with an Abs before the first product: the rule no longer takes the norm."""
    proto = onnx.load(model)
    product = next(n for n in proto.graph.node if n.name == "MatMul/h")
    product.input[0] = "n_abs"
    proto.graph.node.insert(1, onnx.helper.make_node("Abs", ["n"], ["n_abs"], name="Abs/n"))
    onnx.save(proto, folder / "broken.onnx")
    return folder / "broken.onnx"


def test_a_lock_tells_what_was_fused_and_is_written_the_same_again(locked: tuple[Path, Path], tmp_path: Path) -> None:
    model, path = locked
    lock = read_lock(path)
    (fusion,) = lock.fusions
    assert (fusion.rule, fusion.places[0][-1]) == ("FeedForwardBlock", "Add/y")
    kernel = fusion.kernels["cpu"]
    assert len(kernel.source) == 64
    assert kernel.error is not None
    assert kernel.error < 1e-3
    assert lock.options.dims == {"batch": (2, 2), "seq": (16, 16)}
    assert lock.speed is not None
    assert "compiler for cpu" in lock.versions
    call("optimize", model, "-o", tmp_path / "out.onnx", *ARGUMENTS, "--lock", tmp_path / "again.lock")
    assert (tmp_path / "again.lock").read_text() == path.read_text()


def test_a_model_as_it_was_locked_passes(locked: tuple[Path, Path]) -> None:
    model, lock = locked
    result = call("check", model, "--lock", lock)
    assert result.exit_code == 0, result.output
    assert result.stdout == "check passed: 1 of 1 fusion as locked, 4.00x (4.00x locked)\n"
    assert list(model.parent.glob("*checked*")) == []


def test_nodes_that_are_called_differently_are_the_same_fusion(locked: tuple[Path, Path], tmp_path: Path) -> None:
    model, lock = locked
    proto = onnx.load(model)
    for i, node in enumerate(proto.graph.node):
        node.name = f"renamed_{i}"
    onnx.save(proto, tmp_path / "m.onnx")
    result = call("check", tmp_path / "m.onnx", "--lock", lock)
    assert result.exit_code == 0, result.output
    assert "note: the model changed: the same operators" in result.stdout


def test_a_fusion_that_is_lost_fails_and_says_what_stopped_its_rule_where(
    locked: tuple[Path, Path], tmp_path: Path
) -> None:
    model, lock = locked
    broken = with_an_abs(model, tmp_path)
    result = call("check", broken, "--lock", lock)
    assert result.exit_code == 4
    assert "error: " in result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("check FAILED: 0 of 1 fusion as locked")
    assert lines[1] == "- FeedForwardBlock no longer takes 7 nodes at Add/y"
    assert "takes 6 of these nodes only" in lines[2]
    assert "Abs" in lines[2]  # what stands where the rule expects something else
    assert "note: the model changed: +1 Abs" in lines
    assert len(lines) <= 24
    assert call("check", broken, "--lock", lock, "--min-fused", "0").exit_code == 0
    assert call("check", broken, "--lock", lock, "--min-fused", "1").exit_code == 4


def test_numbers_that_do_not_hold_lose_the_fusion(locked: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    model, lock = locked
    monkeypatch.setattr("fusion_cli.verify.ops.compare", lambda *_: [OutputCheck("y", 0.5, 1e-3)])
    result = call("check", model, "--lock", lock)
    assert result.exit_code == 4
    assert "FUS401 (verify)" in result.stdout


def test_errors_have_a_limit(locked: tuple[Path, Path]) -> None:
    model, lock = locked
    result = call("check", model, "--lock", lock, "--max-error", "1e-12")
    assert result.exit_code == 4
    assert "output y has an error of" in result.stdout
    assert call("check", model, "--lock", lock, "--max-error", "1e-3").exit_code == 0


def test_a_model_that_is_slower_than_locked_fails(locked: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    model, lock = locked
    monkeypatch.setattr("fusion_cli.verify.choice.measure", lambda *_: timing(100.0, 100.0, 50.0))
    result = call("check", model, "--lock", lock)
    assert result.exit_code == 4
    assert "2.00x (2.00 to 2.00) of the original's speed, it was 4.00x; at least 3.64x is allowed" in result.stdout
    assert call("check", model, "--lock", lock, "--max-slowdown", "2.5").exit_code == 0
    result = call("check", model, "--lock", lock, "--no-verify")
    assert result.exit_code == 0
    assert "not timed here" in result.stdout


def test_a_new_near_miss_is_told_and_one_that_was_there_is_not(locked: tuple[Path, Path]) -> None:
    lock = read_lock(locked[1])
    miss = LockedMiss("Norm", "FUS101", "n", "Add", "Mul", 2)
    found = replace(lock, near_misses=(miss,))
    findings, _ = compare(lock, found, Limits(), {})
    assert [(f.kind, f.rule, f.reason) for f in findings] == [("near-miss", "Norm", "FUS101 expected Add, found Mul")]
    assert compare(found, found, Limits(), {}) == ([], [])
    assert compare(replace(lock, near_misses=(replace(miss, places=1),)), found, Limits(), {})[0]


def test_a_kernel_that_is_lost_on_one_target_only_is_lost(locked: tuple[Path, Path]) -> None:
    lock = read_lock(locked[1])
    (fusion,) = lock.fusions
    both = replace(lock, fusions=(replace(fusion, kernels={**fusion.kernels, "sm_90a": LockedKernel("0")}),))
    assert [f.kind for f in compare(both, lock, Limits(), {})[0]] == ["fusion-lost"]
    assert compare(lock, both, Limits(), {})[0] == []


def test_noise_is_no_slowdown(locked: tuple[Path, Path]) -> None:
    lock = read_lock(locked[1])
    at = lambda *speed: replace(lock, speed=LockedSpeed("cpu", *speed, {}))  # noqa: E731
    assert compare(at(2.0, 1.9, 2.1), at(1.7, 1.5, 1.9), Limits(), {})[0] == []
    assert compare(at(2.0, 1.9, 2.1), at(1.7, 1.6, 1.75), Limits(), {})[0] != []
    other = replace(lock, speed=LockedSpeed("cuda", 0.5, 0.5, 0.5, {}))
    assert compare(at(2.0, 1.9, 2.1), other, Limits(), {})[0] == []


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "cannot be read as a lock"), ("[]", "no lock of this version"), ('{"lock": 1}', "the lock is damaged")],
)
def test_what_is_no_lock_is_an_error(locked: tuple[Path, Path], tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "fusion.lock").write_text(content)
    result = call("check", locked[0], "--lock", tmp_path / "fusion.lock")
    assert result.exit_code == 1
    assert message in result.stderr
    assert "optimize --lock" in result.stderr


def test_a_dry_run_has_nothing_to_lock(locked: tuple[Path, Path], tmp_path: Path) -> None:
    result = call("optimize", locked[0], "--dry-run", "--lock", tmp_path / "fusion.lock")
    assert result.exit_code == 2
    assert not (tmp_path / "fusion.lock").exists()


@pytest.fixture(scope="module")
def failed(locked: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    broken = with_an_abs(locked[0], tmp_path_factory.mktemp("broken"))
    return lambda form: call("check", broken, "--lock", locked[1], "--format", form).stdout


def test_junit_counts_what_it_holds(failed: Callable[[str], str]) -> None:
    (suite,) = ElementTree.fromstring(failed("junit"))
    cases = suite.findall("testcase")
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == (str(len(cases)), "1", "0")
    assert all(case.get("name") and case.get("classname") for case in cases)
    (failure,) = suite.iter("failure")
    assert failure.get("type") == "fusion-lost"
    assert "FeedForwardBlock no longer takes" in str(failure.get("message"))


def test_github_commands_are_one_line_each(failed: Callable[[str], str], locked: tuple[Path, Path]) -> None:
    lines = failed("github").splitlines()
    first = f"::error file={locked[1]},title=a fusion is lost::FeedForwardBlock no longer takes 7 nodes at Add/y%0A"
    assert lines[0].startswith(first)
    assert all(line.startswith(("::error ", "::notice ", "check FAILED")) for line in lines)


def test_json_has_the_findings_and_both_locks(failed: Callable[[str], str], locked: tuple[Path, Path]) -> None:
    told = json.loads(failed("json"))
    assert told["ok"] is False
    assert [f["kind"] for f in told["findings"]] == ["fusion-lost"]
    assert told["locked"] == json.loads(locked[1].read_text())
    assert told["found"]["fusions"] == []


def test_sarif_follows_its_specification(failed: Callable[[str], str]) -> None:
    """The properties that SARIF 2.1.0 requires, and the references inside it; its whole schema where that is there."""
    log = json.loads(failed("sarif"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "fusion-cli"
    (result,) = run["results"]
    assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    assert result["level"] in ("none", "note", "warning", "error")
    assert "FeedForwardBlock" in result["message"]["text"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    sarif = pytest.importorskip("sarif_pydantic", reason="checks the whole format where it is installed")
    sarif.Sarif.model_validate(log)


def test_a_lock_is_read_as_it_was_written(locked: tuple[Path, Path], tmp_path: Path) -> None:
    lock: Lock = read_lock(locked[1])
    write_lock(lock, tmp_path / "again.lock")
    assert (tmp_path / "again.lock").read_text() == locked[1].read_text()


@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml"])
def test_the_commands_of_the_example_workflows_run(
    name: str, locked: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FUSION_CLI_CACHE", str(tmp_path / "cache"))
    shutil.copy(locked[0], "model.onnx")
    shutil.copy(locked[1], "fusion.lock")
    commands = re.findall(r"- (?:run: )?fusion-cli ([^>\n]*)", (ROOT / "examples" / "ci" / name).read_text("utf-8"))
    assert commands[0].startswith("check ")
    for command in commands:
        result = call(*command.split())
        assert result.exit_code == 0, result.output
