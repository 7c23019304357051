"""Splitting a rowwise program into passes over the row, one more than the longest chain of reductions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fusion_cli.codegen.expr import needed
from fusion_cli.planir.stages import Instr, Store

_READ = ("load", "acc")  # cheaper to read again than to remember


@dataclass(frozen=True)
class Pass:
    """One walk along the row, and the once-per-row instructions to run before it. All fields hold instructions.

    `each` are evaluated per element, loads included; `kept` come from an earlier pass, `keep` must be remembered for
    a later one; `reduce` are the reductions that this pass completes.
    """

    row: tuple[int, ...]
    row_stores: tuple[Store, ...]
    each: tuple[int, ...]
    kept: tuple[int, ...]
    keep: tuple[int, ...]
    reduce: tuple[int, ...]
    stores: tuple[Store, ...]


def schedule(
    program: Sequence[Instr], stores: Sequence[Store], uniform: Collection[int], row_stores: Collection[int]
) -> tuple[Pass, ...]:
    """The passes of a rowwise program.

    `uniform` are the operands that hold one element per row, `row_stores` the tensors written once per row. Each value
    is computed in the first pass that uses it; what is read from memory is read again where it is used.
    """
    live = needed(program, [s.instr for s in stores])
    once = per_row(program, uniform)
    level = _levels(program)
    at = _pass_of(program, live, once, level, stores, row_stores)
    last = max(level, default=0)
    return tuple(_pass(program, p, live, once, level, at, stores, row_stores) for p in range(last + 1))


def per_row(program: Sequence[Instr], uniform: Collection[int]) -> list[bool]:
    """Which instructions have one value per row, given the operands that do."""
    result: list[bool] = []
    for instr in program:
        if instr.op == "load":
            result.append(instr.value in uniform)
        elif instr.op == "index":
            result.append(instr.value != -1)
        else:
            result.append(instr.op.startswith("reduce_") or (instr.op != "acc" and all(result[a] for a in instr.args)))
    return result


def _levels(program: Sequence[Instr]) -> list[int]:
    """How many reductions must be complete before an instruction can run."""
    level: list[int] = []
    for instr in program:
        before = max((level[a] for a in instr.args), default=0)
        level.append(before + 1 if instr.op.startswith("reduce_") else before)
    return level


def _pass_of(
    program: Sequence[Instr],
    live: Collection[int],
    once: Sequence[bool],
    level: Sequence[int],
    stores: Sequence[Store],
    row_stores: Collection[int],
) -> dict[int, int]:
    """The pass in which each per-element instruction is first needed."""
    first: dict[int, int] = {}

    def use(i: int, p: int) -> None:
        first[i] = min(first.get(i, p), p)

    for store in stores:
        if store.tensor not in row_stores:
            use(store.instr, level[store.instr])
    for i in reversed(range(len(program))):
        if i not in live:
            continue
        if program[i].op.startswith("reduce_"):
            use(program[i].args[0], level[i] - 1)
        elif not once[i]:
            for a in program[i].args:
                use(a, first[i])
    return first


def _pass(
    program: Sequence[Instr],
    p: int,
    live: Collection[int],
    once: Sequence[bool],
    level: Sequence[int],
    at: dict[int, int],
    stores: Sequence[Store],
    row_stores: Collection[int],
) -> Pass:
    reduce = tuple(i for i in sorted(live) if program[i].op.startswith("reduce_") and level[i] == p + 1)
    written = tuple(s for s in stores if s.tensor not in row_stores and at[s.instr] == p)
    computed = [i for i in sorted(live) if not once[i] and program[i].op not in _READ and at[i] == p]
    used = {a for i in computed for a in program[i].args}
    used |= {program[i].args[0] for i in reduce} | {s.instr for s in written}
    loads = [i for i in used if program[i].op in _READ and not once[i]]
    remembered = [i for i in computed if any(_used_after(program, i, p, u, once, level, at) for u in live)]
    return Pass(
        row=tuple(i for i in sorted(live) if once[i] and level[i] == p and not program[i].op.startswith("reduce_")),
        row_stores=tuple(s for s in stores if s.tensor in row_stores and level[s.instr] == p),
        each=tuple(sorted([*loads, *computed])),
        kept=tuple(sorted(i for i in used if not once[i] and program[i].op not in _READ and at[i] < p)),
        keep=tuple(remembered),
        reduce=reduce,
        stores=written,
    )


def _used_after(
    program: Sequence[Instr],
    i: int,
    p: int,
    user: int,
    once: Sequence[bool],
    level: Sequence[int],
    at: dict[int, int],
) -> bool:
    if i not in program[user].args:
        return False
    if program[user].op.startswith("reduce_"):
        return level[user] - 1 > p
    return not once[user] and at[user] > p
