"""Which compilers there are, and the flags each target is built with."""

from __future__ import annotations

import os
from dataclasses import dataclass

from fusion_cli.build.compiler import Compiler, find_cxx, find_zig
from fusion_cli.build.toolchain_cuda import ARCHITECTURES, find_nvcc, flags, link_flags
from fusion_cli.runtime.provider import this_platform
from fusion_cli.types import Target
from fusion_cli.version import install

PLATFORMS = {
    "linux-x86_64": "x86_64-linux-gnu.2.17",
    "linux-aarch64": "aarch64-linux-gnu.2.17",
    "macos-arm64": "aarch64-macos.13.0",
    "windows-x86_64": "x86_64-windows-gnu",
}
"""The platforms that libraries are built for on any machine, and what zig calls them, with the oldest system of each
that ONNX Runtime runs on."""
_SUFFIXES = {"macos": ".dylib", "windows": ".dll"}


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
    if target.kind != "cpu":
        return None
    return find_zig() if target.platform else find_cxx(os.environ.get("CXX", ""))


def advice(target: Target) -> str:
    """What to install so that `find_compiler` succeeds."""
    if target.kind == "cuda":
        old = find_nvcc()
        if old is not None:
            first = ".".join(map(str, ARCHITECTURES[target.arch]))
            return f"{old.version} is too old for {target.name}: put nvcc {first} or newer on PATH, or set CUDA_HOME"
        host = "" if find_cxx("") else " and a C++ compiler (g++)"
        return f"install nvcc with {install('cuda')}{host}, or put a CUDA toolkit's nvcc on PATH"
    if target.platform:
        return f"install the compiler that knows other machines: {install('zig')}"
    return (
        "install a C++17 compiler (Debian: apt install g++; Fedora: dnf install gcc-c++), set CXX to one, "
        f"or {install('zig')}"
    )


def suffix(target: Target) -> str:
    """What the name of a library ends with."""
    return _SUFFIXES.get((target.platform or this_platform()).split("-")[0], ".so")


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
    place = target.platform or this_platform()
    machine = ("-target", PLATFORMS[place]) if target.platform else ()
    common = (*machine, "-std=c++17", *optimize, "-fPIC", "-fvisibility=hidden", "-Wall")
    # No -ffast-math: NaN and infinities keep their meaning. What is given up is errno, floating-point exception flags
    # as side effects, and separate rounding of a * b + c.
    math = ("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-fopenmp-simd")
    # What the registration file checks for before it registers anything.
    vectors = ("-mavx2", "-mfma", "-mf16c") if place.endswith("x86_64") else ()
    strict = ("-Wl,--no-undefined",) if place.startswith("linux") else ()  # others allow nothing undefined anyway
    bare = ("-s",) if compiler.arguments and not debug else ()  # zig's own library has debug information
    return Toolchain(compiler, (*common, *math, *vectors), common, (*machine, "-shared", *strict, *bare))
