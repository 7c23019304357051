"""Building libraries: the cache, its keys, failures, and what is said without a compiler."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import stat
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fusion_cli.build import advice, build, default_cache_dir, find_compiler
from fusion_cli.build.cache import digest, included, strip_comments
from fusion_cli.build.compiler import find_cxx
from fusion_cli.build.toolchain import toolchain
from fusion_cli.emit import emit, emit_registration
from fusion_cli.errors import BuildError
from fusion_cli.folders import scratch
from fusion_cli.listener import Listener
from fusion_cli.planir.stages import Pointwise, Store
from fusion_cli.resources import resource_dir
from fusion_cli.types import FusedOp, Library, Source, Target
from tests.helpers.cpu_cases import CASES
from tests.helpers.emit_helpers import CPU, library
from tests.helpers.plan_builder import Builder, Program, fused_op, operands


def activation(function: str, node: str = "") -> FusedOp:
    b, p = Builder(), Program()
    x = b.input("float32", "N")
    out = b.output("float32", ("N",), 0)
    value = p(function, p.load(0))
    b.stages.append(Pointwise(operands(x), p.done(), (Store(out, value),), 0, (node,)))
    return fused_op(f"{function}_1", b.plan())


def make(ops: list[FusedOp], out: Path, cache: Path, **options: Any) -> Library:
    sources = [emit(op, CPU) for op in ops] + [emit_registration(CPU, ops)]
    return build(sources, CPU, out, cache_dir=cache, **options)


def test_a_second_run_compiles_nothing(tmp_path: Path) -> None:
    ops = [activation("Exp"), activation("Neg")]
    first = make(ops, tmp_path / "a", tmp_path / "cache")
    again = make(ops, tmp_path / "b", tmp_path / "cache")
    assert (first.compiled, again.compiled) == (3, 0)
    assert first.path.name == again.path.name
    assert first.path.read_bytes() == again.path.read_bytes()
    assert first.ops == ("Exp_1", "Neg_1")
    assert not list((tmp_path / "cache").glob(".build-*"))


def test_all_parts_of_a_source_are_compiled_and_linked(tmp_path: Path) -> None:
    op, cache = activation("Exp"), tmp_path / "cache"
    whole = emit(op, CPU)
    other = 'extern "C" __attribute__((visibility("default"))) int part_of_it() { return FUSION_PART; }'
    source = replace(whole, text=f"#if FUSION_PART == 0\n{whole.text}\n#else\n{other}\n#endif\n", parts=2)
    sources = [source, emit_registration(CPU, [op])]
    library = build(sources, CPU, tmp_path / "a", cache_dir=cache)
    assert library.compiled == 2
    assert ctypes.CDLL(str(library.path)).part_of_it() == 1
    assert build(sources, CPU, tmp_path / "b", cache_dir=cache).compiled == 0


def test_every_source_that_is_compiled_is_told(tmp_path: Path) -> None:
    class Hears(Listener):
        def __init__(self) -> None:
            self.steps: list[tuple[int, int, str]] = []

        def step(self, done: int, total: int, what: str) -> None:
            self.steps.append((done, total, what))

    first, again = Hears(), Hears()
    make([activation("Exp")], tmp_path / "a", tmp_path / "cache")
    ops = [activation("Exp"), activation("Neg"), activation("Abs")]
    library = make(ops, tmp_path / "b", tmp_path / "cache", listener=first)
    assert [step[:2] for step in first.steps] == [(done, library.compiled) for done in range(library.compiled + 1)]
    assert first.steps[0][2] == "compiling for cpu"
    assert {"Neg_1.cc for cpu", "Abs_1.cc for cpu"} <= {step[2] for step in first.steps}
    make(ops, tmp_path / "c", tmp_path / "cache", listener=again)
    assert again.steps == [], "the cache has all"


@pytest.mark.parametrize("kind", ["objects", "libraries"])
@pytest.mark.parametrize("damage", [b"", b"not what was built"])
def test_what_is_damaged_in_the_cache_is_built_again(tmp_path: Path, kind: str, damage: bytes) -> None:
    op, cache = activation("Exp"), tmp_path / "cache"
    first = make([op], tmp_path / "a", cache)
    for path in (p for p in (cache / kind).rglob("*") if p.is_file()):
        path.write_bytes(damage)
    if kind == "objects":  # they are only asked for where a library is to be linked
        shutil.rmtree(cache / "libraries")
    again = make([op], tmp_path / "b", cache)
    assert again.path.read_bytes() == first.path.read_bytes()
    assert again.compiled == (2 if kind == "objects" else 0)
    assert make([op], tmp_path / "c", cache).compiled == 0


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_a_cache_that_others_can_write_to_is_not_used(tmp_path: Path, mode: int) -> None:
    cache = tmp_path / "cache"
    make([activation("Exp")], tmp_path / "a", cache)
    assert cache.stat().st_mode & 0o777 == 0o700
    cache.chmod(mode)
    with pytest.raises(BuildError, match=r"others can write to the cache of kernels \(remove it"):
        make([activation("Exp")], tmp_path / "b", cache)
    assert not (tmp_path / "b").exists()


def test_a_full_disk_names_what_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make([activation("Exp")], tmp_path / "a", tmp_path / "cache")

    def full(source: Path, *_: object) -> None:
        raise OSError(28, "No space left on device", str(source))

    monkeypatch.setattr("shutil.copyfile", full)
    with pytest.raises(BuildError, match=r"b/libcpu-\w+\.so: cannot write: No space left"):
        make([activation("Exp")], tmp_path / "b", tmp_path / "cache")


def test_what_killed_runs_leave_in_the_cache_is_removed_and_what_others_work_in_stays(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    make([activation("Exp")], tmp_path / "a", cache)
    (cache / ".build-1.fusion-staging").mkdir()
    with scratch(cache / "build") as other:
        assert make([activation("Exp")], tmp_path / "b", cache).compiled == 0
        assert sorted(cache.glob(".*")) == [other]


def test_equal_kernels_of_different_models_share_objects(tmp_path: Path) -> None:
    make([activation("Exp", "model one")], tmp_path / "a", tmp_path / "cache")
    second = make([activation("Exp", "model two"), activation("Neg")], tmp_path / "b", tmp_path / "cache")
    assert second.compiled == 2  # Neg and the registration


def test_debug_and_release_differ(tmp_path: Path) -> None:
    plain = make([activation("Exp")], tmp_path / "a", tmp_path / "cache")
    debug = make([activation("Exp")], tmp_path / "a", tmp_path / "cache", debug=True)
    assert debug.compiled == 2
    assert debug.path != plain.path


def test_another_version_of_the_compiler_compiles_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools = toolchain(CPU, debug=False)
    assert tools is not None
    for version, compiled in (("one", 2), ("two", 2), ("one", 0)):
        other = replace(tools, compiler=replace(tools.compiler, version=version))
        monkeypatch.setattr("fusion_cli.build.toolchain", lambda *_, other=other, **__: other)
        assert make([activation("Exp")], tmp_path / "out", tmp_path / "cache").compiled == compiled


def test_changed_headers_change_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = tmp_path / "cache"
    make([activation("Exp")], tmp_path / "a", cache)
    copy = tmp_path / "templates"
    for path in resource_dir("templates").rglob("*.h"):
        target = copy / path.relative_to(resource_dir("templates"))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(path.read_text() + "\n// only a comment\n")
    sources = [emit(activation("Exp"), CPU), emit_registration(CPU, [activation("Exp")])]
    monkeypatch.setattr("fusion_cli.build.resource_dir", lambda _: copy)
    assert build(sources, CPU, tmp_path / "b", cache_dir=cache).compiled == 0
    scalar = copy / "include" / "scalar.h"
    scalar.write_text(scalar.read_text() + "\nnamespace fusion { constexpr int kChanged = 1; }\n")
    assert build(sources, CPU, tmp_path / "b", cache_dir=cache).compiled == 1


def test_a_failing_compiler_shows_its_last_lines_and_keeps_the_log(tmp_path: Path) -> None:
    op = activation("Exp")
    bad = Source("cpu", op.name, "Exp_1.cc", "int main( { return undeclared_thing; }\n")
    with pytest.raises(BuildError) as caught:
        build([bad, emit_registration(CPU, [op])], CPU, tmp_path / "out", cache_dir=tmp_path / "cache")
    error = caught.value
    assert error.exit_code == 5
    assert error.where == "Exp_1.cc"
    assert "error:" in error.message
    log = Path(error.hint.removeprefix("full log: "))
    assert "undeclared_thing" in log.read_text()
    assert not (tmp_path / "out").exists()
    good = make([op], tmp_path / "out", tmp_path / "cache")
    assert good.compiled == 1  # the registration that did compile was kept


def test_a_failing_link_is_a_build_error(tmp_path: Path) -> None:
    op = activation("Exp")
    with pytest.raises(BuildError, match="fusion_op_Exp_1"):
        build([emit_registration(CPU, [op])], CPU, tmp_path / "out", cache_dir=tmp_path / "cache")


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("fusion_cli.build.compiler.find_zig", lambda: None)
    find_cxx.cache_clear()
    try:
        assert find_compiler(CPU) is None
        assert "g++" in advice(CPU)
        with pytest.raises(BuildError, match="apt install"):
            make([activation("Exp")], tmp_path / "out", tmp_path / "cache")
    finally:
        find_cxx.cache_clear()


def test_cxx_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "my c++"
    own.write_text('#!/bin/sh\nif [ "$1" = --version ]; then echo my compiler 1.0; else exec g++ "$@"; fi\n')
    own.chmod(own.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CXX", str(own))
    found = find_compiler(CPU)
    assert found is not None
    assert found.version == "my compiler 1.0"
    library = make([activation("Exp")], tmp_path / "out dir $x", tmp_path / "cache dir $y")
    assert library.compiled == 2


def test_portable_targets_have_no_compiler() -> None:
    assert find_compiler(Target("portable", "portable")) is None


def test_an_unwritable_place_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(BuildError, match="cannot write"):
        make([activation("Exp")], tmp_path / "out", file)


def test_concurrent_builds_share_a_cache(tmp_path: Path) -> None:
    results: list[Library] = []

    def work(k: int) -> None:
        results.append(make([activation("Exp")], tmp_path / f"out{k}", tmp_path / "cache"))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({r.path.read_bytes() for r in results}) == 1


def test_the_library_exports_its_entry_point_only(tmp_path: Path) -> None:
    library = make([activation("Exp")], tmp_path / "out", tmp_path / "cache")
    loaded = ctypes.CDLL(str(library.path))
    assert hasattr(loaded, "RegisterCustomOps")
    assert not hasattr(loaded, "fusion_op_Exp_1")


def newest(library: Path) -> dict[str, tuple[int, ...]]:
    """The newest version of each system library that a library asks for."""
    listed = subprocess.run(["objdump", "-T", library], capture_output=True, text=True, check=True).stdout
    found: dict[str, tuple[int, ...]] = {}
    for name, version in re.findall(r"\b(GLIBCXX|GLIBC|CXXABI|GCC)_([\d.]+)", listed):
        found[name] = max(found.get(name, ()), tuple(map(int, version.split("."))))
    return found


@pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils are not installed")
def test_a_library_asks_for_no_newer_system_than_onnx_runtime_does(tmp_path: Path) -> None:
    made = library([CASES[name].op for name in ("Linear_bias", "Attention_masked", "Norm_fixed")], tmp_path)
    capi = Path(str(importlib.util.find_spec("onnxruntime.capi").submodule_search_locations[0]))
    wanted = newest(next(capi.glob("onnxruntime_pybind11_state*.so")))
    assert "GLIBC" in wanted
    assert {name: version for name, version in newest(made.path).items() if version > wanted.get(name, ())} == {}


def test_a_key_tells_where_one_text_ends() -> None:
    assert len({digest(parts) for parts in (["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""])}) == 4


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FUSION_CLI_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache_dir() == tmp_path / "xdg" / "fusion-cli"
    monkeypatch.setenv("FUSION_CLI_CACHE", str(tmp_path / "own"))
    assert default_cache_dir() == tmp_path / "own"


def test_comments_are_stripped_but_strings_kept() -> None:
    text = 'int a; // one\n/* two\n lines */ const char* b = "// not \\" /* a comment";\nchar c = \'"\';\n\n'
    assert strip_comments(text) == 'int a;\n  const char* b = "// not \\" /* a comment";\nchar c = \'"\';'


def test_included_headers_are_found_through_each_other() -> None:
    root = resource_dir("templates")
    found = included('#include "cpu/loop.h"\n#include <vector>\n', root)
    assert {p.relative_to(root).as_posix() for p in found} >= {"cpu/loop.h", "include/dims.h", "ort/op.h", "ort/abi.h"}


def test_sources_of_one_name_do_not_collide(tmp_path: Path) -> None:
    """Two sources may have equal file names; their objects are named by content."""
    op = activation("Exp")
    twin = replace(emit(activation("Neg"), CPU), filename="Exp_1.cc")
    sources = [emit(op, CPU), twin, emit_registration(CPU, [op, activation("Neg")])]
    assert build(sources, CPU, tmp_path / "out", cache_dir=tmp_path / "cache").compiled == 3
