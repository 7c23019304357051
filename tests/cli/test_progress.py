"""What is said while a run goes on: on a terminal, in a log, and where nobody wants to hear."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import click
import pytest
from rich.console import Console

from fusion_cli.cli import follow
from fusion_cli.cli.follow import progress
from tests.helpers.cli_helpers import call, write_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.onnx")


def hear(quiet: bool = False, verbose: bool = False, seconds: float = 0.0) -> None:
    """What a run may say."""
    context = click.Context(click.Command("optimize"))
    context.meta["fusion_cli.quiet"] = quiet
    with context, progress("optimizing m.onnx", verbose) as listener:
        listener.stage("verify")
        listener.step(3, 17, "Norm_1 on cpu")
        listener.decided("Norm_1: \x1b[31mtaken back")
        time.sleep(seconds)


def test_a_log_has_a_line_every_few_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(follow, "EVERY", 0.05)
    hear(seconds=0.5)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1
    assert set(lines) == {"0:00 optimizing m.onnx: verify, 3 of 17: Norm_1 on cpu"}


def test_what_is_soon_done_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    hear()
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_the_time_and_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(follow, "Console", lambda **_: Console(file=file, force_terminal=True, width=120))
    hear(verbose=True, seconds=0.3)
    assert "optimizing m.onnx: verify, 3 of 17: Norm_1 on cpu" in file.getvalue()
    assert "0:00:00" in file.getvalue()
    assert "verify: Norm_1: \N{REPLACEMENT CHARACTER}[31mtaken back" in file.getvalue()


def test_a_build_tells_the_sources_that_are_compiled(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "EVERY", 0.05)
    monkeypatch.setenv("FUSION_CLI_CACHE", str(tmp_path / "cache"))
    result = call("optimize", model, "-o", tmp_path / "out.onnx", "--target", "cpu", "--force", "--jobs", "1")
    told = re.findall(r"^\d+:\d\d optimizing model.onnx: build, (\d+) of (\d+): (.+) for cpu$", result.stderr, re.M)
    assert told[0] == ("0", told[0][1], "compiling")
    sources = {path.name for path in (tmp_path / "out.fusion" / "src" / "cpu").iterdir()}
    assert len(sources) == int(told[0][1]) > 1
    assert {name for done, _, name in told if done != "0"} & sources


def test_quiet_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(follow, "EVERY", 0.01)
    hear(quiet=True, seconds=0.1)
    assert capsys.readouterr().err == ""


def test_verbose_says_of_every_candidate_what_was_decided_and_why(model: Path, tmp_path: Path) -> None:
    result = call("optimize", model, "-o", tmp_path / "out.onnx", "--target", "cpu", "--force", "-v")
    assert result.exit_code == 0, result.output
    told = re.findall(r"^\d+:\d\d (\w+): (.+)$", result.stderr, re.M)
    assert len(told) == len(result.stderr.splitlines())
    by_stage = {stage: [line for s, line in told if s == stage] for stage, _ in told}
    assert any("would save" in line for line in by_stage["score"])
    assert any(line.endswith(": taken") for line in by_stage["select"])
    assert any("FUS350" in line for line in by_stage["select"])
    assert all("error" in line and "on cpu" in line for line in by_stage["verify"])
    assert by_stage["choose"][-1].startswith("written: the simplified model with kernels")
    assert call("optimize", model, "-o", tmp_path / "out.onnx", "-v", "-q").exit_code == 2
