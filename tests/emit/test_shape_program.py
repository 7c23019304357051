"""The shape program in C++ (`include/shape_ops.h`) and in Python give the same numbers: one plans, the other runs."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator, Sequence

import pytest

from fusion_cli.build import find_compiler
from fusion_cli.codegen.text import host_lines
from fusion_cli.plan.shape_program import run_shape_program
from fusion_cli.planir.host_op import ShapeOp
from fusion_cli.planir.stages import Plan
from fusion_cli.resources import resource_dir
from tests.helpers.emit_helpers import CPU

Ints = Sequence[int]
_MOST, _LEAST = 2**63 - 1, -(2**63)

OPS: dict[str, list[tuple[Sequence[Ints], Ints]]] = {
    "broadcast": [([(2, 1, 3), (4, 1)], ()), ([(1,), (5, 1), (2, 1, 7)], ()), ([(3, 4)], ()), ([(), (0,)], ())],
    "matmul": [([(2, 1, 3, 4), (5, 4, 6)], ()), ([(3, 4), (4, 5)], ())],
    "gemm": [([(4, 3) if a else (3, 4), (5, 4) if b else (4, 5)], (a, b)) for a in (0, 1) for b in (0, 1)],
    "permute": [([(2, 3, 4)], (2, 0, 1)), ([()], ())],
    "reshape": [([(2, 6), target], (0,)) for target in ((-1, 4), (0, -1), (0, 2, 3), (12,))]
    + [([(2, 0), (0, 5)], (1,)), ([(0, 4), (-1, 4)], (0,))],
    "reduce": [([(2, 3, 4)], (1, -1)), ([(2, 3, 4)], (0, 0, 2)), ([(2, 3)], (1, 0, 1))],
    "concat": [([(2,), (), (3, 4)], ()), ([(1,)], ())],
    "slice": [([(2, 3, 4, 5)], r) for r in itertools.product((-6, -2, 0, 1, 9), (-9, -1, 0, 3, _MOST), (1, 2, -1, -3))],
    "take": [([(7, 8, 9)], (2, -3, 0)), ([(7,)], ())],
    "put": [([(7, 8, 9), (1, 2)], (-1, 0))],
    "unsqueeze": [([(2, 3)], (0, -1)), ([()], (0,))],
    "squeeze": [([(1, 2, 1)], ()), ([(1, 2, 1)], (-1,)), ([(1, 2, 1)], (0, 2))],
    "flatten": [([(2, 3, 4)], (1,)), ([(2, 3, 4)], (-1,)), ([(2, 3)], (0,)), ([(2, 3)], (2,))],
    "conv": [([(2, 4, 9, 8), (6, 4, 3, 2)], (2, 2, 3, 1, 0, 2, 1, 2, 1, pad)) for pad in range(4)],
    "add": [([(1, -2), (3, 4)], ()), ([(1,), (3, 4)], ()), ([(3, 4), (1,)], ())],
    "sub": [([(1, -2), (3, 4)], ())],
    "mul": [([(2, -3, 0), (5, 7, 9)], ())],
    "div": [([(7, 8, 0), (2, 8, 3)], ())],
    "mod": [([(7, -7, 7, -7, 6), (3, 3, -3, -3, 3)], ())],
    "min": [([(1, -2), (3, -4)], ())],
    "max": [([(1, -2), (3, -4)], ())],
    "equal": [([(1, 2), (1, 3)], ())],
    "where": [([(1, 0, 2), (4, 5, 6), (7, 8, 9)], ())],
    "prod": [([(2, 3, 4)], ()), ([()], ())],
    "fill": [([(3,)], (-1,))],
}  # fmt: skip


def axes() -> Iterator[tuple[list[Ints], list[Ints]]]:
    """Sizes, starts, ends and steps of slices along many axes: those that begin or end outside, forwards and back."""
    bounds = (_LEAST, -5, -4, -1, 0, 2, 3, 4, 7, _MOST)
    rows = list(itertools.product((0, 1, 4), bounds, bounds, (1, 2, -1, -3)))
    for i in range(0, len(rows), 60):
        sizes, starts, ends, steps = map(list, zip(*rows[i : i + 60], strict=True))
        yield [sizes, starts, steps], [sizes, starts, ends, steps]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[ShapeOp, str, tuple[int, ...]]]:
    """Every operation, what C++ gives, and what Python gives."""
    ops: list[ShapeOp] = []

    def add(kind: str, args: Sequence[Ints], ints: Ints) -> None:
        first = len(ops)
        ops.extend(ShapeOp("const", (), tuple(a)) for a in args)
        ops.append(ShapeOp(kind, tuple(range(first, first + len(args))), tuple(ints)))

    for kind, cases in OPS.items():
        for args, ints in cases:
            add(kind, args, ints)
    for of_start, of_count in axes():
        add("slice_start", of_start, ())
        add("slice_count", of_count, ())
    lines = "\n".join(host_lines(Plan((), tuple(ops), (), (), (), 0, ())))
    prints = "\n".join(f'for (int64_t v : h{i}) std::printf("%ld ", (long)v);\nstd::puts("");' for i in range(len(ops)))
    folder = tmp_path_factory.mktemp("host")
    includes = '#include <cstdio>\n#include "include/shape_ops.h"\n'
    source = f"{includes}using namespace fusion;\nint main() {{\n{lines}\n{prints}}}"
    (folder / "program.cc").write_text(source)
    compiler = find_compiler(CPU)
    assert compiler is not None
    command = [str(compiler.path), "-std=c++17", "-O0", f"-I{resource_dir('templates')}", "program.cc", "-o", "program"]
    subprocess.run(command, cwd=folder, check=True)
    found = subprocess.run([folder / "program"], check=True, capture_output=True, text=True).stdout.splitlines()
    return list(zip(ops, found, run_shape_program(ops, {}), strict=True))


@pytest.mark.parametrize("kind", [*OPS, "slice_start", "slice_count"])
def test_both_give_the_same(kind: str, results: list[tuple[ShapeOp, str, tuple[int, ...]]]) -> None:
    for op, found, expected in results:
        if op.kind == kind:
            assert tuple(map(int, found.split())) == expected, op
