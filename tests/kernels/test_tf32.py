"""Which products of float32 have a kernel in TF32, alone and side by side, and when it is asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusion_cli.emit import emit
from fusion_cli.kernels import family_of
from fusion_cli.kernels.tf32 import tf32_of, tf32_with
from fusion_cli.kernels.wide import right_input
from fusion_cli.planir.stages import Linear, Plan
from fusion_cli.types import Target
from tests.helpers.cuda_product_plans import abreast, adding, batched, gated, linear, products
from tests.helpers.plan_builder import fused_op
from tests.helpers.sized_stages import sized_stages

SM_80, SM_90A = (Target(arch, "cuda", arch) for arch in ("sm_80", "sm_90a"))
DTYPE = "float32"


def variants(plan: Plan) -> list[list[str]]:
    return [[s.variant for s in family_of(plan, x, "cuda").schedules(plan, x, "cuda")] for x in plan.stages]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        pytest.param(linear(DTYPE).plan, True, id="an epilogue that the vendor has not"),
        pytest.param(adding(DTYPE, "br").plan, True, id="what the vendor adds itself"),
        pytest.param(linear(DTYPE, trans_b=True).plan, True, id="right operand turned"),
        pytest.param(linear(DTYPE, trans_a=True).plan, False, id="left operand turned"),
        pytest.param(linear("float16").plan, False, id="16 bits"),
    ],
)
def test_products_of_float32_have_the_kernel(plan: Plan, expected: bool) -> None:
    assert (tf32_of(plan, 0) is not None) == expected
    assert ("tf32" in variants(plan)[0]) == expected
    for target in (SM_80, SM_90A):
        text = emit(fused_op("Product", plan), target).text
        assert ("blas.tf32() && stage_0_tf32_launch(" in text) == expected
        assert ("tf32_choice.cuh" in text) == expected


def test_a_right_operand_for_every_batch_is_the_vendors() -> None:
    assert ["tf32" in names for names in variants(batched(DTYPE).plan)] == [True, False]


@pytest.mark.parametrize("trans_b", [False, True])
def test_products_side_by_side_are_one_launch(trans_b: bool) -> None:
    plan = abreast(DTYPE, trans_b=trans_b).plan
    found = tf32_with(plan, 1)
    assert found is not None
    assert found.trans_b == trans_b
    assert [[part.stage for part in chain] for chain in found.chains] == [[0], [1], [2]]
    assert all({"tf32 abreast", "tf32"} <= set(names) for names in variants(plan))
    text = emit(fused_op("Product", plan), SM_80).text
    assert "gpu::Tf32Operands<3> x;" in text
    assert "if (!group_0(device, stream, blas, " in text
    passes = ("x0.p, false", "x1.p, false", "x2.p, true")
    assert " + ".join(f"gpu::vendor_tf32_cycles(device, {p})" for p in passes) in text


def test_what_reads_another_s_result_is_not_side_by_side() -> None:
    assert tf32_with(gated(DTYPE).plan, 0) is None
    assert tf32_with(products(DTYPE).plan, 0) is None


def test_right_operands_that_lie_differently_do_not_go_together() -> None:
    plan = abreast(DTYPE).plan
    *others, last = plan.stages
    assert isinstance(last, Linear)
    assert tf32_with(replace(plan, stages=(*others, replace(last, trans_b=True))), 0) is None


@pytest.mark.parametrize("trans_b", [False, True])
def test_constants_are_kept_turned(trans_b: bool) -> None:
    plan = abreast(DTYPE, trans_b=trans_b).plan
    slots = [right_input(plan, i) for i in range(3)]
    assert all("tf32 turned" in names for names in variants(plan))
    text = emit(fused_op("Product", plan), SM_90A).text
    for i, slot in enumerate(slots):
        assert f"turned_{i}(api, info, {slot})" in text
    assert "group_0_turned_wide_launch(device, stream, least < most ? least : most, turned0, turned1, turned2, " in text
    assert "turned_0, turned_1, turned_2, h" in text


def test_what_another_stage_makes_is_not_turned() -> None:
    plan = batched(DTYPE).plan
    assert [right_input(plan, i) is None for i in range(2)] == [False, False]
    assert ["tf32 turned" in names for names in variants(plan)] == [True, False]
    few = linear(DTYPE).plan
    *others, made = few.tensors
    static = replace(few, tensors=(*others, replace(made, shape=(63, *made.shape[1:]))))
    assert static.stages[0].stores[0].tensor == len(others)
    assert "tf32 turned" not in variants(static)[0]


SIZES = {"m": 1024, "n": 3072, "k": 768}


def turned(change: dict[str, int], *, weights: frozenset[int] = frozenset({1}), arch: str = "sm_90a") -> int:
    """Kernels that the score counts."""
    at = sized_stages(linear(DTYPE).plan, SIZES | change, "cuda")[0]
    at = replace(at, weights=weights, profile=replace(at.profile, arch=arch))
    return len(family_of(at.plan, at.stage, "cuda").work(at))


@pytest.mark.parametrize("change", [{"m": 63}, {"n": 3076}, {"k": 766}, {"n": 768}])
def test_the_score_knows_where_constants_are_turned(change: dict[str, int]) -> None:
    assert turned({}) == 1
    assert turned(change) == 2
    assert turned({}, weights=frozenset()) == 2
    assert turned({}, arch="sm_80") == 2
