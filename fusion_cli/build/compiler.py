"""A compiler, and where the C++ compiler of this machine is."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Compiler:
    """A compiler driver, what it says it is, and the environment it needs on top of the process's own."""

    path: Path
    version: str
    env: tuple[tuple[str, str], ...] = ()


@cache
def find_cxx(preferred: str) -> Compiler | None:
    """The C++ compiler named, or else the first on PATH of those that are usual."""
    for name in filter(None, (preferred, "g++", "c++", "clang++")):
        path = shutil.which(name)
        if path is None:
            continue
        try:
            result = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if result.returncode == 0 and result.stdout:
            return Compiler(Path(path), result.stdout.splitlines()[0].strip())
    return None
