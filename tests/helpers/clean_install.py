"""The wheel of this checkout in an environment of its own, with the dependencies of this one."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.helpers.cli_helpers import ROOT


def build_wheel(folder: Path) -> Path:
    """The wheel, built into the folder; skips where what builds it is not installed."""
    pytest.importorskip("hatchling", reason="hatchling builds the wheel")
    pytest.importorskip("build", reason="the build front end is not installed")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return next(folder.glob("*.whl"))


def install(wheel: Path, folder: Path) -> Path:
    """The folder of the commands of a new environment that the wheel is installed in. Nothing is downloaded: modules
    that it needs are found where this Python has them, and the checkout is not among them."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    commands = folder / "bin"
    site = next(folder.glob("lib/python*/site-packages"))
    arguments = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run([commands / "python", *arguments], check=True, env=environment)
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return commands
