"""Which compilers there are, and the flags each target is built with."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass

from fusion_cli.build.compiler import Compiler, find_cxx
from fusion_cli.build.toolchain_cuda import ARCHITECTURES, find_nvcc, flags, link_flags
from fusion_cli.types import Target
from fusion_cli.version import install


@dataclass(frozen=True)
class Toolchain:
    """Everything the command lines of one target are made of."""

    compiler: Compiler
    kernel_flags: tuple[str, ...]
    register_flags: tuple[str, ...]
    link_flags: tuple[str, ...]


def find_compiler(target: Target) -> Compiler | None:
    """The compiler for a target's kernels, or None (then `advice` says what to install)."""
    if target.kind == "cuda":
        return find_nvcc(target.arch)
    return find_cxx(os.environ.get("CXX", "")) if target.kind == "cpu" else None


def advice(target: Target) -> str:
    """What to install so that `find_compiler` succeeds."""
    if target.kind == "cuda":
        old = find_nvcc()
        if old is not None:
            first = ".".join(map(str, ARCHITECTURES[target.arch]))
            return f"{old.version} is too old for {target.name}: put nvcc {first} or newer on PATH, or set CUDA_HOME"
        host = "" if find_cxx("") else " and a C++ compiler (g++)"
        return f"install nvcc with {install('cuda')}{host}, or put a CUDA toolkit's nvcc on PATH"
    return "install a C++17 compiler (Debian: apt install g++; Fedora: dnf install gcc-c++), or set CXX to one"


def toolchain(target: Target, *, debug: bool) -> Toolchain | None:
    """Compiler and flags for a target, or None without a compiler."""
    compiler = find_compiler(target)
    if compiler is None:
        return None
    if target.kind == "cuda":
        own = tuple(flags(target, debug))
        return Toolchain(compiler, own, own, tuple(link_flags(target)))
    # -O2 with the vectoriser: as fast as -O3 in these loops, and a quarter less time to compile.
    optimize = ("-O2", "-ftree-vectorize", *(("-g",) if debug else ()))
    common = ("-std=c++17", *optimize, "-fPIC", "-fvisibility=hidden", "-Wall")
    # No -ffast-math: NaN and infinities keep their meaning. What is given up is errno, floating-point exception flags
    # as side effects, and separate rounding of a * b + c.
    math = ("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fopenmp-simd")
    return Toolchain(compiler, (*common, *math, *_vector_flags()), common, ("-shared", "-Wl,--no-undefined"))


def _vector_flags() -> tuple[str, ...]:
    """What the registration file checks for before it registers anything."""
    return ("-mavx2", "-mfma", "-mf16c") if platform.machine().lower() in ("x86_64", "amd64") else ()
