"""A compiler, and where the C++ compiler of this machine is."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Compiler:
    """A compiler driver, and what it says it is."""

    path: Path
    version: str


def version_text(program: str | Path) -> str:
    """What a compiler answers to --version; "" if it does not run."""
    try:
        result = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout if result.returncode == 0 else ""


@cache
def find_cxx(preferred: str) -> Compiler | None:
    """The C++ compiler named, or else the first on PATH of those that are usual."""
    for name in filter(None, (preferred, "g++", "c++", "clang++")):
        path = shutil.which(name)
        if path is not None and (text := version_text(path)):
            return Compiler(Path(path), text.splitlines()[0].strip())
    return None
