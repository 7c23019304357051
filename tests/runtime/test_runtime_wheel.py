"""The wheel of the runtime alone: small, and enough with ONNX Runtime and numpy."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fusion_cli.runtime import write_manifest
from tests.helpers.cli_helpers import ROOT
from tests.helpers.emit_helpers import CPU, library
from tests.helpers.plus_one import plus_one, write_model

NEEDED = ("numpy", "onnxruntime")
MOST_BYTES = 2_000_000
ADDS_ONE = """
import warnings; warnings.simplefilter("error")
import numpy as np
found = fusion_cli.session("m.onnx", providers=["CPUExecutionProvider"]).run(None, {"x": np.ones(3, "f4")})[0]
assert found.tolist() == [2.0] * 3, found
assert not {"onnx", "onnx_ir", "click", "jinja2"} & set(sys.modules)
"""

WITHOUT_POSIX = """
import os
sys.modules["fcntl"] = None
del os.geteuid, os.O_NOFOLLOW
"""
"""What a program does not find on Windows."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is installed: the wheel, ONNX Runtime and numpy, and nothing else."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    pytest.importorskip("build", reason="the build front end is not installed")
    folder = tmp_path_factory.mktemp("runtime")
    source = ROOT / "packaging" / "runtime"
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(source)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    wheel = next(folder.glob("onnx_fusion_runtime-*.whl"))
    assert round(wheel.stat().st_size / 1e4) == 2, "docs/deploy.md says 20 kB"
    zipfile.ZipFile(wheel).extractall(folder / "site")
    assert sum(p.stat().st_size for p in (folder / "site").rglob("*") if p.is_file()) < MOST_BYTES
    for name in NEEDED:
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        for path in (package, package.with_name(f"{name}.libs")):
            if path.exists():
                (folder / "site" / path.name).symlink_to(path)
    return folder / "site"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """One whose kernel adds 1, where its function adds 2."""
    write_model(tmp_path / "m.onnx", "m.fusion")
    made = library([plus_one()], tmp_path / "m.fusion" / "lib")
    write_manifest(tmp_path / "m.fusion", model=tmp_path / "m.onnx", libraries=[(CPU, made)])
    return tmp_path / "m.onnx"


def run(site: Path, folder: Path, code: str, system: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """A program in an interpreter that knows the standard library and these packages only."""
    start = f"import sys; sys.path.insert(0, {str(site)!r})\n{system}\nimport fusion_cli\n"
    command = [sys.executable, "-S", "-P", "-c", start + code]
    env = {**{k: v for k, v in os.environ.items() if k != "PYTHONPATH"}, **environment}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_a_session_needs_nothing_else(site: Path, model: Path) -> None:
    result = run(site, model.parent, ADDS_ONE)
    assert result.returncode == 0, result.stderr


def test_what_was_built_elsewhere_is_trusted_once(site: Path, model: Path, tmp_path: Path) -> None:
    stranger = {"XDG_CONFIG_HOME": str(tmp_path / "stranger")}
    assert "not built here by this user" in run(site, model.parent, ADDS_ONE, **stranger).stderr
    result = run(site, model.parent, 'fusion_cli.trust("m.onnx")' + ADDS_ONE, **stranger)
    assert result.returncode == 0, result.stderr
    assert run(site, model.parent, ADDS_ONE, **stranger).returncode == 0


def test_it_says_that_it_optimizes_nothing(site: Path, model: Path) -> None:
    result = run(site, model.parent, 'fusion_cli.optimize("m.onnx", "out.onnx")')
    assert "FusionError: this is onnx-fusion-runtime, which opens optimized models and makes none" in result.stderr
    assert "(pip install onnx-fusion-cli in its place)" in result.stderr


def test_a_system_without_owners_and_locks_trusts_once(site: Path, model: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": ""}
    assert "not built here by this user" in run(site, model.parent, ADDS_ONE, WITHOUT_POSIX, **home).stderr
    result = run(site, model.parent, 'fusion_cli.trust("m.onnx")' + ADDS_ONE, WITHOUT_POSIX, **home)
    assert result.returncode == 0, result.stderr
    assert run(site, model.parent, ADDS_ONE, WITHOUT_POSIX, **home).returncode == 0
    assert [p.name for p in (tmp_path / "home" / ".config" / "fusion-cli").iterdir()] == ["key"]
