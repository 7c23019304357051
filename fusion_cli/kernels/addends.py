"""Epilogues that the vendor's product or convolution can do itself: a bias, a residual and a ReLU."""

from __future__ import annotations

from dataclasses import dataclass

from fusion_cli.codegen.cuda_parts import Names
from fusion_cli.codegen.text import ancestry, flag
from fusion_cli.planir.stages import Conv, Linear, Operand, Plan, own_operands


@dataclass(frozen=True)
class Addends:
    """relu?(product + bias + residual): the operands that are added, None for what is not."""

    bias: int | None
    residual: int | None
    relu: bool


def adding(names: Names, found: Addends | None) -> tuple[str, str, str] | None:
    """What the vendor's kernel is to add, as host expressions: bias, residual, ReLU."""
    if found is None:
        return None
    operands = (None if k is None else names.load(k) for k in (found.bias, found.residual))
    data = ("nullptr" if x is None else f"static_cast<const {x.type}*>({x.tensor}.data)" for x in operands)
    bias, residual = data
    return bias, residual, flag(found.relu)


def addends_of(plan: Plan, stage: Linear | Conv) -> Addends | None:
    """What the epilogue adds, if it is such a sum; None where it is another, or the bare product."""
    if len(stage.stores) != 1:
        return None
    store = stage.stores[0]
    root = stage.program[store.instr]
    relu = root.op == "Relu"
    terms = _terms(stage, root.args[0] if relu else store.instr)
    made = plan.tensors[store.tensor]
    dtype = plan.tensors[stage.operands[own_operands(stage)[0]].tensor].dtype
    if (
        terms is None
        or terms.count(None) != 1
        or len(terms) > 3
        or made.dtype != dtype
        or not _is_dense(plan, store.tensor)
    ):
        return None
    added = [k for k in terms if k is not None]
    shapes = {k: plan.tensors[stage.operands[k].tensor].shape for k in added}
    residual = next((k for k in added if shapes[k] == made.shape), None)
    bias = next((k for k in added if k != residual and is_row(shapes[k], made.shape[-1])), None)
    known = {bias, residual} - {None}
    if known != set(added) or not all(_is_plain(plan, stage.operands[k], dtype) for k in added):
        return None
    return Addends(bias, residual, relu) if added or relu else None


def _terms(stage: Linear | Conv, instr: int) -> list[int | None] | None:
    """The operands that are added up, None for the product itself; None if something else is computed."""
    found = stage.program[instr]
    match found.op:
        case "acc":
            return [None]
        case "load" if isinstance(found.value, int):
            return [found.value]
        case "Add":
            left, right = (_terms(stage, a) for a in found.args)
            return None if left is None or right is None else left + right
    return None


def is_row(shape: tuple[int | str, ...], width: int | str) -> bool:
    """Whether an operand of this shape is one row of so many columns."""
    return width != 1 and bool(shape) and shape[-1] == width and all(d == 1 for d in shape[:-1])


def _is_plain(plan: Plan, operand: Operand, dtype: str) -> bool:
    return plan.tensors[operand.tensor].dtype == dtype and lies_dense(plan, operand)


def lies_dense(plan: Plan, operand: Operand) -> bool:
    """Whether a kernel reads an operand's elements in the order in which they lie, one behind the other."""
    return operand.perm is None and _is_dense(plan, operand.tensor)


def _is_dense(plan: Plan, tensor: int) -> bool:
    """Whether the elements lie one behind the other: nothing on the way to its memory is a part."""
    return all(plan.tensors[t].role != "view" for t in ancestry(plan, [tensor]))
