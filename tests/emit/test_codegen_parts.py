"""The pieces that generated C++ is made of, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fusion_cli.codegen.cpu_access import inner_stride
from fusion_cli.codegen.cpu_parts import ProductStage
from fusion_cli.codegen.expr import expression
from fusion_cli.codegen.text import ints, is_unit
from fusion_cli.kernels import family_of
from fusion_cli.planir.host_op import ShapeOp
from fusion_cli.planir.stages import Instr, Linear, Operand, Plan, Store, Tensor
from tests.helpers.plan_builder import Builder


def test_an_exponent_of_another_type_is_converted() -> None:
    assert expression("Pow", ["a", "b"], ["float32", "int64"], "float32") == expression(
        "Pow", ["a", "float(b)"], ["float32", "float32"], "float32"
    )


def test_the_least_integer_is_no_literal_of_cpp() -> None:
    assert ints([1, -(2**63)]) == "Ints{1, INT64_MIN}"


def view_plan(steps: ShapeOp, shape: Sequence[int | str] = ("m", 4)) -> Plan:
    """Tensor 1 is part of input 0, and so is its alias, tensor 2."""
    host = (ShapeOp("dims", (), (0,)), ShapeOp("const", (), (0, 0)), steps)
    tensors = (
        Tensor("input", 0, "float32", ("m", 8), 0),
        Tensor("view", 0, "float32", tuple(shape), 0, starts=1, steps=2),
        Tensor("alias", 1, "float32", (*shape[:-1], 2, 2), 0),
    )
    return Plan(tensors, host, (), (0,), (), 0)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(ShapeOp("const", (), (3, 1)), True), (ShapeOp("const", (), (1, 2)), False), (ShapeOp("read", (), (1,)), False)],
)
def test_neighbours_of_a_part_are_neighbours_where_its_steps_are_1(steps: ShapeOp, expected: bool) -> None:
    plan = view_plan(steps)
    assert is_unit(plan, 1, 1) == is_unit(plan, 2, 2) == expected
    assert inner_stride(plan, Operand(1), ("m", 4)) == (1 if expected else -1)


def test_the_stride_of_an_operand_along_the_innermost_axis() -> None:
    plan = view_plan(ShapeOp("const", (), (1, 1)))
    assert inner_stride(plan, Operand(0), ("m", 8)) == 1
    assert inner_stride(plan, Operand(0, (1, 0)), (8, "m")) == -1
    column = replace(plan, tensors=(replace(plan.tensors[0], shape=("m", 1)),))
    assert inner_stride(column, Operand(0), ("m", 8)) == 0
    assert inner_stride(column, Operand(0), ("m", 1)) == 1


def product(dtype: str, perm: tuple[int, ...] | None, trans_b: bool) -> str:
    """How a product of this type, its right operand turned so, is called."""
    b = Builder()
    swapped = perm is not None and perm[-2:] == (2, 1)
    kn = ("n", "k") if trans_b != swapped else ("k", "n")
    right = ("b", *kn) if perm is None or perm[0] == 0 else (kn[0], "b", kn[1])
    x, w = b.input(dtype, "b", "m", "k"), b.input(dtype, *right)
    dims = b.op("concat", b.op("slice", b.dims(x), ints=(0, 2, 1)), b.op("const", ints=(5,)))
    out = b.output(dtype, ("b", "m", "n"), dims)
    stage = Linear((Operand(x), Operand(w, perm)), (Instr("acc", (), dtype),), (Store(out, 0),), dims, trans_b=trans_b)
    b.stages.append(stage)
    plan = Plan(tuple(b.tensors), tuple(b.host), tuple(b.stages), tuple(b.inputs), tuple(b.outputs), 0)
    made = family_of(plan, stage, "cpu").cpu(plan, stage, 0, "")
    assert isinstance(made, ProductStage)
    return f"{made.members[0].arguments} | {made.inputs}"


def test_a_transposed_operand_is_left_to_the_product_where_it_takes_one() -> None:
    plain, turned = product("float32", None, True), product("float32", (0, 2, 1), False)
    assert plain == turned
    assert "true" in plain
    assert "Ints{" not in plain
    assert product("float32", (0, 2, 1), True) == product("float32", None, False)


def test_a_transposed_operand_is_copied_where_the_product_takes_none() -> None:
    for call in (product("float64", None, True), product("float64", (0, 2, 1), False)):
        assert "true" not in call
        assert "Ints{0, 2, 1}" in call
    assert product("float32", (1, 0, 2), False).count("Ints{1, 0, 2}") == 1
