"""Products of few rows: nothing but reading the right operand. One launch runs those of one left operand, and chains of
them, where an epilogue reads what the one before it made: gate and up."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fusion_cli.kernels.family import Schedule, Sized
from fusion_cli.operators.dtypes import element_bytes
from fusion_cli.planir.stages import Group, Linear, Operand, Plan, Stage

ROWS = {4: 2, 2: 8}
"""The most rows of a product by itself, by the bytes of an element."""
TOGETHER = 16
"""Those of neighbours in 16 bits."""
_VECTOR = 16
"""Bytes that a thread reads of a row at a time; all as in skinny.cuh."""
_CHAIN = 4
"""Products of a chain at most: each has warps of its own."""

SCHEDULE = Schedule(
    "skinny",
    f"at most {ROWS[2]} rows, of float32 {ROWS[4]}, and those of the right operand are whole vectors; neighbours of "
    f"the same left operand in one launch, in 16 bits of at most {TOGETHER} rows, the epilogues in it",
    (("rows", ROWS[2]), ("threads", 512), ("threads of wide products", 256)),
)


def rows_of(plan: Plan, stage: Stage) -> tuple[int | str, ...]:
    """A product's rows as the axes that they have in its result, by what is known of them before it runs."""
    return plan.tensors[stage.stores[0].tensor].shape[:-1]


def may_be_few(plan: Plan, stage: Linear, most: int) -> bool:
    """Whether a product may have at most so many rows."""
    return math.prod(size for size in rows_of(plan, stage) if isinstance(size, int)) <= most


def lies_straight(plan: Plan, stage: Linear) -> bool:
    """Whether a product's right operand is one matrix whose rows are read as they lie."""
    right = stage.operands[stage.b]
    return not stage.trans_b and right.perm is None and len(plan.tensors[right.tensor].shape) == 2


def may_run(plan: Plan, products: Sequence[Linear]) -> bool:
    """Whether the kernel of few rows may run these, together or one by itself: of more rows it is not compiled."""
    size = element_bytes(plan.tensors[products[0].operands[products[0].b].tensor].dtype)
    most = ROWS.get(size, 0) if len(products) == 1 or size > 2 else TOGETHER
    return all(may_be_few(plan, product, most) for product in products)


def takes_all(plan: Plan, stage: Linear) -> bool:
    """Whether a product always has so few rows, and a right operand that the kernel reads as it lies: the copy engine
    could not take it either where its address does not suit."""
    tensor = plan.tensors[stage.operands[stage.b].tensor]
    sizes = (*rows_of(plan, stage), *tensor.shape[-1:])
    if not lies_straight(plan, stage) or any(isinstance(size, str) for size in sizes):
        return False
    size = element_bytes(tensor.dtype)
    return may_run(plan, (stage,)) and int(sizes[-1]) * size % _VECTOR == 0


def is_skinny(at: Sized) -> bool:
    """Whether the kernel of few rows takes a product at these sizes."""
    stage: Linear = at.stage
    *batches, _, columns = at.shape(stage.b)
    straight = not stage.trans_b and stage.operands[stage.b].perm is None
    size = element_bytes(at.dtype(stage.b))
    few = 0 < math.prod(at.dims[stage.dims][:-1]) <= ROWS.get(size, 0) and math.prod(batches) == 1
    return straight and few and columns * size % _VECTOR == 0


def chains_of(plan: Plan, group: Group) -> tuple[tuple[int, ...], ...] | None:
    """The group's stages, by position in it, as chains that may run side by side: each stage reads, element by element,
    what those before it in its chain made, and nothing else that the group writes. None where that cannot be."""
    stages = [stage for i in group.stages if isinstance(stage := plan.stages[i], Linear)]
    if group.kind != "products":
        return None
    written = [{plan.memory(s.tensor) for s in stage.stores} for stage in stages]
    if len(set().union(*written)) != sum(map(len, written)):
        return None
    chains: list[list[int]] = []
    for n, stage in enumerate(stages):
        read = {plan.memory(o.tensor) for o in stage.operands}
        makers = {m for m in range(len(stages)) if m != n and not read.isdisjoint(written[m])}
        chain = next((c for c in chains if makers <= set(c)), None) if makers else []
        if chain is None or not all(_is_in_place(plan, stages[m], stage) for m in makers):
            return None
        if not makers:
            chains.append(chain)
        chain.append(n)
    return tuple(map(tuple, chains)) if max(map(len, chains)) <= _CHAIN else None


def _is_in_place(plan: Plan, maker: Linear, reader: Linear) -> bool:
    """Whether the reader's epilogue takes from the maker's results, at each point, what was stored at that point."""
    results = {s.tensor for s in maker.stores}
    memory = {plan.memory(t) for t in results}
    shapes = {plan.tensors[s.tensor].shape for s in (*maker.stores, *reader.stores)}
    read = [k for k, o in enumerate(reader.operands) if plan.memory(o.tensor) in memory]
    plain = all(reader.operands[k] == Operand(reader.operands[k].tensor) for k in read)
    own = all(reader.operands[k].tensor in results and plan.tensors[reader.operands[k].tensor].is_own for k in read)
    return plain and own and len(shapes) == 1 and {reader.a, reader.b}.isdisjoint(read)
