"""What docs/deploy.md shows: programs and servers other than ours open a fused model with its kernels."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

from examples.deploy.triton_repository import lay_out
from fusion_cli.build.compiler import find_cxx
from fusion_cli.runtime import write_manifest
from tests.helpers.cli_helpers import ROOT
from tests.helpers.cli_helpers import write_model as write_an_example
from tests.helpers.emit_helpers import CPU, library
from tests.helpers.plus_one import plus_one, write_model

DEPLOY = ROOT / "examples" / "deploy"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """One whose kernel adds 1, where its function adds 2."""
    write_model(tmp_path / "m.onnx", "m.fusion")
    made = library([plus_one()], tmp_path / "m.fusion" / "lib")
    made.path.rename(made.path.with_name("cpu.so"))
    made = type(made)("cpu", made.path.with_name("cpu.so"), made.ops)
    write_manifest(tmp_path / "m.fusion", model=tmp_path / "m.onnx", libraries=[(CPU, made)])
    return tmp_path / "m.onnx"


def onnxruntime_library(folder: Path) -> Path:
    """A folder with libonnxruntime of the installed wheel, under the name that programs look for."""
    spec = importlib.util.find_spec("onnxruntime.capi")
    assert spec is not None
    found = next(Path(str(spec.submodule_search_locations[0])).glob("libonnxruntime.so.1.*"), None)  # type: ignore[index]
    if found is None:
        pytest.skip("this wheel of ONNX Runtime has no libonnxruntime.so")
    folder.mkdir()
    (folder / "libonnxruntime.so.1").symlink_to(found)
    return folder


def test_a_program_in_c_runs_the_kernels(model: Path, tmp_path: Path) -> None:
    compiler = find_cxx("")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    folder = onnxruntime_library(tmp_path / "ort")
    program = tmp_path / "run"
    link = [f"-L{folder}", "-l:libonnxruntime.so.1", f"-Wl,-rpath,{folder}"]
    command = [compiler.path, "-std=c++17", f"-I{Path(__file__).parent}", DEPLOY / "run.cpp", "-o", program, *link]
    subprocess.run(command, check=True)
    arguments = [program, model, model.with_name("m.fusion") / "lib" / "cpu.so", "x", "y", "4"]
    assert subprocess.run(arguments, capture_output=True, text=True, check=True).stdout == "2.000000\n" * 4
    arguments[2] = tmp_path / "none.so"
    failed = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert "none.so" in failed.stderr


def test_a_program_in_csharp_runs_the_kernels(model: Path, tmp_path: Path) -> None:
    dotnet = shutil.which("dotnet")
    if dotnet is None:
        pytest.skip("there is no dotnet")
    project = tmp_path / "csharp"
    shutil.copytree(DEPLOY / "csharp", project)
    restored = subprocess.run([dotnet, "restore", project], capture_output=True, text=True, check=False)
    if restored.returncode != 0:
        pytest.skip(f"NuGet has no ONNX Runtime for it here: {restored.stdout.strip()[-300:]}")
    library = model.with_name("m.fusion") / "lib" / "cpu.so"
    command = [dotnet, "run", "--no-restore", "--project", project, "--", model, library, "x", "y", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "2.000000\n" * 4), done.stdout + done.stderr


def test_what_the_page_shows_of_csharp_is_in_the_program() -> None:
    shown = re.search(r"```csharp\n(.*?)```", (ROOT / "docs" / "deploy.md").read_text("utf-8"), re.DOTALL)
    assert shown is not None
    lines = re.sub(r"\(.*?\)", "(...)", shown[1]).splitlines()
    program = re.sub(r"\(.*?\)", "(...)", (DEPLOY / "csharp" / "Run.cs").read_text("utf-8"))
    assert len(lines) == 3
    assert [line for line in lines if line not in program] == []


def test_tritons_configuration_names_the_library_and_the_values(model: Path, tmp_path: Path) -> None:
    config = lay_out(model, tmp_path / "repository", "fused").read_text()
    found = re.search(r'op_library_filename: "(.*)"', config)
    assert found is not None
    options = ort.SessionOptions()
    options.register_custom_ops_library(found[1])
    session = ort.InferenceSession(tmp_path / "repository" / "fused" / "1" / "model.onnx", options)
    assert session.run(None, {"x": np.ones(3, "f4")})[0].tolist() == [2.0] * 3
    assert 'input [ { name: "x" data_type: TYPE_FP32 dims: [-1] } ]' in config
    assert 'output [ { name: "y" data_type: TYPE_FP32 dims: [-1] } ]' in config
    assert "kind: KIND_CPU" in config


def test_triton_gets_weights_that_lie_outside(model: Path, tmp_path: Path) -> None:
    manifest = model.with_name("m.fusion") / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"data": []', '"data": ["m.onnx-0.data"]'))
    model.with_name("m.onnx-0.data").write_bytes(b"weights")
    lay_out(model, tmp_path / "repository", "fused")
    assert (tmp_path / "repository" / "fused" / "1" / "m.onnx-0.data").read_bytes() == b"weights"


def test_tritons_types_are_those_of_its_protocol() -> None:
    config = pytest.importorskip("tritonclient.grpc.model_config_pb2", reason="tritonclient[grpc] is not installed")
    from examples.deploy.triton_repository import TYPES

    assert set(TYPES.values()) <= set(config.DataType.keys())


def test_a_server_in_python_runs_the_kernels_or_nothing(
    model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = [sys.executable, str(DEPLOY / "serve.py"), str(model)]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "the user of the image"))
    served = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (served.returncode, served.stdout) == (0, "y (1,)\n"), served.stderr
    with (model.with_name("m.fusion") / "lib" / "cpu.so").open("ab") as file:
        file.write(b"damaged")
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "is not the one that was built" in refused.stderr


def engine() -> str | None:
    """Docker or podman, if its daemon answers."""
    for name in ("docker", "podman"):
        program = shutil.which(name)
        if program and subprocess.run([program, "info"], capture_output=True, check=False).returncode == 0:
            return program
    return None


def test_the_image_is_built_and_runs(tmp_path: Path) -> None:
    program = engine()
    if program is None:
        pytest.skip("neither Docker nor podman runs here; nox -s dockerfile does the steps")
    context = tmp_path / "context"
    shutil.copytree(ROOT, context, symlinks=True, ignore=shutil.ignore_patterns(".*", "tests"))
    write_an_example(context / "model.onnx")
    named = ["-f", DEPLOY / "Dockerfile", "-t", "fusion-cli-test", "--build-arg", "OPTIONS=--force"]
    subprocess.run([program, "build", *named, context], check=True)
    subprocess.run([program, "run", "--rm", "fusion-cli-test"], check=True)
