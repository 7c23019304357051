"""CUDA sources as operators of the CPU provider: compiled by a C++ compiler against `cuda_host/cuda_runtime.h`."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fusion_cli.build import find_compiler
from fusion_cli.emit import emit, emit_registration
from fusion_cli.resources import resource_dir
from fusion_cli.types import FusedOp, Target
from tests.helpers.emit_helpers import CPU

_RUNTIME = Path(__file__).parent / "cuda_host"
CLUSTERS = _RUNTIME / "clusters"
"""Headers of blocks that run in clusters, as programs need them whose blocks all run at once."""
_FLAGS = ("-std=c++17", "-Og", "-w", "-U_FORTIFY_SOURCE")
"""Half the time of -O1 to compile, and hardly more to run; and fibers jump to each other's stacks."""
MORE_FLAGS = "CUDA_HOST_FLAGS"
"""The environment's flags of the compiler."""
_PTX = {
    "ex2.approx": "y = std::exp2(x)",
    "max.NaN.f32": "z = x > y || x != x ? x : y",
    "min.NaN.f32": "z = x < y || x != x ? x : y",
    "cp.async.cg": "cuda_host::copy_piece(shared, global, is_there)",
    "cp.async.ca": "is_there ? std::memcpy(shared, global, 4) : std::memset(shared, 0, 4)",
    "atom.acq_rel.gpu.global.inc": "before = atomicInc(done, most)",
    "cp.async.commit_group": "",
    "cp.async.wait_group": "",
    "prefetch.global.L2": "",
    "ldmatrix.sync.aligned.m8n8.x4.shared": "cuda_host::ldmatrix(r, shared, false)",
    "ldmatrix.sync.aligned.m8n8.x4.trans": "cuda_host::ldmatrix(r, shared, true)",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16": "cuda_host::mma<half>(c, a, b0, b1)",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16": "cuda_host::mma<bfloat>(c, a, b0, b1)",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32": "cuda_host::mma_tf32(c, a, b0, b1)",
    "cvt.rna.tf32.f32": "out = cuda_host::to_tf32(x)",
    "cvt.rn.f16x2": "out = to_half(low).bits | static_cast<uint32_t>(to_half(high).bits) << 16",
    "cvt.rn.bf16x2": "out = to_bfloat(low).bits | static_cast<uint32_t>(to_bfloat(high).bits) << 16",
}
"""What an instruction does to the variables of the function around it, by how it begins."""
_HOST = {
    "extern __shared__ uint4 dynamic[];": "",
    "__shared__ alignas(16)": "alignas(16) __shared__",
    "dlopen(name, RTLD_NOW | RTLD_NOLOAD)": "cuda_host::vendor(name)",
    "dlsym(library, ": "cuda_host::vendor(",
    'dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD)': "cuda_host::encode_tiled",
    'dlsym(driver, "cuTensorMapEncodeTiled")': "driver",
    "api.KernelContext_GetResource(context, kVersion, id, out)": "cuda_host::resource(id, out)",
}
"""What reads otherwise here than where there is a GPU."""


def host_library(ops: Sequence[FusedOp], folder: Path, *, hopper: bool = False) -> Path:
    """A library that ONNX Runtime loads without a GPU; `hopper`: with the kernels of that alone.

    What is in the environment when a kernel runs: CUDA_HOST_VENDOR, that products are cuBLAS's, and not by the
    library's own kernels, as where that is missing; CUDA_HOST_OWN, that cuDNN is missing; CUDA_HOST_TF32, that the
    provider allows TF32.
    """
    target = Target("sm_90a", "cuda", "sm_90a") if hopper else Target("sm_80", "cuda", "sm_80")
    includes, bodies = {}, []
    for op in ops:
        text = emit(op, target).text.replace("CUDAExecutionProvider", "CPUExecutionProvider")
        includes |= dict.fromkeys(re.findall(r"^#include .*$", text, re.MULTILINE))
        text = re.sub(r"^#include .*$", "", text, flags=re.MULTILINE)
        bodies.append(f"namespace {op.name}_source {{\n{text}\n}}\n")
    _write_headers(folder)
    sources = {"kernels.cc": "\n".join([*includes, *bodies]), "register.cc": emit_registration(CPU, ops).text}
    for name, text in sources.items():
        (folder / name).write_text(text)
    compiler = find_compiler(CPU)
    assert compiler is not None, "a C++ compiler"
    vendor = ("-DFUSION_VENDOR_FROM=cuda_host::vendor_from()", "-DFUSION_CUDNN=cuda_host::has_cudnn()")
    flags = [*_flags(), "-fPIC", "-shared", *vendor]
    flags += [f"-I{_RUNTIME / 'hopper'}"] if hopper else []
    # Libraries share what the vendor's functions were found to be, which here lie in the first of them.
    stay = "-Wl,-z,nodelete"
    command = [str(compiler.path), *flags, stay, f"-I{folder}", f"-I{_RUNTIME}", *sources, "-o", "library.so", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "library.so"


def host_program(source: str, folder: Path, *more: str) -> Path:
    """A program that runs what headers have for GPUs, Hopper's included; `source` is a file of `cuda_host`, `more` are
    flags of the compiler."""
    _write_headers(folder)
    compiler = find_compiler(CPU)
    assert compiler is not None, "a C++ compiler"
    flags = [*_flags(), *more, f"-I{_RUNTIME / 'hopper'}", f"-I{folder}", f"-I{_RUNTIME}"]
    command = [str(compiler.path), *flags, str(_RUNTIME / source), "-o", "program", "-ldl"]
    subprocess.run(command, cwd=folder, check=True)
    return folder / "program"


def output_of(program: Path, *arguments: str, seconds: int = 60) -> str:
    """What a program prints that ends well in so many seconds."""
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=True, timeout=seconds).stdout


def _flags() -> list[str]:
    return [*_FLAGS, *os.environ.get(MORE_FLAGS, "").split()]


def _write_headers(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for header in resource_dir("templates").rglob("*"):
        path = header.relative_to(resource_dir("templates"))
        if header.suffix in (".h", ".cuh") and not (_RUNTIME / path).exists():
            copy = folder / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(_host_header(header.read_text()))


def _host_header(text: str) -> str:
    for there, here in _HOST.items():
        text = text.replace(there, here)
    return re.sub(r"\basm(?: volatile)?\(\s*\"([\w.]+).*?\);", lambda m: _statement(m[1]), text, flags=re.DOTALL)


def _statement(instruction: str) -> str:
    found = [c for name, c in _PTX.items() if f"{instruction}.".startswith(f"{name}.")]
    return f"{found[0] if found else 'no_such_instruction()'};"  # Hopper's own are not compiled
