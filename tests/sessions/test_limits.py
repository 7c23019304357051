"""What takes too much is given up, in words, and nothing outlives the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import onnx
import pytest

from fusion_cli.errors import FusionError
from fusion_cli.limits import Budget, deadline, run
from fusion_cli.sessions import OverBudget, Refused, open_model
from fusion_cli.sessions.process import Process
from tests.helpers.cli_helpers import ROOT, call, write_model
from tests.helpers.graphs import parse

ENDLESS = """g (float[2] x) => (float[2] y) <int64 trips = {4611686018427387904}, bool go = {1}> {
    y = Loop (trips, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
        d = Identity (c) t = Sin (s) }> }"""
LARGE = """g (float[2] x) => (float[n] y) <int64[1] n = {4000000000}> {
    z = ConstantOfShape (n) s = ReduceSum <keepdims = 0> (x) y = Add (z, s) }"""
SECONDS = 20
"""For what ends by itself in a moment; nothing is asserted of how long it takes."""


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    onnx.save(parse(ENDLESS), tmp_path / "endless.onnx")
    return tmp_path / "endless.onnx"


def wait_for(condition: object) -> bool:
    """Whether something comes true in time."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def running(marker: str) -> list[str]:
    """The processes that are alive with this in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if marker in (path / "cmdline").read_text() and ") Z" not in (path / "stat").read_text():
                found.append(path.name)
        except OSError:
            continue
    return found


# ---- runs


def test_a_run_without_end_is_an_error(endless: Path, tmp_path: Path) -> None:
    result = call("optimize", endless, "-o", tmp_path / "out.onnx", "--target", "portable", "--timeout", "2")
    assert result.exit_code == 1
    assert "took more than 2 s; --timeout SECONDS allows more (--no-verify" in result.stderr
    assert list(tmp_path.iterdir()) == [endless]


@pytest.mark.parametrize("command", [("verify",), ("bench", "--seconds", "0")])
def test_no_command_waits_for_a_run_without_end(endless: Path, command: tuple[str, ...]) -> None:
    result = call(command[0], endless, endless, *command[1:], "--timeout", "2")
    assert result.exit_code == 1
    assert "ONNX Runtime cannot run it: it took more than 2 s; --timeout" in result.stderr


def test_a_run_that_takes_too_much_memory_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "large.onnx"
    onnx.save(parse(LARGE), path)
    result = call("optimize", path, "-o", tmp_path / "out.onnx", "--target", "portable", "--max-memory", "1")
    assert result.exit_code == 1
    assert "took more than 1 GiB of memory; --max-memory GIB allows more" in result.stderr
    assert list(tmp_path.iterdir()) == [path]


def test_the_next_model_runs_after_one_that_was_given_up(endless: Path, tmp_path: Path) -> None:
    onnx.save(parse("g (float[2] x) => (float[2] y) { y = Relu (x) }"), tmp_path / "relu.onnx")
    x = {"x": onnx.numpy_helper.to_array(onnx.helper.make_tensor("x", 1, [2], [1.0, 2.0]))}
    with Process(Budget(seconds=2)) as process:
        with pytest.raises(OverBudget, match="more than 2 s"):
            process.open(endless).run(x)
        assert process.open(tmp_path / "relu.onnx").run(x)["y"].tolist() == [1, 2]


PARENT = """
import sys, threading
from fusion_cli.sessions.process import Process
import numpy as np
with Process() as process:
    model = process.open(__import__("pathlib").Path(sys.argv[1]))
    # Late enough that the other process no longer waits for what it is to do.
    threading.Timer(1.0, lambda: print(process._child.pid, flush=True)).start()
    model.run({"x": np.zeros(2, np.float32)})
"""


@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells a process that its parent has ended")
def test_what_runs_a_model_ends_with_its_parent(endless: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(endless)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        worker = parent.stdout.readline().strip()
        parent.kill()
    assert wait_for(lambda: worker not in running("fusion_cli.sessions.worker"))


def test_sigterm_cleans_up(endless: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fusion_cli", "optimize", endless, "-o", tmp_path / "out.onnx"]
    with subprocess.Popen([*map(str, command), "--target", "portable"], cwd=ROOT) as child:
        staged = lambda: list(tmp_path.glob(".out*/out.onnx"))  # noqa: E731
        assert wait_for(staged)
        child.send_signal(signal.SIGTERM)
    assert child.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == [endless]


class Interrupted(threading.Timer):
    """A timer beside the start of which a signal comes."""

    def start(self) -> None:
        super().start()
        raise SystemExit(128 + signal.SIGTERM)


def test_no_timer_is_waited_for_where_a_signal_comes_as_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion_cli.sessions.process.Timer", Interrupted)
    with pytest.raises(SystemExit), Process() as process:
        process.available_providers()
    left = [t for t in threading.enumerate() if isinstance(t, Interrupted)]
    for timer in left:
        timer.join(SECONDS)
    assert not any(t.is_alive() or not t.daemon for t in left)


DEAF = """
import os, signal, time
import click
from fusion_cli.cli.common import Commands

class Last:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)

@click.group(cls=Commands)
def main(): ...

@main.command()
def wait():
    Last()
    time.sleep(20)

main(["wait"])
"""


def test_sigterm_is_not_lost_where_python_lets_no_exception_out() -> None:
    done = subprocess.run([sys.executable, "-c", DEAF], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "")


# ---- what ONNX Runtime refuses


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2] x) => (float[2] y) { y = com.microsoft.NoSuchThing (x) }",
        "g (float[2, 3] x, float[4, 5] z) => (float[n, m] y) { y = MatMul (x, z) }",
    ],
)
def test_a_model_that_onnx_runtime_refuses_is_not_written(tmp_path: Path, text: str) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(parse(text), path)
    with pytest.raises(Refused):
        open_model(path)
    result = call("optimize", path, "-o", tmp_path / "out.onnx", "--target", "portable")
    assert result.exit_code == 1
    assert "ONNX Runtime refuses the model: " in result.stderr
    assert list(tmp_path.iterdir()) == [path]
    assert call("optimize", path, "-o", tmp_path / "out.onnx", "--target", "portable", "--no-verify").exit_code == 0


def test_a_dimension_below_zero_that_onnx_runtime_refuses_is_not_made_loadable(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    model = parse("g (float[2, 3] x) => (float[2, 3] y) { y = Relu (x) }")
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = -64
    onnx.save(model, path)
    result = call("optimize", path, "-o", tmp_path / "out.onnx", "--target", "portable")
    try:
        open_model(path)
    except Refused:
        assert result.exit_code == 1
        assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_verified_is_said_and_not_written_where_that_is_asked_for(tmp_path: Path) -> None:
    """ONNX Runtime has no such kernel for CPUs, which says nothing of the model."""
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(parse("g (double[2] x) => (double[2] y) { y = Erf (x) }"), path)
    command = ("optimize", path, "-o", out, "--target", "portable")
    result = call(*command, "--require-verified")
    assert result.exit_code == 4, result.output
    assert "m.onnx: the model cannot be verified: " in result.stderr
    assert list(tmp_path.iterdir()) == [path]
    result = call(*command)
    assert result.exit_code == 0
    assert "warning: " in result.stderr
    assert "written, but not verified: " in result.stderr
    assert call(*command, "--no-verify", "--require-verified").exit_code == 2


def test_kernels_that_nothing_here_runs_are_not_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion_cli.verify.rollback.runs_here", lambda _: False)
    path = write_model(tmp_path / "m.onnx")
    command = ("optimize", path, "-o", tmp_path / "out.onnx", "--force", "--require-verified")
    assert call(*command, "--target", "cpu").exit_code == 0
    result = call(*command, "--target", "cpu", "--target", "sm_80")
    assert result.exit_code == 4
    assert "no sm_80 here to run its kernels" in result.stderr


# ---- compilers


def test_a_compiler_that_hangs_is_an_error_and_ends_with_its_children(tmp_path: Path) -> None:
    compiler = tmp_path / "hangs"
    compiler.write_text("#!/bin/sh\ncase $1 in --version) echo hangs 1.0;; *) sleep 1000;; esac\n")
    compiler.chmod(0o755)
    model = write_model(tmp_path / "m.onnx")
    env = {"CXX": str(compiler), "FUSION_CLI_CACHE": str(tmp_path / "cache")}
    options = ("--target", "cpu", "--force", "--timeout", "5")
    result = call("optimize", model, "-o", tmp_path / "out.onnx", *options, env=env)
    assert result.exit_code == 5
    assert "cpu: compiling took more than 5 s (--timeout SECONDS allows more)" in result.stderr
    assert not (tmp_path / "out.onnx").exists()
    assert running(str(compiler)) == []


def test_a_program_gets_no_more_memory_than_there_is() -> None:
    command = [sys.executable, "-c", "x = bytearray(1 << 30)"]
    assert run(command, Budget(memory=1 << 28)).returncode != 0
    assert run(command, Budget(memory=1 << 31)).returncode == 0


# ---- stages here


def test_a_stage_that_takes_too_long_is_an_error() -> None:
    def work() -> None:
        with deadline(0.05, "the stage 'x' took too long"):
            while True:
                with suppress(Exception):  # a library that goes on whatever happens
                    time.sleep(0.01)

    with pytest.raises(FusionError, match=r"the stage 'x' took too long \(--timeout"):
        work()
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_an_alarm_of_the_caller_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    try:
        with deadline(1e-3, "late"):
            time.sleep(0.05)
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_large_model_has_more_time() -> None:
    plain, large = Budget.asked(None, None), Budget.asked(None, None, nodes=10_000, weights=8 << 30)
    assert large.seconds > 2 * plain.seconds
    assert Budget.asked(7, 0.5, nodes=10_000) == Budget(7, 1 << 29)
    assert plain.memory == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
