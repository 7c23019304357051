"""What kernels can be asked for, and what `auto` means on this machine."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from fusion_cli.build import find_compiler
from fusion_cli.build.toolchain import PLATFORMS
from fusion_cli.build.toolchain_cuda import ARCHITECTURES
from fusion_cli.errors import FusionError, did_you_mean
from fusion_cli.runtime.provider import fit, this_platform
from fusion_cli.types import Target

_CPU_INFO = Path("/proc/cpuinfo")
PORTABLE = Target("portable", "portable")
CPU = Target("cpu", "cpu")
AMX = Target("amx", "cpu", "amx")
ELSEWHERE = tuple(Target(f"cpu-{platform}", "cpu", platform=platform) for platform in PLATFORMS)
CUDA = tuple(Target(arch, "cuda", arch) for arch in ARCHITECTURES)
DEFINITE = ("portable", "cpu", "amx", *(t.name for t in ELSEWHERE), *ARCHITECTURES)
NAMES = ("auto", *DEFINITE)


def resolve_targets(names: Sequence[str]) -> tuple[Target, ...]:
    """The targets asked for, in order, each once. `auto` is the GPU of this machine, the CPU where there is none, and
    portable where there is no compiler either. Raises FusionError for a name that does not exist."""
    found: dict[str, Target] = {}
    for name in names:
        for target in _auto() if name == "auto" else (_target(name),):
            found[target.name] = target
    return tuple(found.values())


def _target(name: str) -> Target:
    if name not in NAMES:
        raise FusionError(f"no target '{name}'", hint=did_you_mean(name, NAMES) or f"there are {', '.join(NAMES)}")
    return next(t for t in (PORTABLE, CPU, AMX, *ELSEWHERE, *CUDA) if t.name == name)


def _auto() -> tuple[Target, ...]:
    """For each GPU the compilable target that suits it best, for one newer than all of them the oldest: from PTX its
    library runs on the most GPUs."""
    built = [t for t in CUDA if find_compiler(t) is not None]
    found: list[Target] = []
    for capability in _capabilities():
        fitting = [t for t in built if fit(t.arch, capability)]
        native = [t for t in fitting if t.arch.startswith(f"sm_{capability[0]}")]
        found += native[-1:] or fitting[:1]
    return tuple(found) or ((CPU,) if find_compiler(CPU) is not None else (PORTABLE,))


def takes_blocks(targets: Sequence[Target]) -> bool:
    """Whether the one target is the CPU, and on this machine's ONNX Runtime takes channels of convolutions in blocks of
    16: it has AVX-512."""
    here = ("", this_platform())
    return all(t.kind == "cpu" and t.platform in here for t in targets) and has_cpu_flag("avx512f")


def has_cpu_flag(name: str) -> bool:
    """Whether this machine's processor has a feature, as Linux names it."""
    try:
        return f" {name} " in _CPU_INFO.read_text(encoding="utf-8")
    except OSError:
        return False


def runs_here(name: str) -> bool:
    """Whether a processor of this machine runs code for a target other than "cpu"."""
    if name == AMX.name:
        return has_cpu_flag("amx_bf16")
    if name in (t.name for t in ELSEWHERE):
        return name == f"cpu-{this_platform()}"
    return any(fit(name, capability) for capability in _capabilities())


def _capabilities() -> list[tuple[int, int]]:
    """The compute capabilities of this machine's GPUs."""
    return [(int(a), int(b)) for a, b in re.findall(r"(\d+)\.(\d+)", _nvidia("compute_cap"))]


def device_of(target: Target) -> tuple[str, str]:
    """The name of this machine's device for a target, and its driver's version: of the first GPU, or of the CPU, which
    has none."""
    if target.kind != "cuda":
        return machine(), ""
    name, _, driver = (_nvidia("name,driver_version").splitlines() or ["GPU"])[0].rpartition(", ")
    return name or driver, driver if name else ""


def machine() -> str:
    """What the processor of this machine calls itself."""
    try:
        told = re.search(r"^model name\s*:\s*(.+)$", _CPU_INFO.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        told = None
    return f"{told[1] if told else platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def _nvidia(query: str) -> str:
    """What nvidia-smi says of every GPU in a line; nothing where there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        command = [program, f"--query-gpu={query}", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
