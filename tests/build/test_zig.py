"""Libraries for other machines, and for this one where no other compiler is: with zig's. The first build for a platform
compiles zig's C++ library, which takes a minute or more: `nox -s zig` installs and runs all of this."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusion_cli.build import advice, build, find_compiler
from fusion_cli.build.compiler import find_cxx, find_zig
from fusion_cli.emit import emit, emit_registration
from fusion_cli.limits import Budget
from fusion_cli.runtime import bundle, write_manifest
from fusion_cli.runtime.provider import this_platform
from fusion_cli.targets import CPU, ELSEWHERE, resolve_targets, runs_here
from fusion_cli.types import Library, Target
from tests.helpers.cli_helpers import ROOT
from tests.helpers.cpu_cases import CASES
from tests.helpers.emit_helpers import cache_dir
from tests.helpers.plus_one import plus_one, write_model

needs_zig = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed")
BY_NAME = {t.name: t for t in ELSEWHERE}
HEADS = {
    "cpu-linux-x86_64": (b"\x7fELF", 18, 62),
    "cpu-linux-aarch64": (b"\x7fELF", 18, 183),
    "cpu-macos-arm64": (b"\xcf\xfa\xed\xfe", 4, 12),  # CPU_TYPE_ARM64, less its highest byte
    "cpu-windows-x86_64": (b"MZ", None, 0x8664),
}
"""How a library of each target begins, and where its processor stands."""


@pytest.fixture
def without_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    for found in (find_cxx, find_zig):
        found.cache_clear()
    yield tmp_path
    for found in (find_cxx, find_zig):
        found.cache_clear()


def test_zig_is_the_compiler_where_there_is_no_other(without_compilers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = without_compilers / "ziglang"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "zig").write_text('#!/bin/sh\n[ "$*" = "c++ --version" ] && echo clang version 20\n')
    (package / "zig").chmod(0o755)
    monkeypatch.syspath_prepend(str(without_compilers))
    monkeypatch.delitem(sys.modules, "ziglang", raising=False)
    found = find_compiler(CPU)
    assert found is not None
    assert found.version == "zig c++, clang version 20"
    assert found.command == (str(package / "zig"), "c++")
    assert find_compiler(BY_NAME["cpu-macos-arm64"]) == found


def test_without_it_what_to_install_is_said(without_compilers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert find_compiler(BY_NAME["cpu-linux-aarch64"]) is None
    for target in (CPU, BY_NAME["cpu-linux-aarch64"]):
        assert "pip install 'onnx-fusion-cli[zig]'" in advice(target)


def test_targets_are_named_by_platform() -> None:
    assert resolve_targets(["cpu-windows-x86_64"]) == (Target("cpu-windows-x86_64", "cpu", platform="windows-x86_64"),)
    assert [t.name for t in ELSEWHERE if runs_here(t.name)] == [n for n in HEADS if n == f"cpu-{this_platform()}"]


def test_the_library_of_this_platform_is_picked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "m.onnx", "m.fusion")
    made = []
    for target in (*ELSEWHERE, CPU):
        path = tmp_path / "m.fusion" / "lib" / target.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(target.name)
        made.append((target, Library(target.name, path, ("Plus_one",))))
    write_manifest(tmp_path / "m.fusion", model=tmp_path / "m.onnx", libraries=made)
    for platform, expected in (("linux-aarch64", "cpu-linux-aarch64"), ("plan9-mips", None)):
        monkeypatch.setattr(bundle, "this_platform", lambda platform=platform: platform)
        found = bundle.find_library(tmp_path / "m.onnx", ["CPUExecutionProvider"], ["CPUExecutionProvider"])
        assert (found.target if found else None) == expected


@pytest.mark.parametrize(
    ("system", "machine", "expected"),
    [
        ("linux", "x86_64", "linux-x86_64"),
        ("linux", "aarch64", "linux-aarch64"),
        ("darwin", "arm64", "macos-arm64"),
        ("win32", "AMD64", "windows-x86_64"),
    ],
)
def test_platforms_have_one_name(monkeypatch: pytest.MonkeyPatch, system: str, machine: str, expected: str) -> None:
    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert this_platform() == expected


def made_for(target: Target, names: tuple[str, ...], folder: Path) -> Path:
    ops = [CASES[name].op if name in CASES else plus_one() for name in names]
    sources = [*(emit(op, target) for op in ops), emit_registration(target, ops)]
    return build(sources, target, folder, cache_dir=cache_dir(), budget=Budget(1800)).path


@needs_zig
@pytest.mark.parametrize("name", list(HEADS))
def test_a_library_is_for_its_platform(name: str, tmp_path: Path) -> None:
    path = made_for(BY_NAME[name], ("Norm_fixed", "Linear_bias", "Attention_float16"), tmp_path)
    data, (magic, at, processor) = path.read_bytes(), HEADS[name]
    assert data.startswith(magic)
    if at is None:
        at = int.from_bytes(data[0x3C:0x40], "little") + 4
    assert int.from_bytes(data[at : at + 2], "little") == processor
    assert b"RegisterCustomOps\0" in data
    assert path.suffix == {"macos": ".dylib", "windows": ".dll"}.get(BY_NAME[name].platform.split("-")[0], ".so")
    assert path.stat().st_size < 1_500_000


CPU_INFO = """processor	: 0
Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x0
CPU part	: 0xd08
CPU revision	: 3

"""


@needs_zig
def test_a_library_for_aarch64_runs_in_its_onnx_runtime(tmp_path: Path) -> None:
    """FUSION_CLI_AARCH64 is the unpacked wheel of ONNX Runtime for that machine."""
    emulator, system = shutil.which("qemu-aarch64-static"), Path("/usr/aarch64-linux-gnu/lib")
    if emulator is None or not (system / "libstdc++.so.6").exists():
        pytest.skip("needs qemu-user-static, libc6-arm64-cross and libstdc++6-arm64-cross")
    if "FUSION_CLI_AARCH64" not in os.environ:
        pytest.skip("FUSION_CLI_AARCH64 names no wheel of ONNX Runtime for aarch64")
    (runtime,) = (Path(os.environ["FUSION_CLI_AARCH64"]) / "onnxruntime" / "capi").glob("libonnxruntime.so.1.*")
    shutil.copytree(system, tmp_path / "lib", symlinks=True)
    (tmp_path / "lib" / "libonnxruntime.so.1").symlink_to(runtime)
    (tmp_path / "proc").mkdir()  # ONNX Runtime asks there which processor it has
    (tmp_path / "proc" / "cpuinfo").write_text(CPU_INFO)
    zig = find_zig()
    assert zig is not None
    program, source = tmp_path / "run", ROOT / "examples" / "deploy" / "run.cpp"
    flags = [
        "-target",
        "aarch64-linux-gnu.2.28",
        "-std=c++17",
        f"-I{ROOT / 'tests' / 'deploy'}",
        f"-L{tmp_path / 'lib'}",
    ]
    subprocess.run([*zig.command, *flags, source, "-o", program, "-l:libonnxruntime.so.1"], check=True)
    write_model(tmp_path / "m.onnx", None)
    library = made_for(BY_NAME["cpu-linux-aarch64"], ("Plus_one",), tmp_path)
    command = [emulator, "-L", tmp_path, "-cpu", "cortex-a72", "-E", "LD_LIBRARY_PATH=/lib", program]
    result = subprocess.run(
        [*command, tmp_path / "m.onnx", library, "x", "y", "4"], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (0, "2.000000\n" * 4), result.stderr
