"""Groups of values as stages: operands, scalar programs and stores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.plan.aliases import swaps_last_two
from fusion_cli.plan.attention_kind import kind_of
from fusion_cli.plan.attention_parts import Parts, between
from fusion_cli.plan.graph import Val
from fusion_cli.plan.kernel_group import Group
from fusion_cli.plan.partition import Partition
from fusion_cli.plan.workspace import Storage
from fusion_cli.planir.stages import (
    Attention,
    Const,
    Conv,
    Instr,
    Linear,
    Moments,
    Operand,
    Pointwise,
    Pool,
    Rowwise,
    Stage,
    Store,
)
from fusion_cli.sizes.algebra import ONE, Shape
from fusion_cli.sizes.equalities import Sizes


class Program:
    """A stage's scalar program under construction; equal instructions are shared."""

    def __init__(self, operands: Operands) -> None:
        self.instrs: list[Instr] = []
        self.operands = operands
        self._index: dict[tuple[Instr, str], int] = {}
        self._of: dict[Val, int] = {}

    def add(self, instr: Instr) -> int:
        key = (instr, repr(instr.value))  # 0.0 and -0.0, 1 and True are equal but not the same literal
        if key not in self._index:
            self._index[key] = len(self.instrs)
            self.instrs.append(instr)
        return self._index[key]

    def bind(self, val: Val, instr: Instr) -> None:
        self._of[val] = self.add(instr)

    def compute(self, vals: Iterable[Val], leaves: Mapping[Val, Val] | None = None) -> None:
        """Append the instructions of these values, arguments first; `leaves` replaces operands."""
        for val in vals:
            if val in self._of:
                continue
            if val.op in ("transpose", "slice"):
                self._of[val] = self.add(Instr("load", (), val.dtype, self.operands.copied(val)))
                continue
            if val.op == "gather":
                self._of[val] = self.add(Instr("load", (), val.dtype, self.operands.row(*val.args)))
                continue
            args = tuple(self.value((leaves or {}).get(a, a)) for a in val.args)
            if val.op in ("Identity", "Expand", "part"):
                self._of[val] = args[0]
            else:
                self._of[val] = self.add(Instr(val.op, args, val.dtype))

    def value(self, val: Val) -> int:
        """The instruction that holds a value: computed here, a literal, a position, or loaded."""
        if val not in self._of:
            if val.op in ("const", "index"):
                self._of[val] = self.add(Instr(val.op, (), val.dtype, literal(val)))
            else:
                self._of[val] = self.add(Instr("load", (), val.dtype, self.operands.add(val)))
        return self._of[val]


class Operands:
    """The operand list of a stage; reading the same tensor the same way twice is one operand."""

    def __init__(self, partition: Partition, storage: Storage) -> None:
        self.items: list[Operand] = []
        self.partition = partition
        self.storage = storage

    def add(self, val: Val, perm: tuple[int, ...] | None = None) -> int:
        while val.op == "transpose" and val not in self.partition.aliases.copied:
            perm = val.perm if perm is None else tuple(val.perm[p] for p in perm)
            val = val.args[0]
        return self._add(Operand(self.storage.tensor(val), perm))

    def copied(self, view: Val) -> int:
        """What a view that this stage copies reads."""
        if view.op == "transpose":
            return self.add(view.args[0], view.perm)
        return self._add(Operand(self.storage.window(view)))

    def row(self, table: Val, numbers: Val) -> int:
        """The row of a table that has the number of the row at hand."""
        return self._add(Operand(self.storage.tensor(table), rows=self.add(numbers)))

    def _add(self, operand: Operand) -> int:
        if operand not in self.items:
            self.items.append(operand)
        return self.items.index(operand)


def literal(val: Val) -> Const:
    value = val.value
    assert value is not None
    if val.op == "index":
        return value
    if val.dtype == "bool":
        return bool(value)
    return int(value) if val.dtype in ("int32", "int64") else float(value)


def assemble(partition: Partition, storage: Storage, group: Group) -> Stage:
    """The stage of one group."""
    operands = Operands(partition, storage)
    program = Program(operands)
    nodes = tuple(dict.fromkeys(v.node for v in group.vals if v.node))
    if group.kind != "rowwise" and any(v.op == "gather" for v in group.vals):
        raise Unsupported(codes.OPERATOR, "rows of a table before a norm or the like", "Gather")
    if group.kind == "attention":
        return _attention(partition, storage, group, operands, program)
    fields: dict[str, Any] = {}
    if group.kind in _ANCHORS:
        fields = _ANCHORS[group.kind](operands, group.anchor)
        program.bind(group.anchor, Instr("acc", (), group.anchor.dtype))
    program.compute(group.vals)
    stores = tuple(Store(storage.tensor(v), program.value(v)) for v in partition.stored(group))
    return _STAGES[group.kind](tuple(operands.items), tuple(program.instrs), stores, group.like.dims, nodes, **fields)


_STAGES: dict[str, type[Pointwise | Rowwise | Linear | Conv | Pool | Moments]] = {
    "pointwise": Pointwise,
    "rowwise": Rowwise,
    "linear": Linear,
    "conv": Conv,
    "pool": Pool,
    "moments": Moments,
}


def _linear_operands(operands: Operands, matmul: Val) -> dict[str, Any]:
    fields: dict[str, Any] = {"alpha": matmul.attr("alpha")}
    for name, val in zip("ab", matmul.args, strict=True):
        transposed = bool(matmul.attr(f"trans_{name}"))
        if val.op == "transpose" and swaps_last_two(val.perm) and val not in operands.partition.aliases.copied:
            transposed, val = not transposed, val.args[0]
        fields[name] = operands.add(val)
        fields[f"trans_{name}"] = transposed
    return fields


def _conv_operands(operands: Operands, conv: Val) -> dict[str, Any]:
    indices = [operands.add(v) for v in conv.args]
    return {**dict(conv.attrs), "x": indices[0], "w": indices[1], "bias": indices[2] if len(indices) > 2 else -1}


def _image_operand(operands: Operands, val: Val) -> dict[str, Any]:
    return {**dict(val.attrs), "x": operands.add(val.args[0])}


_ANCHORS = {"linear": _linear_operands, "conv": _conv_operands, "pool": _image_operand, "moments": _image_operand}


def _attention(partition: Partition, storage: Storage, group: Group, operands: Operands, program: Program) -> Attention:
    val = group.anchor
    parts = val.attr("parts")
    assert isinstance(parts, Parts)
    q, k, v = (operands.add(x, perm) for x, perm in zip(val.args[:3], parts.perms, strict=True))
    leaves = dict(zip(parts.leaves, val.args[3:], strict=True))
    program.bind(parts.score_acc, Instr("acc", (), parts.score_acc.dtype))
    program.compute(member for member in group.vals if member is not val)
    program.compute(between(parts.score, parts.score_acc), leaves)
    score = program.value(parts.score)
    sink = -1 if parts.sink is None else program.value(leaves.get(parts.sink, parts.sink))
    prob, prob_index = _probability_program(operands, parts, leaves)
    shapes = [
        x.shape if p is None else tuple(x.shape[i] for i in p) for x, p in zip(val.args, parts.perms, strict=False)
    ]
    grouped = _is_grouped(partition.sizes, *shapes)
    return Attention(
        operands=tuple(operands.items),
        program=tuple(program.instrs),
        stores=(Store(storage.tensor(val), 0),),
        dims=parts.dims,
        nodes=tuple(dict.fromkeys((*(m.node for m in group.vals if m is not val and m.node), *parts.nodes))),
        q=q,
        k=k,
        v=v,
        scale=parts.scale,
        score=score,
        sink=sink,
        prob_program=prob,
        prob=prob_index,
        kind=kind_of(program.instrs, score, prob, prob_index, parts.zero_empty, grouped),
        out_perm=parts.out_perm,
    )


def _is_grouped(sizes: Sizes, q: Shape, k: Shape, v: Shape) -> bool:
    """Whether keys and values have 1 along an axis of the batch where the queries have more."""
    heads = zip(*(reversed(x[:-2]) for x in (q, k, v)), strict=False)
    return any(sizes.norm(a) != ONE and sizes.norm(b) == sizes.norm(c) == ONE for a, b, c in heads)


def _probability_program(operands: Operands, parts: Parts, leaves: Mapping[Val, Val]) -> tuple[tuple[Instr, ...], int]:
    if parts.prob is parts.prob_acc:
        return (), 0
    program = Program(operands)
    program.bind(parts.prob_acc, Instr("acc", (), parts.prob_acc.dtype))
    program.compute(between(parts.prob, parts.prob_acc), leaves)
    return tuple(program.instrs), program.value(parts.prob)
