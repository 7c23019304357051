"""GELU and sigmoids of 16 bits: which products become one factor, and what that factor and the sigmoid are."""

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fusion_cli.build import find_compiler
from fusion_cli.codegen.narrow import INVERSE_ROOT, LOGISTIC, NORMAL, narrowed
from fusion_cli.emit import emit
from fusion_cli.planir.stages import Instr
from fusion_cli.resources import resource_dir
from fusion_cli.types import Target
from tests.helpers.cuda_product_plans import gelu
from tests.helpers.cuda_row_plans import layer_norm
from tests.helpers.emit_helpers import CPU
from tests.helpers.plan_builder import Program, fused_op

Gate = Callable[[Program, int], int]


def gate(p: Program, x: int) -> int:
    return p("Add", p("Erf", p("Mul", x, p.const(math.sqrt(0.5)))), p.const(1.0))


def product(p: Program, x: int, z: int) -> int:
    return p("Mul", p("Mul", x, p("Add", p("Erf", z), p.const(1.0))), p.const(0.5))


FORMS: dict[str, Gate] = {
    "x (1 + erf) / 2": lambda p, x: p("Div", p("Mul", x, gate(p, x)), p.const(2.0)),
    "x (1 + erf) 0.5": lambda p, x: p("Mul", p("Mul", x, gate(p, x)), p.const(0.5)),
    "(x 0.5) (1 + erf)": lambda p, x: p("Mul", p("Mul", x, p.const(0.5)), gate(p, x)),
    "x (0.5 (erf + 1))": lambda p, x: p("Mul", x, p("Mul", p.const(0.5), gate(p, x))),
    "(x / 4) ((1 + erf) 2)": lambda p, x: p("Mul", p("Div", x, p.const(4.0)), p("Mul", gate(p, x), p.const(2.0))),
}
OTHERS: dict[str, Gate] = {
    "not half": lambda p, x: p("Mul", p("Mul", x, gate(p, x)), p.const(0.25)),
    "no factor x": lambda p, x: p("Mul", gate(p, x), p.const(0.5)),
    "two gates": lambda p, x: p("Mul", p("Mul", gate(p, x), gate(p, x)), p.const(0.5)),
    "three factors": lambda p, x: p("Mul", p("Mul", p("Mul", x, gate(p, x)), p.const(0.5)), x),
    "divided by the gate": lambda p, x: p("Div", p("Mul", x, p.const(0.5)), gate(p, x)),
    "a constant over it": lambda p, x: p("Mul", x, p("Div", p.const(0.5), gate(p, x))),
    "erf + 2": lambda p, x: p("Mul", p("Mul", x, p("Add", p("Erf", x), p.const(2.0))), p.const(0.5)),
}


def last(form: Gate, dtype: str) -> tuple[Instr, int, tuple[Instr, ...]]:
    """The last instruction as it becomes, what x is, and the program before."""
    p = Program(dtype)
    x = p.load(0)
    form(p, x)
    return narrowed(p.done())[-1], x, p.done()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("form", FORMS)
def test_however_it_is_written_it_is_one_factor(form: str, dtype: str) -> None:
    instr, x, _ = last(FORMS[form], dtype)
    assert instr == Instr(NORMAL, (x, x), dtype)


@pytest.mark.parametrize(
    ("of", "arg", "times"),
    [
        pytest.param(lambda p, x: p("Div", x, p.const(math.sqrt(2))), "load", None, id="divided"),
        pytest.param(lambda p, x: p("Mul", p.const(0.5), x), "load", math.sqrt(0.5), id="half as wide"),
        pytest.param(lambda p, x: p("Div", p.const(0.5), x), "Div", math.sqrt(2), id="a constant over it"),
        pytest.param(lambda p, x: p("Mul", x, p.const(0.0)), "Mul", math.sqrt(2), id="nothing of it"),
        pytest.param(lambda p, x: p("Tanh", x), "Tanh", math.sqrt(2), id="of something else"),
    ],
)
def test_the_distribution_is_of_what_erf_is_of_times_a_constant(of: Gate, arg: str, times: float | None) -> None:
    instr, _, program = last(lambda p, x: product(p, x, of(p, x)), "float16")
    assert instr.op == NORMAL
    assert program[instr.args[1]].op == arg
    assert instr.value == (None if times is None else pytest.approx(times))


@pytest.mark.parametrize("form", OTHERS)
def test_what_is_no_gelu_stays(form: str) -> None:
    instr, _, program = last(OTHERS[form], "float16")
    assert instr == program[-1]


def test_wider_results_keep_erf() -> None:
    instr, _, program = last(FORMS["x (1 + erf) 0.5"], "float64")
    assert instr == program[-1]


@pytest.mark.parametrize(
    ("dtype", "factor"), [("float16", "normal_half"), ("bfloat16", "normal"), ("float32", "normal_float")]
)
def test_sources_have_the_factor_in_place_of_erf(dtype: str, factor: str) -> None:
    text = emit(fused_op("Gelu", gelu(dtype).plan), Target("sm_90a", "cuda", "sm_90a")).text
    assert f"fusion::{factor}(" in text
    assert "fusion::erf(" not in text


@pytest.mark.parametrize(("dtype", "op"), [("float16", LOGISTIC), ("bfloat16", LOGISTIC), ("float32", "Sigmoid")])
def test_a_sigmoid_is_of_its_own_kind_in_16_bits(dtype: str, op: str) -> None:
    instr, x, _ = last(lambda p, x: p("Sigmoid", x), dtype)
    assert instr == Instr(op, (x,), dtype)


@pytest.mark.parametrize(
    ("dtype", "op"), [("float16", INVERSE_ROOT), ("float32", INVERSE_ROOT), ("float64", "Reciprocal")]
)
def test_the_reciprocal_of_a_root_is_one_instruction(dtype: str, op: str) -> None:
    instr, x, program = last(lambda p, x: p("Reciprocal", p("Sqrt", x)), dtype)
    assert instr == (Instr(op, (x,), dtype) if op == INVERSE_ROOT else program[-1])


def test_another_reciprocal_stays() -> None:
    instr, _, program = last(lambda p, x: p("Reciprocal", p("Exp", x)), "float32")
    assert instr == program[-1]


def test_a_norm_divides_no_number_by_a_length() -> None:
    text = emit(fused_op("Norm", layer_norm("float16").plan), Target("sm_90a", "cuda", "sm_90a")).text
    assert text.count("row.reduce(") == text.count("fusion::share(row.reduce(") > 0
    assert "fusion::inverse_root(" in text
    assert "fusion::sqrt(" not in text


def compiled(name: str, folder: Path) -> Callable[[float], float]:
    """A function of include/scalar.h, as the host has it."""
    compiler = find_compiler(CPU)
    assert compiler is not None
    source = f'#include "include/scalar.h"\nextern "C" float f(float z) {{ return fusion::{name}(z); }}\n'
    (folder / "f.cc").write_text(source)
    command = [compiler.path, "-std=c++17", "-O1", "-fPIC", "-shared", f"-I{resource_dir('templates')}"]
    subprocess.run([*command, "f.cc", "-o", "f.so"], cwd=folder, check=True)
    f = ctypes.CDLL(str(folder / "f.so")).f
    f.restype, f.argtypes = ctypes.c_float, [ctypes.c_float]
    return f


def test_the_inverse_root_is_one_over_the_root(tmp_path: Path) -> None:
    inverse = compiled("inverse_root", tmp_path)
    for x in (1e-38, 0.25, 2.0, 3e38):
        assert inverse(x) == pytest.approx(1 / math.sqrt(x), rel=2e-7)
    assert [inverse(x) for x in (0.0, -0.0, math.inf)] == [math.inf, -math.inf, 0]
    assert math.isnan(inverse(-1.0))
    assert math.isnan(inverse(math.nan))


def test_the_sigmoid_is_the_logistic_function(tmp_path: Path) -> None:
    logistic = compiled("logistic", tmp_path)
    x = np.linspace(-80, 30, 20001, dtype="f4")
    exact = np.array([1 / (1 + math.exp(-v)) for v in x.tolist()])
    assert (np.abs([logistic(v) for v in x.tolist()] - exact) / exact).max() < 6e-6
    assert [logistic(v) for v in (math.inf, 1e30, -math.inf, -1e30)] == [1, 1, 0, 0]
    assert math.isnan(logistic(math.nan))


# The factor, how far off it may be, and down to where by what part of itself.
@pytest.mark.parametrize(
    ("factor", "most", "low", "share"), [("normal", 2e-6, -5.94, 1e-5), ("normal_float", 1.2e-7, -4.95, 3e-5)]
)
def test_the_factor_is_the_normal_distribution_function(
    factor: str, most: float, low: float, share: float, tmp_path: Path
) -> None:
    normal = compiled(factor, tmp_path)
    x = np.linspace(-12, 12, 20001, dtype="f4")
    got = np.array([normal(v) for v in x.tolist()])
    exact = np.array([math.erfc(-v * math.sqrt(0.5)) / 2 for v in x.tolist()])
    assert np.abs(got - exact).max() < most
    assert (np.abs(got - exact) / exact)[x > low].max() < share
    assert [normal(v) for v in (math.inf, 1e30, -math.inf, -1e30)] == [1, 1, 0, 0]
    assert math.isnan(normal(math.nan))


def test_gelu_is_rounded_to_a_neighbour_of_what_it_is_in_float16(tmp_path: Path) -> None:
    normal = compiled("normal_half", tmp_path)
    x = np.arange(2**16, dtype="u2").view("f2")
    x = x[np.abs(x) < 65504]
    got = np.array([np.float32(v) * np.float32(normal(v)) for v in x.tolist()], "f4").astype("f2")
    exact = np.array([v * math.erfc(-v * math.sqrt(0.5)) / 2 for v in x.tolist()])
    nearest = exact.astype("f2")
    below = np.where(nearest.astype("f8") > exact, np.nextafter(nearest, np.float16(-np.inf)), nearest)
    above = np.where(nearest.astype("f8") < exact, np.nextafter(nearest, np.float16(np.inf)), nearest)
    assert ((got == below) | (got == above)).all()
    assert (got == nearest).mean() > 0.96
    assert [normal(v) for v in (math.inf, 1e30, -math.inf, -1e30)] == [1, 1, 0, 0]
    assert math.isnan(normal(math.nan))
