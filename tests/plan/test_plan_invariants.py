"""Every invariant of plans, by good plans that are broken in one place."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest

from fusion_cli.planir.attention_sort import AttentionKind
from fusion_cli.planir.invariants import BrokenPlan, check
from fusion_cli.planir.stages import Group, Instr, Linear, Plan, Pointwise, Rowwise, Stage, Store, Tensor
from tests.helpers.cuda_attention_plans import attention, bare
from tests.helpers.cuda_conv_plans import conv
from tests.helpers.cuda_row_plans import looked_up
from tests.helpers.plan_builder import Builder, Program, operands

Break = Callable[[Plan], Plan]


def chain() -> Plan:
    """A product, a norm of it that also goes by another shape, and the two halves of that written to their places."""
    b, first, second, third = Builder(), Program(), Program(), Program()
    x, w = b.input("float32", "R", 6), b.input("float32", 6, 8)
    b.inputs.append(-1)
    flat = b.op("read", ints=(2,))
    wide = b.op("matmul", b.dims(x), b.dims(w))
    product, norm = b.temp("float32", ("R", 8), wide), b.temp("float32", ("R", 8), wide)
    shape = b.op("reshape", wide, flat, ints=(0,))
    b.alias(norm, ("R", 2, 4), shape)
    out = b.output("float32", ("R", 8), wide)
    half = b.op("put", wide, b.op("const", ints=(4,)), ints=(1,))
    left, right, steps = (b.op("const", ints=ints) for ints in ((0, 0), (0, 4), (1, 1)))
    places = ((out, left), (out, right), (norm, left), (norm, right))
    b.tensors += [Tensor("view", of, "float32", ("R", 4), half, "", at, steps) for of, at in places]
    b.stages.append(Linear(operands(x, w), (Instr("acc", (), "float32"),), (Store(product, 0),), wide))
    row = first.load(0)
    value = first("Sub", row, first("reduce_mean", row))
    b.stages.append(Rowwise(operands(product), first.done(), (Store(norm, value),), wide))
    second("Mul", second.load(0), second.const(2.0))
    b.stages.append(Pointwise(operands(8), second.done(), (Store(6, 2),), half))
    third.load(0)
    b.stages.append(Pointwise(operands(9), third.done(), (Store(7, 0),), half))
    return b.plan((2,))


def rows() -> Plan:
    """The largest number of each row."""
    b, program = Builder(), Program()
    x = b.input("float32", "R", 8)
    out = b.output("float32", ("R", 1), b.op("reduce", b.dims(x), ints=(1, 1)))
    largest = program("reduce_max", program.load(0))
    b.stages.append(Rowwise(operands(x), program.done(), (Store(out, largest),), b.dims(x)))
    return b.plan()


def parts() -> Plan:
    """One temp written by parts, another between them, and their sum."""
    b, copy, total = Builder(), Program(), Program()
    x, y = b.input("float32", "R", 4), b.input("float32", "R", 8)
    joined, negated = (b.temp("float32", ("R", 8), b.dims(y)) for _ in range(2))
    out = b.output("float32", ("R", 8), b.dims(y))
    left, right, steps = (b.op("const", ints=ints) for ints in ((0, 0), (0, 4), (1, 1)))
    b.tensors += [Tensor("view", joined, "float32", ("R", 4), b.dims(x), "", at, steps) for at in (left, right)]
    copy.load(0)
    b.stages += [Pointwise(operands(x), copy.done(), (Store(out + 1, 0),), b.dims(x))]
    b.stages += [Pointwise(operands(y), copy.done(), (Store(negated, 0),), b.dims(y))]
    b.stages += [Pointwise(operands(x), copy.done(), (Store(out + 2, 0),), b.dims(x))]
    total("Add", total.load(0), total.load(1))
    b.stages += [Pointwise(operands(joined, negated), total.done(), (Store(out, 2),), b.dims(y))]
    return b.plan()


CHAIN, ROWS, PARTS, TABLES = chain(), rows(), parts(), looked_up("float32").plan
ATTENTION, BARE = attention("float32", 64, prob="guard").plan, bare("float32").plan
CONV = conv("float32").plan
X, W, PRODUCT, NORM, FLAT, OUT, LEFT, RIGHT = range(8)
LINEAR, ROWWISE, FIRST_HALF, SECOND_HALF = range(4)


def at(items: tuple[Any, ...], index: int, changes: dict[str, Any]) -> tuple[Any, ...]:
    return (*items[:index], replace(items[index], **changes), *items[index + 1 :])


def tensor(index: int, **changes: Any) -> Break:
    return lambda plan: replace(plan, tensors=at(plan.tensors, index, changes))


def host(index: int, **changes: Any) -> Break:
    return lambda plan: replace(plan, shape_program=at(plan.shape_program, index, changes))


ZERO_EMPTY = AttentionKind(probabilities="zero_empty")


def stage(index: int, **changes: Any) -> Break:
    return lambda plan: replace(plan, stages=at(plan.stages, index, changes))


def operand(index: int, number: int, **changes: Any) -> Break:
    return lambda plan: stage(index, operands=at(plan.stages[index].operands, number, changes))(plan)


def instr(index: int, number: int, **changes: Any) -> Break:
    return lambda plan: stage(index, program=at(plan.stages[index].program, number, changes))(plan)


def store(index: int, **changes: Any) -> Break:
    return lambda plan: stage(index, stores=at(plan.stages[index].stores, 0, changes))(plan)


def prob(number: int, **changes: Any) -> Break:
    return lambda plan: stage(0, prob_program=at(plan.stages[0].prob_program, number, changes))(plan)


def kind(index: int, of: type[Stage]) -> Break:
    def changed(plan: Plan) -> Plan:
        old = plan.stages[index]
        new = of(old.operands, old.program, old.stores, old.dims)
        return replace(plan, stages=(*plan.stages[:index], new, *plan.stages[index + 1 :]))

    return changed


def both(*breaks: Break) -> Break:
    return lambda plan: reduce(lambda broken, change: change(broken), breaks, plan)


def order(*stages: int) -> Break:
    return lambda plan: replace(plan, stages=tuple(plan.stages[i] for i in stages))


def plan(**changes: Any) -> Break:
    return lambda good: replace(good, **changes)


BREAKS: dict[str, tuple[Plan, Break, str]] = {
    # What the operator takes and gives
    "an input that is another": (CHAIN, plan(inputs=(W, X, -1)), "input 0: tensor 1 is not it"),
    "an input that is nowhere": (CHAIN, plan(inputs=(X, -1, -1)), "tensors that are no input of the plan"),
    "an output that is no tensor": (CHAIN, plan(outputs=(10,)), "output 0: tensor 10 is not it"),
    "an output too few": (CHAIN, plan(outputs=()), "tensors that are no output of the plan"),
    "a host input that nothing reads": (CHAIN, plan(host_inputs=(1, 2)), "host inputs .* are not those"),
    "a host input that is not said": (CHAIN, plan(host_inputs=()), "host inputs .* are not those"),
    # The shape program
    "a shape value of a later one": (CHAIN, host(3, args=(0, 4)), "shape value 3 .* no earlier value"),
    "a shape value of itself": (CHAIN, host(3, args=(0, 3)), "shape value 3 .* no earlier value"),
    "an unknown host operation": (CHAIN, host(3, kind="cross"), "shape value 3 .* unknown kind"),
    "a host argument too many": (CHAIN, host(3, args=(0, 1, 1)), "shape value 3 .* 3 arguments"),
    "no argument to broadcast": (CHAIN, host(3, kind="broadcast", args=()), "shape value 3 .* 0 arguments"),
    "dimensions of no input": (CHAIN, host(0, ints=(3,)), "shape value 0 .* of no input"),
    "a shape permuted by no permutation": (ATTENTION, host(5, ints=(0, 2, 2, 3)), "shape value 5 .* do not fit"),
    "an element put beside a shape": (CHAIN, host(6, ints=(2,)), "shape value 6 .* do not fit"),
    "an element taken beside a shape": (CHAIN, host(6, kind="take", args=(3,), ints=(2,)), "shape value 6 .* not fit"),
    # Tensors
    "an unknown element type": (CHAIN, tensor(X, dtype="float8"), "tensor 0 .* unknown element type float8"),
    "a tensor without dimensions": (CHAIN, tensor(X, dims=10), "tensor 0 .* 10 is no shape value"),
    "a tensor of another rank": (CHAIN, tensor(OUT, shape=("R", 2, 4)), "tensor 5 .* 2 elements for 3 axes"),
    "a view from nowhere": (CHAIN, tensor(LEFT, starts=-1), "tensor 6 .* -1 is no shape value"),
    "a view from another rank": (CHAIN, tensor(LEFT, starts=5), "tensor 6 .* 1 elements for 2 axes"),
    "a buffer too few": (CHAIN, plan(buffers=1), "tensor 3 .* no buffer 1"),
    "an alias of itself": (CHAIN, tensor(FLAT, slot=FLAT), "tensor 4 .* no earlier one"),
    "a view of what comes later": (CHAIN, tensor(FLAT, slot=OUT), "tensor 4 .* no earlier one"),
    "an alias of another type": (CHAIN, tensor(FLAT, dtype="int32"), "tensor 4 .* int32 in memory of float32"),
    "an alias of another size": (CHAIN, tensor(FLAT, shape=("R", 3, 4)), "tensor 4 .* not as many elements"),
    "dimensions of another tensor": (
        CHAIN,
        tensor(OUT, shape=("S", 8)),
        "shape value 3 is .*'R', 8.* elsew",
    ),
    "a view larger than its memory": (CHAIN, tensor(LEFT, shape=("R", 9)), "tensor 6 .* is no part of"),
    # Operands, programs and stores
    "a stage over no space": (CHAIN, stage(ROWWISE, dims=10), "stage 1 .* no shape value"),
    "an operand that is no tensor": (CHAIN, operand(ROWWISE, 0, tensor=10), "stage 1 .* operand 0: there is no tensor"),
    "an operand turned by no permutation": (CHAIN, operand(ROWWISE, 0, perm=(0, 0)), "operand 0: .* no permutation"),
    "an operand of another rank": (CHAIN, operand(ROWWISE, 0, perm=(1, 0, 2)), "operand 0: .* no permutation"),
    "an operand that nothing reads": (CHAIN, stage(ROWWISE, operands=operands(PRODUCT, X)), r"operands \[1\] are not"),
    "rows told by no operand": (TABLES, operand(0, 0, rows=4), "operand 0: there is no operand 4"),
    "rows told by the table": (TABLES, operand(0, 0, rows=0), "operand 0: its rows are not told by one integer"),
    "rows told by several numbers": (TABLES, operand(0, 2, tensor=0), "operand 0: its rows are not told"),
    "a table of nobody knows how many rows": (TABLES, tensor(0, shape=("V", "d")), "operand 0: .* is no table"),
    "a table turned over": (TABLES, operand(0, 0, perm=(1, 0)), "operand 0: .* is no table"),
    "rows of a table element by element": (TABLES, kind(0, Pointwise), "operand 0: rows of a table"),
    "an argument that comes later": (CHAIN, instr(ROWWISE, 1, args=(2,)), r"stage 1 .* instruction 1 .* not all ear"),
    "an argument that is itself": (ATTENTION, instr(0, 1, args=(0, 1)), "instruction 1 .* not all earlier"),
    "a program of an unknown type": (CHAIN, instr(ROWWISE, 2, dtype="float"), "instruction 2 .* unknown element type"),
    "a load of no operand": (CHAIN, instr(ROWWISE, 0, value=1), "instruction 0 .* there is no operand 1"),
    "a load of another type": (CHAIN, instr(ROWWISE, 0, dtype="float16"), "instruction 0 .* float16 of a tensor"),
    "a load of another size": (CHAIN, operand(ROWWISE, 0, tensor=X), "instruction 0 .* does not broadcast"),
    "a load of more axes": (CHAIN, operand(ROWWISE, 0, tensor=FLAT), "instruction 0 .* does not broadcast"),
    "a result where there is none": (CHAIN, instr(FIRST_HALF, 1, op="acc"), "instruction 1 .* no result of its own"),
    "a constant of no value": (CHAIN, instr(FIRST_HALF, 1, value=None), "instruction 1 .* no value"),
    "a position along no axis": (CHAIN, instr(FIRST_HALF, 1, op="index", value=-3), "instruction 1 .* is no axis"),
    "a position from the start": (CHAIN, instr(FIRST_HALF, 1, op="index", value=0), "instruction 1 .* is no axis"),
    "a reduction that is not over rows": (CHAIN, instr(FIRST_HALF, 1, op="reduce_max", args=(0,)), "a reduction"),
    "a store to no tensor": (CHAIN, store(ROWWISE, tensor=10), "stage 1 .* store to tensor 10: .* no such"),
    "a store of no instruction": (CHAIN, store(ROWWISE, instr=3), "store to tensor 3: there is no instruction 3"),
    "a store of another type": (CHAIN, instr(ROWWISE, 2, dtype="int64"), "tensor 3: int64 in memory of float32"),
    "a store over another space": (CHAIN, stage(ROWWISE, stores=(Store(LEFT, 2),)), "tensor 6: values over"),
    # Products, attention and convolution
    "a product of no operand": (CHAIN, stage(LINEAR, b=2), r"stage 0 .* operands \(0, 2\) are not all among 2"),
    "a product turned": (CHAIN, stage(LINEAR, trans_b=True), r"a product of \('R', 6\) and \(8, 6\)"),
    "a product of vectors": (CHAIN, tensor(W, shape=(6,)), "a product of vectors"),
    "a product of other columns": (CHAIN, tensor(W, shape=(6, 7)), "a product of .* over"),
    "attention of no values": (ATTENTION, stage(0, v=5), "operands .* are not all among 5"),
    "attention with other keys": (ATTENTION, tensor(2, shape=("b", "k", "h", 32)), "a product of .*64.* and .*32"),
    "attention with other values": (BARE, tensor(2, shape=("b", "h", "s", 32)), "a product of .*32.* over .*64"),
    "attention stored twice": (ATTENTION, stage(0, stores=(Store(5, 0),) * 2), "2 stores"),
    "attention stored nowhere": (ATTENTION, stage(0, stores=()), "0 stores"),
    "a score that is not computed": (ATTENTION, stage(0, score=6), "its score is no instruction: 6"),
    "a probability that is not computed": (ATTENTION, stage(0, prob=-1), "its probability is no instruction: -1"),
    "empty rows done twice": (
        ATTENTION,
        stage(0, kind=AttentionKind(probabilities="zero_empty")),
        "a probability program, and zeros",
    ),
    "a sink that is not computed": (ATTENTION, stage(0, sink=99), "its sink is no instruction: 99"),
    "an output turned by no permutation": (ATTENTION, stage(0, out_perm=(0, 1, 2)), "no permutation of 4 axes"),
    "an output of another size": (BARE, stage(0, out_perm=(3, 1, 2, 0)), "tensor 3: the output over"),
    "a probability of no operand": (
        ATTENTION,
        prob(1, op="load", value=9),
        "probability instruction 1 .* no operand",
    ),
    "a convolution of other channels": (CONV, stage(0, w=2), "a convolution of"),
    "a convolution of too few strides": (CONV, stage(0, strides=(2,)), "a convolution of"),
    "a convolution of too few pads": (CONV, stage(0, pads=(1, 1)), "a convolution of"),
    "a convolution of too many dilations": (CONV, stage(0, dilations=(1, 1, 1)), "a convolution of"),
    "a convolution of no group": (CONV, stage(0, group=0), "0 groups"),
    "a convolution to other channels": (CONV, tensor(1, shape=(9, 3, 3, 3)), "1 groups of .*9"),
    "an unknown padding": (CONV, stage(0, auto_pad="SAME"), "unknown padding SAME"),
    # Memory
    "a temp that is read first": (
        CHAIN,
        order(ROWWISE, LINEAR, FIRST_HALF, SECOND_HALF),
        "2, which nothing wrote",
    ),
    "an output that is read first": (CHAIN, operand(ROWWISE, 0, tensor=OUT), "stage 1 .* 5, which nothing wrote"),
    "a part read before it is written": (CHAIN, operand(FIRST_HALF, 0, tensor=RIGHT), "5, which nothing wrote"),
    "a buffer lent while it is read": (CHAIN, tensor(NORM, slot=0), "stage 1 .* writes to buffer 0, which it reads"),
    "a buffer lent before it is read": (
        PARTS,
        both(tensor(3, slot=0), order(0, 2, 1, 3)),
        "reads tensor 2, whose",
    ),
    "a buffer lent before it is full": (PARTS, tensor(3, slot=0), "writes to tensor 2, whose buffer 0 holds tensor 3"),
    "a write to an input": (PARTS, store(1, tensor=1), "writes to input tensor 1"),
    "a stage that writes over what it reads": (CHAIN, store(ROWWISE, tensor=PRODUCT), "tensor 2, which it reads"),
    "a stage that writes what was read": (CHAIN, order(0, 1, 2, 1), "tensor 3, which was read already"),
    "a part written by rows": (CHAIN, kind(FIRST_HALF, Rowwise), "writes to tensor 6, a view"),
    "a part written twice": (CHAIN, store(SECOND_HALF, tensor=LEFT), "tensor 6, which is written already"),
    "a part of what is written": (PARTS, both(store(1, tensor=2), order(1, 0, 2, 3)), "tensor 5, which is written al"),
    "a part that is missing": (CHAIN, order(LINEAR, ROWWISE, FIRST_HALF), "tensor 5 .* not written as a whole"),
    "rows of one stage": (CHAIN, plan(groups=(Group("rows", (1,)),)), r"stages \(1,\) cannot run together as rows"),
    "rows with a stage too many": (CHAIN, plan(groups=(Group("rows", (0, 1, 4)),)), "cannot run together"),
    "products of which one is none": (CHAIN, plan(groups=(Group("products", (0, 1)),)), "cannot run together"),
    "a temp that nothing reads": (CHAIN, order(LINEAR, ROWWISE), "tensor 3 .* nothing reads it"),
    "an output that nothing writes": (ROWS, order(), "tensor 1 .* nothing writes it"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_plan_broken_in_one_place_is_refused(name: str) -> None:
    good, broken, message = BREAKS[name]
    check(good)
    with pytest.raises(BrokenPlan) as caught:
        check(broken(good))
    assert re.search(message, str(caught.value)), caught.value
    assert "t0 = input 0: " in caught.value.__notes__[0]
