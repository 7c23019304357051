"""Which targets there are, what `auto` makes of a machine, and which machines a CUDA library registers itself on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fusion_cli.build import advice, find_compiler
from fusion_cli.emit import emit_registration
from fusion_cli.runtime.provider import fit
from fusion_cli.targets import CPU, CUDA, resolve_targets, runs_here
from fusion_cli.types import Target
from tests.helpers.cli_helpers import call

BY_NAME = {t.name: t for t in CUDA}
needs_cxx = pytest.mark.skipif(find_compiler(CPU) is None, reason="there is no C++ compiler")

Machine = Callable[[str, str], None]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Makes this a machine with GPUs of these compute capabilities, and nvcc of this version."""

    def make(capabilities: str, nvcc: str) -> None:
        for name, says in (("nvidia-smi", capabilities), ("nvcc", f"release, V{nvcc}.76")):
            program = tmp_path / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(f"#!/bin/sh\necho '{says}'\n")
            program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("CUDA_HOME", str(tmp_path))

    return make


@needs_cxx
@pytest.mark.parametrize(
    ("capabilities", "nvcc", "expected"),
    [
        ("8.0", "13.0", ["sm_80"]),
        ("8.6", "13.0", ["sm_80"]),
        ("8.9", "13.0", ["sm_89"]),
        ("9.0", "13.0", ["sm_90a"]),
        ("10.0", "13.0", ["sm_100a"]),
        ("12.0", "13.0", ["sm_120a"]),
        # Newer than the known ones, or than the compiler: what runs from PTX.
        ("10.3", "13.0", ["sm_80"]),
        ("12.0", "12.4", ["sm_80"]),
        ("9.0", "11.7", ["sm_80"]),
        ("9.0\n8.0\n9.0", "13.0", ["sm_90a", "sm_80"]),
        ("7.5", "13.0", []),
    ],
)
def test_auto_is_what_suits_the_gpu_best(machine: Machine, capabilities: str, nvcc: str, expected: list[str]) -> None:
    machine(capabilities, nvcc)
    assert [t.name for t in resolve_targets(["auto"])] == (expected or ["cpu"])
    assert all(runs_here(name) for name in expected)


@needs_cxx
def test_an_old_compiler_is_named_with_the_one_that_is_needed(machine: Machine) -> None:
    machine("12.0", "12.4")
    assert find_compiler(BY_NAME["sm_90a"]) is not None
    assert find_compiler(BY_NAME["sm_120a"]) is None
    assert "nvcc 12.4.76 is too old for sm_120a: put nvcc 12.8 or newer" in advice(BY_NAME["sm_120a"])
    findings = {f["name"]: f for f in json.loads(call("doctor", "--json").stdout)}
    assert findings["target auto"]["found"] == "sm_80"
    assert not findings["nvcc"]["ok"]
    assert findings["nvcc"]["found"].endswith("for sm_80, sm_89, sm_90a")
    assert "nvcc 12.8 or newer" in findings["nvcc"]["advice"]


RUNTIME = """
#include <cstdlib>
#define CUDART_VERSION 13000
enum { cudaSuccess, cudaErrorNoDevice };
enum Attribute { cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor };
inline int number(const char* name) { return atoi(getenv(name)); }
inline int cudaGetDeviceCount(int* n) { *n = number("DEVICES"); return *n ? cudaSuccess : cudaErrorNoDevice; }
inline int cudaGetLastError() { return cudaSuccess; }
inline int cudaDriverGetVersion(int* version) { *version = number("DRIVER"); return cudaSuccess; }
inline int cudaDeviceGetAttribute(int* value, Attribute what, int device) {
  // The last device is the one that is asked about, the others are too old for anything.
  const int capability = device + 1 == number("DEVICES") ? number("CAPABILITY") : 75;
  *value = what == cudaDevAttrComputeCapabilityMajor ? capability / 10 : capability % 10;
  return cudaSuccess;
}
"""
NEW, OLD = 13000, 12080
"""Drivers: as new as the compiler, and older."""


@needs_cxx
@pytest.mark.parametrize("target", CUDA, ids=lambda t: t.name)
def test_a_library_registers_on_the_machines_that_it_runs_on(target: Target, tmp_path: Path) -> None:
    text = emit_registration(target, []).text
    guard = text[text.index("#include <cuda_runtime_api.h>") : text.index('extern "C"')]
    (tmp_path / "cuda_runtime_api.h").write_text(RUNTIME)
    (tmp_path / "guard.cc").write_text(guard + "int main() { return unfit() ? 1 : 0; }\n")
    compiler = shutil.which(str(find_compiler(CPU).path))  # type: ignore[union-attr]
    program = tmp_path / "guard"
    subprocess.run([str(compiler), f"-I{tmp_path}", str(tmp_path / "guard.cc"), "-o", str(program)], check=True)

    def registers(capability: tuple[int, int], driver: int = NEW, devices: int = 1) -> bool:
        number = str(10 * capability[0] + capability[1])
        environment = {"DEVICES": str(devices), "CAPABILITY": number, "DRIVER": str(driver)}
        return subprocess.run([str(program)], env=environment).returncode == 0

    for capability in ((7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1)):
        assert registers(capability) == bool(fit(target.arch, capability)), capability
    own = {"sm_80": (8, 0), "sm_89": (8, 9), "sm_90a": (9, 0), "sm_100a": (10, 0), "sm_120a": (12, 0)}[target.name]
    assert registers(own, OLD)
    assert registers(own, devices=3)
    assert not registers(own, devices=0)
    assert not registers((13, 0), OLD)
    assert registers((13, 0)) == (target.name in ("sm_80", "sm_89"))
