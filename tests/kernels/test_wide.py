"""Which products Hopper's own kernel takes, what of them nobody stores, and what the score makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusion_cli.emit import emit
from fusion_cli.kernels import family_of
from fusion_cli.kernels.wide import wide_of, wide_with
from fusion_cli.planir.stages import Linear, Operand, Plan, Tensor
from fusion_cli.types import Target
from tests.helpers.cuda_product_plans import abreast, adding, batched, gated, gelu, linear, products
from tests.helpers.plan_builder import Builder, Program, fused_op
from tests.helpers.product_terms import added, plan_of
from tests.helpers.sized_stages import sized_stages

SM_90A = Target("sm_90a", "cuda", "sm_90a")
DTYPE = "float16"


def variants(plan: Plan) -> list[list[str]]:
    return [[s.variant for s in family_of(plan, x, "cuda").schedules(plan, x, "cuda")] for x in plan.stages]


def test_gate_and_up_are_one_kernel_that_stores_only_what_others_read() -> None:
    plan = gated(DTYPE).plan
    found = wide_with(plan, 0)
    assert found is not None
    assert wide_with(plan, 1) == found
    assert [part.stored for part in found.chains[0]] == [(), ("out0",)]
    assert all("warpgroups together" in names and "warpgroups" not in names for names in variants(plan))
    kept = wide_with(gated(DTYPE, kept=True).plan, 0)
    assert kept is not None
    assert [part.stored for part in kept.chains[0]] == [("out0",), ("out0",)]


def test_the_second_epilogue_reads_the_first_ones_result_where_it_was_made() -> None:
    found = wide_with(gated(DTYPE).plan, 0)
    assert found is not None
    ((gate, up),) = found.chains
    assert [x.operand for x in gate.body.loads] == [2]
    assert up.body.loads == ()
    assert any("y0_0[i]" in line for line in up.body.lines)


def test_a_result_that_another_stage_reads_is_stored() -> None:
    plan = gated(DTYPE).plan
    gate, up = plan.stages
    again = replace(plan, stages=(gate, up, up))
    found = wide_of(again, ((0, 1),))
    assert found is not None
    assert found.chains[0][0].stored == ("out0",)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        pytest.param(gelu(DTYPE).plan, True, id="a bias"),
        pytest.param(gelu("bfloat16").plan, True, id="a bias, bfloat16"),
        pytest.param(gelu("float32").plan, False, id="a result of 32 bits"),
        pytest.param(linear(DTYPE).plan, False, id="a matrix"),
        pytest.param(gated(DTYPE).plan, False, id="a result that only the next epilogue reads"),
        pytest.param(gated(DTYPE, kept=True).plan, True, id="a result that others read, too"),
    ],
)
def test_an_epilogue_is_computed_by_columns_where_all_rows_read_the_same(plan: Plan, expected: bool) -> None:
    found = wide_of(plan, ((0, 1),) if len(plan.stages) > 1 else ((0,),), takes={DTYPE, "bfloat16", "float32"})
    assert found is not None
    assert found.chains[0][0].by_column == expected


@pytest.mark.parametrize("trans_b", [False, True])
def test_the_right_operands_lie_as_they_lie(trans_b: bool) -> None:
    found = wide_with(gated(DTYPE, trans_b=trans_b).plan, 0)
    assert found is not None
    assert found.trans_b == trans_b


def test_right_operands_that_lie_differently_do_not_go_together() -> None:
    plan = gated(DTYPE).plan
    gate, up = plan.stages
    assert isinstance(up, Linear)
    assert wide_of(replace(plan, stages=(gate, replace(up, trans_b=True))), ((0, 1),)) is None


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        pytest.param(linear(DTYPE).plan, True, id="an epilogue that the vendor has not"),
        pytest.param(linear("bfloat16").plan, True, id="bfloat16"),
        pytest.param(linear(DTYPE, trans_b=True).plan, True, id="right operand turned"),
        pytest.param(linear(DTYPE, trans_a=True, trans_b=True).plan, False, id="left operand turned"),
        pytest.param(linear("float32").plan, False, id="float32"),
    ],
)
def test_a_product_whose_epilogue_would_be_a_pass_has_the_kernel(plan: Plan, expected: bool) -> None:
    assert ("warpgroups" in variants(plan)[0]) == expected
    text = emit(fused_op("Product", plan), SM_90A).text
    assert ("stage_0_wide_launch(device, stream, early, x)" in text) == expected
    assert ("stage_0_wide_kernel<Tile>" in text) == expected


@pytest.mark.parametrize(("dtype", "expected"), [(DTYPE, True), ("bfloat16", True), ("float32", False)])
def test_what_the_vendor_adds_itself_is_tried_with_the_kernel_too(dtype: str, expected: bool) -> None:
    plan = adding(dtype, "br").plan
    assert "vendor adds" in variants(plan)[0]
    assert ("warpgroups by trial" in variants(plan)[0]) == expected
    text = emit(fused_op("Product", plan), SM_90A).text
    assert ("stage_0_tiles = gpu::TriedTiles;" in text) == expected
    assert ("tall, add, own)" in text) == expected


def test_a_bare_product_is_the_vendors() -> None:
    assert "warpgroups" not in variants(batched(DTYPE).plan)[1]


def test_a_chain_among_other_products_of_its_operand_stays_apart() -> None:
    plan = products(DTYPE).plan
    assert wide_with(plan, 3) is None
    assert "warpgroups" in variants(plan)[3]


@pytest.mark.parametrize("trans_b", [False, True])
def test_products_side_by_side_are_chains_of_one_kernel(trans_b: bool) -> None:
    plan = abreast(DTYPE, trans_b=trans_b).plan
    found = wide_with(plan, 1)
    assert found is not None
    assert [[(part.stage, part.stored) for part in chain] for chain in found.chains] == [
        [(0, ("out0",))],
        [(1, ("out0",))],
        [(2, ("out0",))],
    ]
    assert all("warpgroups abreast" in names for names in variants(plan))
    assert ["warpgroups" in names for names in variants(plan)] == [False, False, True]
    text = emit(fused_op("Product", plan), SM_90A).text
    assert "gpu::WideOperands<1, 3> x;" in text
    passes = ("x0.p, false", "x1.p, false", "x2.p, true")
    assert " + ".join(f"gpu::vendor_cycles(device, {p})" for p in passes) in text


def window(b: Builder, p: Program) -> tuple[int, list[Operand]]:
    whole = b.input(DTYPE, "2n")
    at, steps = b.op("const", ints=(0,)), b.op("const", ints=(2,))
    b.tensors.append(Tensor("view", whole, DTYPE, ("n",), b.op("const", ints=(40,)), "", at, steps))
    return p("Add", p("acc", dtype=DTYPE), p.load(2, DTYPE)), [Operand(len(b.tensors) - 1)]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        pytest.param(plan_of(added("n")), ("0", "1"), id="a row"),
        pytest.param(plan_of(added(1, "n")), ("0", "1"), id="a row with an axis of one"),
        pytest.param(plan_of(added("m", "n")), ("e0.row2", "1"), id="a matrix"),
        pytest.param(plan_of(added("m", 1)), ("e0.row2", "e0.column2"), id="a number per row"),
        pytest.param(plan_of(added(1)), ("e0.row2", "e0.column2"), id="one number"),
        pytest.param(plan_of(added(1), space=("m", 1)), ("e0.row2", "e0.column2"), id="one column"),
        pytest.param(
            plan_of(added("m", "m", perm=(1, 0)), space=("m", "m")), ("e0.row2", "e0.column2"), id="transposed"
        ),
        pytest.param(plan_of(window), ("e0.row2", "e0.column2"), id="part of another"),
        pytest.param(adding(DTYPE, "b", trans_b=True).plan, ("0", "1"), id="a row, the right operand turned"),
    ],
)
def test_how_far_apart_an_operands_elements_lie_is_not_asked_where_it_is_known(
    plan: Plan, expected: tuple[str, str]
) -> None:
    found = wide_of(plan, ((0,),))
    assert found is not None
    assert found.chains[0][0].steps == {2: expected}


def test_more_products_than_a_kernel_has_epilogues_for_stay_apart() -> None:
    plan = abreast(DTYPE).plan
    five = tuple((i,) for i in (0, 1, 2, 1, 2))
    assert wide_of(plan, five[:4]) is not None
    assert wide_of(plan, five) is None
    assert wide_of(gated(DTYPE).plan, ((0, 1), (0, 1))) is None
    assert wide_of(gated(DTYPE).plan, ((0, 1, 1),)) is None


SIZES = {"b": 2, "s": 512, "k": 256, "n": 1024}


def test_the_score_counts_one_launch_that_reads_the_left_operand_once_and_nothing_that_nobody_stores() -> None:
    stages = sized_stages(gated(DTYPE).plan, SIZES, "cuda")
    rows, inner, bias = 2 * 512, 256, 1024
    hidden, left, right = rows * 1024, rows * inner, inner * 1024
    works = [family_of(at.plan, at.stage, "cuda").work(at) for at in stages]
    assert [len(w) for w in works] == [1, 1]
    assert [w.bytes for (w,) in works] == [2 * (left + right + bias), 2 * (right + hidden)]
    profile = stages[0].profile
    assert [w.terms(profile).launch for (w,) in works] == [profile.launch("Linear"), 0]
    assert all(w.flops == 2.0 * rows * inner * 1024 for (w,) in works)


def test_the_score_knows_a_product_with_the_kernel_to_itself() -> None:
    def works(plan: Plan, **change: int) -> list[str]:
        (at,) = sized_stages(plan, SIZES | change, "cuda")
        return [work.name for work in family_of(at.plan, at.stage, "cuda").work(at)]

    sizes = {"b": 2, "m": 512}
    assert works(linear(DTYPE).plan, **sizes) == ["Linear"]
    assert works(linear("float32").plan, **sizes) == ["Linear", "Epilogue"]
    assert works(linear(DTYPE).plan, **sizes, n=1028) == ["Linear", "Epilogue"]


@pytest.mark.parametrize(
    ("plan", "sizes", "slowdowns"),
    [
        pytest.param(gelu(DTYPE).plan, {"m": 512}, [1.05], id="an activation"),
        pytest.param(linear(DTYPE).plan, {"m": 512}, [1.1], id="a matrix is read at its end"),
        pytest.param(gated(DTYPE).plan, {}, [1.05, 1.05], id="one for the other"),
        pytest.param(abreast(DTYPE).plan, {"m": 512}, [1.0, 1.0, 1.0], id="side by side"),
    ],
)
def test_what_products_take_beside_the_vendors(plan: Plan, sizes: dict[str, int], slowdowns: list[float]) -> None:
    stages = sized_stages(plan, SIZES | sizes, "cuda")
    works = [work for at in stages for work in family_of(at.plan, at.stage, "cuda").work(at)]
    assert [w.slowdown for w in works] == slowdowns


@pytest.mark.parametrize("change", [{"b": 1, "s": 63}, {"n": 1028}, {"k": 260}])
def test_sizes_that_do_not_suit_the_kernel_have_a_pass(change: dict[str, int]) -> None:
    at = sized_stages(gated(DTYPE).plan, SIZES | change, "cuda")[0]
    assert len(family_of(at.plan, at.stage, "cuda").work(at)) == 2


def test_products_run_together_where_all_of_them_suit_the_kernel() -> None:
    """`m` columns are the second's and the third's."""
    stages = sized_stages(abreast(DTYPE).plan, SIZES | {"m": 516}, "cuda")
    works = [work for at in stages for work in family_of(at.plan, at.stage, "cuda").work(at)]
    assert not any(work.is_joined for work in works)


def test_other_gpus_have_a_pass() -> None:
    at = sized_stages(gated(DTYPE).plan, SIZES, "cuda")[0]
    older = replace(at, profile=replace(at.profile, arch="sm_80"))
    assert len(family_of(at.plan, at.stage, "cuda").work(older)) == 2


@pytest.mark.parametrize("trans_b", [False, True])
def test_kernels_know_which_right_operands_are_constants(trans_b: bool) -> None:
    text = emit(fused_op("Product", gated(DTYPE, trans_b=trans_b).plan), SM_90A).text
    assert "constant_1(fusion::is_constant(api, info, 2))" in text
    assert "constant_0 && constant_1, h" in text
