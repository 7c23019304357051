"""A compiler, and where the C++ compiler of this machine is."""

from __future__ import annotations

import importlib.util
import os
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
    arguments: tuple[str, ...] = ()
    """Those that come before all others."""

    @property
    def command(self) -> tuple[str, ...]:
        return (str(self.path), *self.arguments)


def version_text(*command: str | Path) -> str:
    """What a compiler answers to --version; "" if it does not run."""
    try:
        result = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout if result.returncode == 0 else ""


@cache
def find_cxx(preferred: str) -> Compiler | None:
    """The C++ compiler named, or else the first on PATH of those that are usual, or else zig's."""
    for name in filter(None, (preferred, "g++", "c++", "clang++")):
        path = shutil.which(name)
        if path is not None and (text := version_text(path)):
            return Compiler(Path(path), text.splitlines()[0].strip())
    return find_zig()


@cache
def find_zig() -> Compiler | None:
    """The C++ compiler of the Python package `ziglang`, which brings the C and C++ libraries of many platforms."""
    spec = importlib.util.find_spec("ziglang")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / ("zig.exe" if os.name == "nt" else "zig")
        if text := version_text(path, "c++"):
            return Compiler(path, f"zig c++, {text.splitlines()[0].strip()}", ("c++",))
    return None
