"""The recipe of docs/security.md for models of strangers: in a sandbox a model is optimized, and nothing else done."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import onnx
import onnxruntime as ort
import pytest

from tests.test_pipeline import small_layer

ROOT = Path(__file__).parents[1]
COMMAND = "fusion-cli optimize"


def sandbox() -> str:
    """The recipe up to the command that runs in it."""
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    found = re.search(r"^    (bwrap .*?)\n\n", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    before, _, after = found[1].replace("\\\n", "").partition(COMMAND)
    assert shlex.split(after)[0] == "/tmp/in/model.onnx"
    # What the recipe hides with /tmp and the home folder may hold this checkout, its Python and its packages.
    seen = [
        f"--ro-bind {shlex.quote(p)} {shlex.quote(p)}" for p in dict.fromkeys((sys.base_prefix, sys.prefix, str(ROOT)))
    ]
    return f"{before}{' '.join(seen)} --chdir {shlex.quote(str(ROOT))} "


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the folders of the recipe; skips where it cannot be followed."""
    if shutil.which("bwrap") is None:
        pytest.skip("no bwrap")
    tried = subprocess.run(["bwrap", "--unshare-all", "--ro-bind", "/", "/", "true"], check=False, capture_output=True)
    if tried.returncode:
        pytest.skip(f"bwrap may not make a sandbox here: {tried.stderr.decode()[:200]}")
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    onnx.save(small_layer(), tmp_path / "in" / "model.onnx")
    return tmp_path


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        sandbox() + command, shell=True, cwd=folder, check=False, capture_output=True, text=True, timeout=300,
        env={"HOME": str(Path.home()), "PATH": os.environ["PATH"]},
    )  # fmt: skip


def test_a_model_is_optimized_in_it(folder: Path) -> None:
    arguments = "optimize /tmp/in/model.onnx -o /tmp/out/fused.onnx --timeout 600 --max-memory 4 --target portable"
    done = run(f"{shlex.quote(sys.executable)} -m fusion_cli {arguments}", folder)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (folder / "in").iterdir()) == ["model.onnx"]
    assert {p.suffix for p in (folder / "out").iterdir()} == {".onnx", ".fusion"}
    ort.InferenceSession(folder / "out" / "fused.onnx", providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    "attempt",
    [
        "touch /tmp/in/another",
        f"touch {shlex.quote(str(ROOT / 'another'))}",
        f"test -e {shlex.quote(str(Path.home() / '.ssh'))} -o -e {shlex.quote(str(Path.home() / '.config'))}",
    ],
)
def test_what_else_a_model_might_do_it_cannot(folder: Path, attempt: str) -> None:
    assert run(attempt, folder).returncode != 0
    assert not (ROOT / "another").exists()


def test_there_is_no_network(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        program = f"import socket; socket.create_connection({place}, 5)"
        command = shlex.join([sys.executable, "-c", program])
        subprocess.run(command, shell=True, check=True)
        assert run(command, folder).returncode != 0
