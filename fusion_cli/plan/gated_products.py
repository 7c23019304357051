"""Products whose results are cut in parts that gate one another (GEGLU, SwiGLU), as products of parts of their weights.

What is cut must be written and read again; two products of one left operand are one kernel, whose second epilogue reads
what the first made. The weights stay as they are: the parts are views of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusion_cli.operators.dtypes import NARROW
from fusion_cli.plan.graph import Uses, Val
from fusion_cli.plan.lowering import Builder
from fusion_cli.plan.slicing import Slice, taken_of

_ALIGNED = 8
"""Numbers of 16 bits that kernels read at once: parts begin at multiples."""
_MOST = 4
"""Values between a product and its parts: a bias, and casts."""


def split_gates(builder: Builder, outputs: Sequence[Val]) -> list[Val]:
    """The program with such products instead of those whose parts they are."""
    uses = Uses(outputs)
    cut = {part: whole for whole in uses.order for part in _parts(builder, uses, whole)}
    if not cut:
        return list(outputs)
    new: dict[Val, Val] = {}
    for val in uses.order:
        builder.node = val.node
        args = [new[a] for a in val.args]
        if val in cut:
            new[val] = _part(builder, args[0], taken_of(builder, val, val.args[0]))
        else:
            new[val] = val if args == list(val.args) else builder.again(val, args, val.dims)
    return [new[o] for o in outputs]


def _parts(b: Builder, uses: Uses, whole: Val) -> list[Val]:
    """The parts that a product's result is cut in, if they gate one another and it is read by nobody else."""
    if whole.dtype not in NARROW or whole in uses.outputs or not _is_product(uses, whole):
        return []
    parts = uses.readers(whole)
    if len(parts) != 2 or not all(p.op == "slice" and _is_aligned(b, p) for p in parts):
        return []
    first, second = (_computed(uses, p) for p in parts)
    return parts if not first.isdisjoint(second) else []


def _is_product(uses: Uses, whole: Val) -> bool:
    """Whether a value is a product with a matrix of weights, with numbers by column or a bias on it at most."""
    for _ in range(_MOST):
        if whole.op == "matmul":
            weights = whole.args[1].args[0] if whole.args[1].op == "transpose" else whole.args[1]
            return weights.op == "input" and len(weights.shape) == 2 and whole.attr("alpha") == 1.0
        makers = [a for a in whole.args if a.op not in ("input", "const")]
        if not whole.is_elementwise or len(makers) != 1 or uses.readers(makers[0]) != [whole]:
            return False
        if any(a.op == "input" and len(a.shape) != 1 for a in whole.args) or makers[0].shape != whole.shape:
            return False
        whole = makers[0]
    return False


def _is_aligned(b: Builder, part: Val) -> bool:
    """Whether a slice takes columns beside one another, as kernels read them."""
    columns = taken_of(b, part, part.args[0])
    known = [*b.literals(columns.first), *b.literals(columns.counts)]
    beside = columns.axes == (-1,) and b.literals(columns.steps) == [1]
    return beside and all(n is not None and n % _ALIGNED == 0 for n in known)


def _computed(uses: Uses, part: Val) -> set[Val]:
    """What is computed from a value element by element; nothing where something else reads it."""
    found: set[Val] = set()
    stack = [part]
    while stack:
        val = stack.pop()
        for reader in uses.readers(val):
            if not reader.is_elementwise:
                if val is part:
                    return set()
            elif reader not in found:
                found.add(reader)
                stack.append(reader)
    return found


def _part(b: Builder, whole: Val, columns: Slice) -> Val:
    """Such columns of a product with whatever is on it, of those of its weights."""
    if whole.op == "matmul":
        a, weights = whole.args
        turned = bool(whole.attr("trans_b"))
        own = Slice((-2 if turned else -1,), columns.first, columns.counts, columns.steps)
        return b.matmul(a, own.of(b, weights), bool(whole.attr("trans_a")), turned)
    args = [a if a.op == "const" else columns.of(b, a) if a.op == "input" else _part(b, a, columns) for a in whole.args]
    return b.again(whole, args, columns.dims(b, whole))
