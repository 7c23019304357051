"""What kernels can be asked for, and what `auto` means on this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence

from fusion_cli.build import find_compiler
from fusion_cli.errors import FusionError, did_you_mean
from fusion_cli.types import Target

PORTABLE = Target("portable", "portable")
CPU = Target("cpu", "cpu")
CUDA_ARCHITECTURES = ("sm_80", "sm_90a")
NAMES = ("auto", "portable", "cpu", *CUDA_ARCHITECTURES)
_CAPABILITY = {(8, 0): "sm_80", (8, 6): "sm_80", (8, 9): "sm_80", (9, 0): "sm_90a"}


def resolve_targets(names: Sequence[str]) -> tuple[Target, ...]:
    """The targets asked for, in order, each once. `auto` is the GPU of this machine and the CPU, as far as there are
    compilers for them, and portable where there are none. Raises FusionError for a name that does not exist."""
    found: dict[str, Target] = {}
    for name in names:
        for target in _auto() if name == "auto" else (_target(name),):
            found[target.name] = target
    return tuple(found.values())


def _target(name: str) -> Target:
    if name not in NAMES:
        raise FusionError(f"no target '{name}'", hint=did_you_mean(name, NAMES) or f"there are {', '.join(NAMES)}")
    return {"portable": PORTABLE, "cpu": CPU}.get(name) or Target(name, "cuda", name)


def _auto() -> tuple[Target, ...]:
    wanted = [Target(arch, "cuda", arch) for arch in gpu_architectures()] + [CPU]
    return tuple(t for t in wanted if find_compiler(t) is not None) or (PORTABLE,)


def gpu_architectures() -> tuple[str, ...]:
    """The architectures to compile for to use this machine's GPUs; empty without one that is supported."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    query = [program, "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    capabilities = [(int(a), int(b)) for a, b in re.findall(r"(\d+)\.(\d+)", answer)]
    return tuple(dict.fromkeys(_CAPABILITY[c] for c in capabilities if c in _CAPABILITY))
