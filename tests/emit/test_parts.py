"""Parts of CUDA sources: what knows another's operands is with it, and together they are the whole."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fusion_cli.build import build
from fusion_cli.emit import emit, emit_registration
from fusion_cli.emit.parts import parts_of
from fusion_cli.types import Source
from tests.emit.test_emit_cuda import SM_90A, needs_nvcc
from tests.helpers.cuda_case import fused_op
from tests.helpers.cuda_plans import all_cases, everything
from tests.helpers.cuda_product_plans import linear

_PART = re.compile(r"#if FUSION_HAS_PART\((\d)\)")
_DEFINED = re.compile(r"^(?:void|bool) ((?:stage|group|phases)_\d+(?:_prepare)?)\(const gpu::Device[^;{]*\) \{$", re.M)
_DECLARED = re.compile(r"^(?:void|bool) (\w+)\(const gpu::Device[^;{]*\);$", re.M)


@dataclass
class Section:
    """What is compiled in a part, and what in the others instead."""

    part: int
    inside: str = ""
    outside: str = ""


def sections(source: Source) -> list[Section]:
    """Those of a source, in their order."""
    found: list[Section] = []
    depth, is_inside = 0, False
    for line in source.text.splitlines(keepends=True):
        begins = _PART.match(line) if depth == 0 else None
        depth += line.startswith("#if") - line.startswith("#endif")
        if begins:
            found.append(Section(int(begins[1])))
            is_inside = True
        elif depth == 1 and line.startswith("#else"):
            is_inside = False
        elif depth > 0 and found and is_inside:
            found[-1].inside += line
        elif depth > 0 and found:
            found[-1].outside += line
    return found


def functions(source: Source) -> dict[str, int]:
    """The part that defines each function that is called from another one."""
    return {name: section.part for section in sections(source) for name in _DEFINED.findall(section.inside)}


def test_a_source_of_few_kernels_is_whole() -> None:
    source = emit(fused_op(linear("float16")), SM_90A)
    assert source.parts == 1
    assert "FUSION_PART" not in source.text


@pytest.mark.parametrize("case", [*all_cases(), *map(everything, ("float16", "float32"))], ids=lambda c: c.name)
def test_every_function_is_defined_in_one_part_and_declared_in_the_others(case) -> None:  # type: ignore[no-untyped-def]
    source = emit(fused_op(case), SM_90A)
    found = sections(source)
    assert {section.part for section in found} == (set(range(source.parts)) if source.parts > 1 else set())
    for section in found:
        assert set(_DECLARED.findall(section.outside)) == set(_DEFINED.findall(section.inside))
    if source.parts > 1:
        assert len(functions(source)) == len(_DEFINED.findall(source.text))
        assert [section.part for section in found if "FUSION_OP(" in section.inside] == [0]


@dataclass
class Made:
    """A function as parts know it."""

    name: str
    is_long: bool = False
    stages: Sequence[Made] = ()


def names(functions: Sequence[Made], groups: Sequence[Made]) -> list[list[str]]:
    made = parts_of(functions, groups)  # type: ignore[arg-type]
    return [[f.name for f in (*part.functions, *part.groups)] for part in made]


LONG, SHORT = [Made(f"long_{i}", is_long=True) for i in range(12)], [Made(f"short_{i}") for i in range(3)]


def test_what_one_launch_runs_is_together() -> None:
    groups = [Made("q", True, [LONG[1], LONG[3]]), Made("r", False, [LONG[3], SHORT[0]])]
    assert names([*LONG[:4], *SHORT], groups) == [
        ["long_2", "short_1", "short_2"],
        ["long_0"],
        ["short_0", "long_1", "long_3", "q", "r"],
    ]


def test_parts_have_alike_many_functions_that_take_long() -> None:
    assert [len(part) for part in names(LONG[:8], [])] == [2, 2, 2, 2]
    assert [len(part) for part in names([*LONG, *SHORT], [])] == [6, 3, 3, 3]
    assert [len(part) for part in names(LONG[:3], [])] == [3]
    assert names(SHORT, []) == [["short_0", "short_1", "short_2"]]
    assert names([], []) == [[]]


@needs_nvcc
def test_parts_are_linked_to_the_kernels_of_the_whole(tmp_path: Path) -> None:
    op = fused_op(next(case for case in all_cases() if case.name == "linear_products_float16_b20_s4"))
    source, registration = emit(op, SM_90A), emit_registration(SM_90A, [op])
    made = [
        build([s, registration], SM_90A, tmp_path, cache_dir=tmp_path / "c") for s in (source, replace(source, parts=1))
    ]
    assert source.parts > 1
    assert [library.compiled for library in made] == [2, 1]
    assert ctypes.CDLL(str(made[0].path)), "nothing is left that no part defines"
    kernels = [set(re.findall(rb"_ZN\d+Case_\w+_kernels\d+\w+", library.path.read_bytes())) for library in made]
    assert kernels[0] == kernels[1] != set()
