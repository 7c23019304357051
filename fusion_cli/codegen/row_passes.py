"""Splitting a rowwise program into passes over the row, one more than the longest chain of reductions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from fusion_cli.codegen.expr import needed
from fusion_cli.operators.dtypes import FLOATS
from fusion_cli.planir.stages import Instr, Rowwise, Store

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


def with_inverses(stage: Rowwise, uniform: Collection[int]) -> Rowwise:
    """The stage with quotients by a number of the row as products with its inverse, which costs half a unit in the last
    place of float32: a division is a dozen instructions. Only of divisors below 2^-128 the inverse is infinite."""
    once = per_row(stage.program, uniform)
    program: list[Instr] = []
    moved: list[int] = []
    for i, instr in enumerate(stage.program):
        args = tuple(moved[a] for a in instr.args)
        if instr.op == "Div" and instr.dtype in FLOATS and once[instr.args[1]] and not once[i]:
            program.append(Instr("Reciprocal", args[1:], instr.dtype))
            program.append(replace(instr, op="Mul", args=(args[0], len(program) - 1)))
        else:
            program.append(replace(instr, args=args))
        moved.append(len(program) - 1)
    stores = tuple(replace(s, instr=moved[s.instr]) for s in stage.stores)
    return replace(stage, program=tuple(program), stores=stores)


def schedule(
    program: Sequence[Instr], stores: Sequence[Store], uniform: Collection[int], row_stores: Collection[int]
) -> tuple[Pass, ...]:
    """The passes of a rowwise program.

    `uniform` are the operands that hold one element per row, `row_stores` the tensors written once per row. Each value
    is computed in the first pass that uses it; what is read from memory is read again where it is used.
    """
    scheduler = _Scheduler(program, stores, uniform, row_stores)
    return tuple(scheduler.at(p) for p in range(max(scheduler.level, default=0) + 1))


def per_row(program: Sequence[Instr], uniform: Collection[int]) -> list[bool]:
    """Which instructions have one value per row, given the operands that do."""
    result: list[bool] = []
    for instr in program:
        if instr.op == "load":
            result.append(instr.value in uniform)
        elif instr.op == "index":
            result.append(instr.value != -1)
        else:
            result.append(reduces(instr) or (instr.op != "acc" and all(result[a] for a in instr.args)))
    return result


def reduces(instr: Instr) -> bool:
    """Whether an instruction makes one number of a row."""
    return instr.op.startswith("reduce_")


class _Scheduler:
    def __init__(
        self, program: Sequence[Instr], stores: Sequence[Store], uniform: Collection[int], row_stores: Collection[int]
    ) -> None:
        self.program = program
        self.live = sorted(needed(program, [s.instr for s in stores]))
        self.once = per_row(program, uniform)
        self.row_stores = [s for s in stores if s.tensor in row_stores]
        self.stores = [s for s in stores if s.tensor not in row_stores]
        self.level: list[int] = []
        """How many reductions must be complete before an instruction can run."""
        for instr in program:
            before = max((self.level[a] for a in instr.args), default=0)
            self.level.append(before + 1 if reduces(instr) else before)
        self.first: dict[int, int] = {}
        """The pass in which each per-element instruction is first needed."""
        self.reads: dict[int, int] = {}
        """The pass in which an instruction reads its operands, of those that do so per element."""
        for store in self.stores:
            self._use(store.instr, self.level[store.instr])
        for i in reversed(self.live):
            if reduces(program[i]):
                self.reads[i] = self.level[i] - 1
            elif not self.once[i]:
                self.reads[i] = self.first[i]
            for a in program[i].args if i in self.reads else ():
                self._use(a, self.reads[i])

    def _use(self, i: int, p: int) -> None:
        self.first[i] = min(self.first.get(i, p), p)

    def at(self, p: int) -> Pass:
        program, once, first = self.program, self.once, self.first
        reduce = tuple(i for i in self.live if reduces(program[i]) and self.reads[i] == p)
        stores = tuple(s for s in self.stores if first[s.instr] == p)
        computed = [i for i in self.live if not once[i] and program[i].op not in _READ and first[i] == p]
        used = {a for i in (*computed, *reduce) for a in program[i].args} | {s.instr for s in stores}
        elements = sorted(i for i in used if not once[i])
        later = {a for i, q in self.reads.items() if q > p for a in program[i].args}
        ready = [i for i in self.live if once[i] and self.level[i] == p and not reduces(program[i])]
        return Pass(
            row=tuple(ready),
            row_stores=tuple(s for s in self.row_stores if self.level[s.instr] == p),
            each=tuple(sorted([*(i for i in elements if program[i].op in _READ), *computed])),
            kept=tuple(i for i in elements if program[i].op not in _READ and first[i] < p),
            keep=tuple(i for i in computed if i in later),
            reduce=reduce,
            stores=stores,
        )
