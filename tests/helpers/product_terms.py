"""Products whose epilogue is made of few operands."""

from __future__ import annotations

from collections.abc import Callable

from fusion_cli.planir.stages import Linear, Operand, Plan, Store
from tests.helpers.plan_builder import Builder, Program

DTYPE = "float16"
Terms = Callable[[Builder, Program], tuple[int, list[Operand]]]


def plan_of(terms: Terms, out: str = DTYPE, second: bool = False, space: tuple[str, ...] = ("m", "n")) -> Plan:
    """A product over `space` whose epilogue is what `terms` make of operands from 2 on."""
    b, p = Builder(), Program()
    x, w = b.input(DTYPE, *space[:-1], "k"), b.input(DTYPE, "k", space[-1])
    dims = b.op("matmul", b.dims(x), b.dims(w))
    value, more = terms(b, p)
    stores = [Store(b.output(out, space, dims), value)]
    if second:
        stores.append(Store(b.output(out, space, dims), 0))
    b.stages.append(Linear((Operand(x), Operand(w), *more), p.done(), tuple(stores), dims))
    return b.plan()


def added(*shape: int | str, dtype: str = DTYPE, perm: tuple[int, ...] | None = None) -> Terms:
    def terms(b: Builder, p: Program) -> tuple[int, list[Operand]]:
        return p("Add", p("acc", dtype=DTYPE), p.load(2, dtype)), [Operand(b.input(dtype, *shape), perm)]

    return terms
