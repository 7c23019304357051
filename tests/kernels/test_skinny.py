"""Which products one launch may run together, and where their kernel is the one that runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fusion_cli.emit import emit
from fusion_cli.kernels import family_of
from fusion_cli.kernels.skinny import chains_of, is_skinny
from fusion_cli.plan.grouping import find_groups
from fusion_cli.planir.stages import Group, Instr, Linear, Operand, Plan, Pointwise, Store
from fusion_cli.types import Target
from tests.helpers.cuda_host_library import host_program, output_of
from tests.helpers.cuda_product_plans import linear, products
from tests.helpers.plan_builder import Builder, Program, fused_op
from tests.helpers.sized_stages import sized_stages

SM_90A = Target("sm_90a", "cuda", "sm_90a")
DTYPE = "float16"


def gated(read: Callable[[Builder, int], Operand], *, width: str = "n") -> Plan:
    """Two products of x; the epilogue of the second reads the first's result as `read` says."""
    b = Builder()
    x = b.input(DTYPE, "m", "k")
    gate, up = b.input(DTYPE, "k", "n"), b.input(DTYPE, "k", width)
    dims = b.op("matmul", b.dims(x), b.dims(gate))
    first = b.temp(DTYPE, ("m", "n"), dims)
    b.stages.append(Linear((Operand(x), Operand(gate)), (Instr("acc", (), DTYPE),), (Store(first, 0),), dims))
    p = Program()
    value = p("Mul", p("acc", dtype=DTYPE), p.load(2, DTYPE))
    second = b.op("matmul", b.dims(x), b.dims(up))
    out = b.output(DTYPE, ("m", width), second)
    operands = (Operand(x), Operand(up), read(b, first))
    b.stages.append(Linear(operands, p.done(), (Store(out, value),), second))
    return b.plan()


def grouped(plan: Plan) -> tuple[tuple[int, ...], ...] | None:
    (group,) = (g for g in plan.groups if g.kind == "products")
    return chains_of(plan, group)


def test_products_stand_side_by_side_and_in_chains() -> None:
    assert grouped(products(DTYPE).plan) == ((0,), (1,), (2,), (3, 4))


def test_an_epilogue_may_read_what_was_stored_at_its_place() -> None:
    assert grouped(gated(lambda b, t: Operand(t))) == ((0, 1),)


def alias(b: Builder, tensor: int) -> Operand:
    return Operand(b.alias(tensor, ("m", "n"), b.tensors[tensor].dims))


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(gated(lambda b, t: Operand(t, (1, 0))), id="transposed"),
        pytest.param(gated(lambda b, t: Operand(t), width="w"), id="of another width"),
        pytest.param(gated(alias), id="by another name"),
    ],
)
def test_what_lies_elsewhere_is_not_there_yet(plan: Plan) -> None:
    assert grouped(plan) is None


def test_a_factor_is_not_there_yet() -> None:
    plan = gated(lambda b, t: Operand(t))
    second = plan.stages[1]
    assert isinstance(second, Linear)
    assert chains_of(replace(plan, stages=(plan.stages[0], replace(second, b=2))), Group("products", (0, 1))) is None


def test_a_result_must_not_lie_where_another_product_reads() -> None:
    plan = products(DTYPE).plan
    x = plan.stages[0].operands[0].tensor
    over = replace(plan.stages[1], stores=(Store(x, plan.stages[1].stores[0].instr),))
    assert chains_of(replace(plan, stages=(plan.stages[0], over)), Group("products", (0, 1))) is None


def test_two_products_must_not_write_to_one_place() -> None:
    plan = products(DTYPE).plan
    twice = (plan.stages[1], replace(plan.stages[2], stores=plan.stages[1].stores))
    assert chains_of(replace(plan, stages=twice), Group("products", (0, 1))) is None


def test_only_products_are_products() -> None:
    assert chains_of(products(DTYPE).plan, Group("rows", (0, 1))) is None


def test_stages_between_them_keep_products_apart() -> None:
    """A workspace buffer may be another tensor's by then."""
    b = Builder()
    x, w, v = b.input(DTYPE, "m", "k"), b.input(DTYPE, "k", "n"), b.input(DTYPE, "k", "n")
    dims = b.op("matmul", b.dims(x), b.dims(w))
    for weight in (w, v):
        acc = b.temp(DTYPE, ("m", "n"), dims)
        b.stages.append(Linear((Operand(x), Operand(weight)), (Instr("acc", (), DTYPE),), (Store(acc, 0),), dims))
        p = Program()
        value = p("Relu", p.load(0, DTYPE))
        out = b.output(DTYPE, ("m", "n"), dims)
        b.stages.append(Pointwise((Operand(acc),), p.done(), (Store(out, value),), dims))
    plan = b.plan()
    assert grouped(plan) == ((0,), (1,))
    assert "group_0" not in emit(fused_op("Apart", plan), SM_90A).text
    first, relu, second, other = plan.stages
    stages = (first, second, relu, other)
    together = replace(plan, stages=stages, groups=find_groups(plan.tensors, stages, plan.outputs))
    assert "if (!group_0(device, stream, " in emit(fused_op("Adjacent", together), SM_90A).text


@pytest.mark.parametrize(
    ("m", "n", "trans_b", "expected"),
    [
        (1, 64, False, True),
        (2, 64, False, True),
        (8, 64, False, True),
        (9, 64, False, False),
        (0, 64, False, False),
        (1, 63, False, False),
        (1, 64, True, False),
    ],
)
def test_few_rows_of_whole_vectors_have_no_pass_of_their_own(m: int, n: int, trans_b: bool, expected: bool) -> None:
    plan = linear(DTYPE, trans_b=trans_b).plan
    at = sized_stages(plan, {"m": m, "n": n, "k": 32}, "cuda")[0]
    assert is_skinny(at) == expected
    works = family_of(plan, at.stage, "cuda").work(at)
    assert len(works) == (1 if expected else 2)
    assert sum(w.flops for w in works) == 2.0 * m * n * 32
    if expected:
        assert works[0].bytes == 2 * (m * 32 + 32 * n + n + 2 * m * n)


@pytest.mark.parametrize(("dtype", "most"), [("float32", 2), ("float16", 8), ("bfloat16", 8)])
def test_how_many_rows_are_few(dtype: str, most: int) -> None:
    plan = linear(dtype).plan
    found = [is_skinny(sized_stages(plan, {"m": m, "n": 64, "k": 32}, "cuda")[0]) for m in (most, most + 1)]
    assert found == [True, False]


def test_a_chain_has_a_warp_for_every_product() -> None:
    """Of more than four, each reading what the one before it made, none is run with another."""
    b = Builder()
    x = b.input(DTYPE, "m", "k")
    made: int | None = None
    for _ in range(5):
        w = b.input(DTYPE, "k", "n")
        dims = b.op("matmul", b.dims(x), b.dims(w))
        p = Program()
        value = p("acc", dtype=DTYPE) if made is None else p("Mul", p("acc", dtype=DTYPE), p.load(2, DTYPE))
        out = b.output(DTYPE, ("m", "n"), dims)
        operands = (Operand(x), Operand(w), *(() if made is None else (Operand(made),)))
        b.stages.append(Linear(operands, p.done(), (Store(out, value),), dims))
        made = out
    plan = b.plan()
    assert grouped(plan) is None
    shorter = replace(plan, stages=plan.stages[:4])
    assert chains_of(shorter, Group("products", (0, 1, 2, 3))) == ((0, 1, 2, 3),)


def test_a_batch_of_right_operands_is_no_skinny_product() -> None:
    b = Builder()
    x, w = b.input(DTYPE, "b", 1, "k"), b.input(DTYPE, "b", "k", "n")
    dims = b.op("matmul", b.dims(x), b.dims(w))
    out = b.output(DTYPE, ("b", 1, "n"), dims)
    b.stages.append(Linear((Operand(x), Operand(w)), (Instr("acc", (), DTYPE),), (Store(out, 0),), dims))
    plan = b.plan()
    assert is_skinny(sized_stages(plan, {"b": 1, "k": 8, "n": 8}, "cuda")[0])
    assert not is_skinny(sized_stages(plan, {"b": 2, "k": 8, "n": 8}, "cuda")[0])


def test_batches_are_more_rows_also_where_each_has_one(tmp_path: Path) -> None:
    """An operand that all batches have in common is in the way, unless each has one row of it."""
    program = host_program("folded.cc", tmp_path)
    found = output_of(program)
    assert found.split() == ["15", "3", "0", "3"]
