"""Finding nvcc, in a CUDA toolkit or in the PyPI wheels of the `cuda` extra, and the flags kernels are built with."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from fusion_cli.build.compiler import Compiler, version_text
from fusion_cli.types import Target

ARCHITECTURES = {"sm_80": (11, 0), "sm_89": (11, 8), "sm_90a": (12, 0), "sm_100a": (12, 8), "sm_120a": (12, 8)}
"""The architectures that kernels can be asked for, and the first nvcc that knows each."""
_PLACES_TEMPORARIES = (11, 2)
"""The first nvcc that is sure to know `-objtemp`."""

_PARTS = (
    ("nvidia-cuda-nvcc", "bin/nvcc"),
    ("nvidia-nvvm", "nvvm/bin/cicc"),
    ("nvidia-cuda-crt", "include/crt/host_config.h"),
    ("nvidia-cuda-runtime", "include/cuda_runtime.h"),
    ("nvidia-cuda-runtime", "lib/libcudart_static.a"),
    ("nvidia-cuda-cccl", "include/cccl/nv/target"),
)
"""What a toolkit made of wheels must hold, and the wheel that brings it."""


def find_nvcc(arch: str = "") -> Compiler | None:
    """nvcc of CUDA_HOME (or CUDA_PATH), else on PATH, else of a toolkit in /usr/local/cuda, else of the wheels.

    None without any, without the host C++ compiler that nvcc needs, or if it is too old for the architecture.
    """
    found = _find(os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "", os.environ.get("PATH", ""))
    if found is None:
        return None
    return found if _release(found) >= ARCHITECTURES.get(arch, (0, 0)) else None


def _release(compiler: Compiler) -> tuple[int, int]:
    major, minor = map(int, re.findall(r"\d+", compiler.version)[:2])
    return major, minor


def flags(target: Target, debug: bool) -> list[str]:
    """Flags for compiling one source of a CUDA library."""
    common = [
        "-std=c++17",
        "-O2",  # of host code, which -O3 takes longer to compile; kernels are the same by either
        _gencode(target.arch),
        "--expt-relaxed-constexpr",
        "-Xcompiler=-fPIC,-fvisibility=hidden",
        "-cudart=static",
    ]
    compiler = find_nvcc()
    if compiler is not None and _release(compiler) >= _PLACES_TEMPORARIES:
        common.append("-objtemp")  # objects name their temporary files, which otherwise are named after the process
    return [*common, "-lineinfo"] if debug else common


def link_flags(target: Target) -> list[str]:
    """Flags for linking a CUDA library: its own CUDA runtime inside and hidden, so that it meets no other's version."""
    common = ["-shared", "-cudart=static", _gencode(target.arch), "-Xlinker=--exclude-libs=ALL"]
    compiler = find_nvcc()
    # A toolkit's nvcc knows its own library folder; the wheels' looks for lib64, which they do not have.
    libraries = compiler.path.parent.parent / "lib" if compiler is not None else None
    return [*common, f"-L{libraries}"] if libraries is not None and libraries.is_dir() else common


def _gencode(arch: str) -> str:
    """Machine code, and PTX beside it, which later GPUs run too; there is none for code of one architecture alone."""
    virtual = arch.replace("sm_", "compute_")
    return f"-gencode=arch={virtual},code={arch if arch.endswith('a') else f'[{arch},{virtual}]'}"


@cache
def _find(home: str, path: str) -> Compiler | None:
    if shutil.which("g++", path=path) is None and shutil.which("clang++", path=path) is None:
        return None
    for candidate in _candidates(home, path):
        release = re.search(r"\bV(\d+\.\d+\.\d+)", version_text(candidate))
        if release is not None:
            return Compiler(candidate, f"nvcc {release[1]}")  # such as "nvcc 13.0.88"
    return None


def _candidates(home: str, path: str) -> Iterator[Path]:
    if home:
        yield Path(home) / "bin" / "nvcc"
    on_path = shutil.which("nvcc", path=path)
    if on_path is not None:
        yield Path(on_path)
    yield Path("/usr/local/cuda/bin/nvcc")
    for root in _wheel_roots():
        if all((root / part).exists() for _, part in _PARTS):
            yield root / "bin" / "nvcc"


def _wheel_roots() -> list[Path]:
    """Toolkit folders of installed wheels, newest CUDA first."""
    spec = importlib.util.find_spec("nvidia")
    folders = spec.submodule_search_locations if spec is not None else None
    roots = [root for folder in folders or () for root in Path(folder).glob("cu[0-9]*")]
    return sorted(roots, key=lambda root: int(re.sub(r"\D", "", root.name) or 0), reverse=True)
