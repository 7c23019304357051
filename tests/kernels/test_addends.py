"""Which epilogues the vendor's product computes itself."""

from __future__ import annotations

import pytest

from fusion_cli.kernels import family_of
from fusion_cli.kernels.addends import Addends, addends_of
from fusion_cli.planir.stages import Linear, Operand, Plan
from tests.helpers.cuda_product_plans import adding, linear
from tests.helpers.plan_builder import Builder, Program
from tests.helpers.product_terms import DTYPE, added, plan_of
from tests.helpers.sized_stages import sized_stages


def first(plan: Plan) -> Linear:
    assert isinstance(plan.stages[0], Linear)
    return plan.stages[0]


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ("b", Addends(2, None, False)),
        ("r", Addends(None, 2, False)),
        ("br", Addends(2, 3, False)),
        ("rbx", Addends(3, 2, True)),
        ("x", Addends(None, None, True)),
    ],
)
def test_a_bias_a_residual_and_a_relu_are_added(terms: str, expected: Addends) -> None:
    plan = adding(DTYPE, terms).plan
    assert addends_of(plan, first(plan)) == expected


def twice(b: Builder, p: Program) -> tuple[int, list[Operand]]:
    acc = p("acc", dtype=DTYPE)
    return p("Add", p("Add", acc, acc), p.load(2, DTYPE)), [Operand(b.input(DTYPE, "n"))]


def three(b: Builder, p: Program) -> tuple[int, list[Operand]]:
    value = p("acc", dtype=DTYPE)
    for k in range(3):
        value = p("Add", value, p.load(2 + k, DTYPE))
    return value, [Operand(b.input(DTYPE, "m", "n")) for _ in range(3)]


def two_biases(b: Builder, p: Program) -> tuple[int, list[Operand]]:
    value = p("Add", p("Add", p("acc", dtype=DTYPE), p.load(2, DTYPE)), p.load(3, DTYPE))
    return value, [Operand(b.input(DTYPE, "n")) for _ in range(2)]


def scaled(b: Builder, p: Program) -> tuple[int, list[Operand]]:
    return p("Mul", p("acc", dtype=DTYPE), p.load(2, DTYPE)), [Operand(b.input(DTYPE, "n"))]


def alone(b: Builder, p: Program) -> tuple[int, list[Operand]]:
    return p("acc", dtype=DTYPE), []


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(plan_of(added("m", 1)), id="a number per row"),
        pytest.param(plan_of(added(1)), id="one number"),
        pytest.param(plan_of(added("m", "m", perm=(1, 0)), space=("m", "m")), id="transposed"),
        pytest.param(plan_of(added("m", "n"), space=("b", "m", "n")), id="the same rows for every batch"),
        pytest.param(plan_of(added("n", dtype="float32")), id="of another type"),
        pytest.param(plan_of(added("n"), out="float32"), id="stored in another type"),
        pytest.param(plan_of(added("n"), second=True), id="stored twice"),
        pytest.param(plan_of(twice), id="the product twice"),
        pytest.param(plan_of(three), id="three residuals"),
        pytest.param(plan_of(two_biases), id="two biases"),
        pytest.param(plan_of(scaled), id="a scale"),
        pytest.param(plan_of(alone), id="nothing"),
        pytest.param(linear(DTYPE).plan, id="an activation"),
    ],
)
def test_other_epilogues_are_passes_of_their_own(plan: Plan) -> None:
    assert addends_of(plan, first(plan)) is None


def test_a_bias_may_have_axes_of_one() -> None:
    plan = plan_of(added(1, "n"))
    assert addends_of(plan, first(plan)) == Addends(2, None, False)


def test_what_the_product_adds_is_no_second_kernel() -> None:
    plan = adding(DTYPE, "br").plan
    (at,) = sized_stages(plan, {"b": 1, "s": 64, "k": 32, "n": 48}, "cuda")
    (work,) = family_of(plan, at.stage, "cuda").work(at)
    assert work.bytes == 2 * (64 * 32 + 32 * 48 + 48 + 2 * 64 * 48)
    assert work.flops == 2.0 * 64 * 32 * 48
    assert "vendor adds" in {s.variant for s in family_of(plan, at.stage, "cuda").schedules(plan, at.stage, "cuda")}
