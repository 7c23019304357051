"""Models that come from stdin, go to stdout, or take the place of the one that is read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from tests.helpers.cli_helpers import ROOT, call, needs_compiler, write_model


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.onnx")


def pipe(given: bytes, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "fusion_cli", "optimize", *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, cwd=ROOT, check=False, timeout=120)


def test_a_model_goes_through_a_pipe(model: Path) -> None:
    done = pipe(model.read_bytes(), "-", "-o", "-", "--target", "portable", "--no-verify")
    assert done.returncode == 0, done.stderr
    written = onnx.load_from_string(done.stdout)
    onnx.checker.check_model(written, full_check=True)
    assert written.functions
    assert {p.key for p in written.metadata_props} == {"fusion.version"}  # there is no bundle to be looked for
    ort.InferenceSession(done.stdout, providers=["CPUExecutionProvider"])
    assert done.stderr.startswith(b"written without verifying")


def test_a_file_to_stdout_and_stdin_to_a_file(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    assert pipe(b"", model, "-o", "-", "--target", "portable", "--no-verify").stdout
    done = pipe(model.read_bytes(), "-", "-o", out, "--target", "portable", "--no-verify")
    assert done.returncode == 0, done.stderr
    assert out.is_file()
    following = [line for line in done.stdout.decode().splitlines() if line.startswith("next: ")]
    assert following == [f"next: fusion-cli explain {out}", f"next: fusion-cli bench {out}"]


@needs_compiler
def test_what_has_a_library_beside_it_goes_through_no_pipe(model: Path) -> None:
    done = pipe(model.read_bytes(), "-", "-o", "-", "--target", "cpu", "--force")
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"error: stdout: the model has kernels, in a library that goes beside it (-o FILE keeps them" in done.stderr


def test_what_is_on_stdin_is_called_so() -> None:
    done = pipe(b"no model", "-", "-o", "-")
    assert done.returncode == 1
    assert done.stderr.startswith(b"error: stdin: not an ONNX model")
    assert pipe(b"", "-", "-o", "-", "--json").returncode == 2
    assert pipe(b"", "-", "--in-place").returncode == 2


def test_the_model_itself_is_replaced_only_where_that_is_asked_for(model: Path) -> None:
    before = model.read_bytes()
    refused = call("optimize", model, "-o", model, "--target", "portable")
    assert refused.exit_code == 1
    assert "is the model that is read (--in-place replaces it" in refused.stderr
    assert model.read_bytes() == before
    done = call("optimize", model, "--in-place", "--target", "portable")
    assert done.exit_code == 0, done.output
    assert onnx.load(model).functions
    assert f"next: fusion-cli bench {model}\n" in done.stdout
    assert call("verify", model, model).exit_code == 0


def test_a_link_is_not_written_through(model: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.onnx"
    link.symlink_to(model)
    before = model.read_bytes()
    refused = call("optimize", link, "--in-place", "--target", "portable")
    assert refused.exit_code == 1
    assert "is not a regular file" in refused.stderr
    assert model.read_bytes() == before
