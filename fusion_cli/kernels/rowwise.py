"""Elementwise operations and reductions along rows: softmax, norms, and what is computed around them.

On a GPU each pass over the row is printed twice: for rows that fit in registers, and for longer ones.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from fusion_cli.codegen.cpu_loops import loop
from fusion_cli.codegen.cpu_parts import CpuStage, common
from fusion_cli.codegen.cuda_parts import CudaStage, Load, Names, Out, result
from fusion_cli.codegen.expr import compute, loaded, needed, render_program
from fusion_cli.codegen.narrow import narrowed
from fusion_cli.codegen.row_passes import Pass, schedule, with_inverses
from fusion_cli.codegen.text import space_shape
from fusion_cli.kernels.family import Family, Kind, Schedule
from fusion_cli.kernels.pointwise import vector_width
from fusion_cli.planir.stages import Instr, Plan, Rowwise


@dataclass(frozen=True)
class Reduction:
    """`name` = `op` over the row of `value`, accumulated in `partial`; `mean` divides by the row's length."""

    name: str
    partial: str
    type: str
    op: str
    value: str
    mean: bool


@dataclass(frozen=True)
class RowPass:
    """One pass as printed: statements once per row, arrays to declare, the loop's statements, what it writes."""

    row_lines: tuple[str, ...]
    row_stores: tuple[tuple[str, str], ...]
    loads: tuple[Load, ...]
    keep: tuple[tuple[str, str, str], ...]
    """Arrays for values that later passes use: type, name, and the value."""
    lines: tuple[str, ...]
    stores: tuple[tuple[Out, str], ...]
    reductions: tuple[Reduction, ...]

    @property
    def per_element(self) -> bool:
        return bool(self.keep or self.stores or self.reductions)


@dataclass(frozen=True)
class Variant:
    """A kernel for rows of up to `chunks` vectors for each of `threads` threads."""

    chunks: int
    threads: int


_LONGEST_KEPT = Variant(4, 512)
_MOST_FEW, _IN_TURN = 512, 256
"""Threads of one row where rows are few: at most, and up to which the sums of warps are added up one after the other,
as in rowwise.cuh; of more, they are a power of two."""
_PARTS = (8, 16)
"""Threads of a warp that may have a row of their own, where its others have other rows."""
_WALKED = Variant(2, 1024)


@dataclass(frozen=True)
class Pick:
    """A load that reads a row of a table of `count` rows, and the one that gives its number, by their positions."""

    table: int
    number: int
    count: int


@dataclass(frozen=True, kw_only=True)
class RowwiseStage(CudaStage):
    loads: tuple[Load, ...]
    picks: tuple[Pick, ...]
    vectors: tuple[int, ...]
    """Positions of those loads that differ along the row."""
    outs: tuple[Out, ...]
    axes: tuple[int, ...]
    width: int
    """Elements of a vector: 16 bytes of the widest operand."""
    packs: bool
    """Whether rows may be whole vectors."""
    kept: tuple[Variant, ...]
    """The kernels for rows that fit in registers, by their length."""
    few: Variant | None
    """The kernel for whole vectors of no more rows than there are multiprocessors, where it is another one."""
    walked: tuple[Variant, ...]
    """The kernel for longer ones, where there may be such."""
    short: tuple[RowPass, ...]
    long: tuple[RowPass, ...]

    @property
    def slots(self) -> dict[int, int]:
        """Operand -> its position among those of the row space."""
        return {x.operand: n for n, x in enumerate(self.loads)}


class RowwiseFamily(Family):
    name = "rowwise"
    stages = (Rowwise,)

    def schedules(self, plan: Plan, stage: Rowwise, kind: Kind) -> tuple[Schedule, ...]:
        if kind == "cpu":
            return (Schedule("rows", "always: a row after the other, as many at a time as there are threads"),)
        return (
            Schedule("registers", "a row fits in the registers of the threads that share it"),
            Schedule("few", "no more rows than multiprocessors: a vector or two for each of as many threads"),
            Schedule("passes", "longer rows: read again in every pass"),
        )

    def cpu(self, plan: Plan, stage: Rowwise, index: int, arch: str) -> CpuStage:
        return CpuStage(**common(stage, "rowwise"), body=loop(plan, stage, rowwise=True))

    def cuda(self, plan: Plan, stage: Rowwise, index: int) -> RowwiseStage:
        space = space_shape(plan, stage)
        shapes = [plan.viewed(o) or (1,) for o in stage.operands]
        numbers = {k: o.rows for k, o in enumerate(stage.operands) if o.rows is not None}
        uniform = frozenset(k for k, shape in enumerate(shapes) if space[-1] != 1 and shape[-1] == 1)
        uniform |= frozenset(numbers.values())
        stage = with_inverses(stage, uniform)
        stage = replace(stage, program=narrowed(stage.program))
        names = Names(plan, stage)
        program = stage.program
        live = needed(program, [s.instr for s in stage.stores])
        elements = _elements(stage)
        loaded = sorted(elements | {numbers[k] for k in elements & numbers.keys()})
        stored = {s.tensor: plan.tensors[s.tensor].shape for s in stage.stores}
        row_stores = frozenset(t for t, s in stored.items() if space[-1] != 1 and (len(s) < len(space) or s[-1] == 1))
        passes = schedule(program, stage.stores, uniform, row_stores)
        outs = names.outs()
        printer = _Printer(names, outs, uniform, loaded)
        loads = tuple(names.load(k) for k in loaded)
        width = width_of(plan, stage)
        length = space[-1] if isinstance(space[-1], int) else None
        kept, packs = variants(width, length), length is None or length % width == 0
        return RowwiseStage(
            **names.common("rowwise", "rowwise.cuh"),
            loads=loads,
            picks=tuple(
                Pick(loaded.index(k), loaded.index(numbers[k]), int(plan.tensors[stage.operands[k].tensor].shape[0]))
                for k in sorted(elements & numbers.keys())
            ),
            vectors=tuple(n for n, k in enumerate(loaded) if k not in uniform),
            outs=outs,
            width=width,
            packs=packs,
            kept=kept,
            few=few_rows(width, length, kept) if packs and kept else None,
            walked=() if length is not None and kept else (_WALKED,),
            axes=tuple(sorted({-int(program[i].value or 0) for i in live if program[i].op == "index"})),
            short=printer.short(passes),
            long=printer.long(passes),
        )


def _elements(stage: Rowwise) -> set[int]:
    """The operands that are read element by element; numbers of rows are read once a row."""
    live = needed(stage.program, [s.instr for s in stage.stores])
    return loaded(stage.program, live)


def width_of(plan: Plan, stage: Rowwise) -> int:
    """Elements of a vector: 16 bytes of the widest that are read or written."""
    tensors = (*(stage.operands[k].tensor for k in _elements(stage)), *(s.tensor for s in stage.stores))
    return vector_width([plan.tensors[t].dtype for t in tensors])


def variants(width: int, length: int | None) -> tuple[Variant, ...]:
    """The kernels that keep rows of a length, which may be open, in registers: of a warp each where that is enough, of
    a part of one where fewer threads have something to read."""
    if length is None:
        return (Variant(1, 32), _LONGEST_KEPT)
    vectors = max(1, -(-length // width))
    if vectors <= _PARTS[-1]:
        return (Variant(1, next(n for n in _PARTS if vectors <= n)),)
    if vectors <= 32 * _LONGEST_KEPT.chunks:
        return (Variant(-(-vectors // 32), 32),)
    return (_LONGEST_KEPT,) if vectors <= _LONGEST_KEPT.chunks * _LONGEST_KEPT.threads else ()


def few_rows(width: int, length: int | None, kept: Sequence[Variant]) -> Variant | None:
    """The kernel for few rows of a length, by as many threads as have something to read: what each has to do one after
    the other is all that they take, and the code for it comes from memory. None where `kept` is no other."""
    if length is None:
        return Variant(1, _MOST_FEW)
    vectors = -(-length // width)
    threads = -(-vectors // 32) * 32 if vectors <= _IN_TURN else _MOST_FEW
    few = Variant(-(-vectors // threads), threads)
    return few if few.chunks < kept[-1].chunks else None


class _Printer:
    def __init__(self, names: Names, outs: tuple[Out, ...], uniform: Collection[int], loaded: Sequence[int]) -> None:
        self.names = names
        self.outs = outs
        self.uniform = uniform
        self.loaded = loaded
        self.program: Sequence[Instr] = names.stage.program

    def short(self, passes: tuple[Pass, ...]) -> tuple[RowPass, ...]:
        """Every value is computed once and kept in registers."""
        kept: dict[int, str] = {}
        seen: set[int] = set()
        printed = []
        for p in passes:
            loads = [k for k in self._loads(p.each) if k not in seen]
            seen.update(loads)
            printed.append(self._pass(p, p.each, kept, loads, p.keep))
            kept.update({i: f"k{i}[c][i]" for i in p.keep})
        return tuple(printed)

    def long(self, passes: tuple[Pass, ...]) -> tuple[RowPass, ...]:
        """Nothing is kept: each pass starts from the operands, which are in the cache by then."""
        per_row = {i for p in passes for i in (*p.row, *p.reduce)}
        printed = []
        for p in passes:
            roots = [self.program[i].args[0] for i in p.reduce] + [s.instr for s in p.stores]
            each = sorted(needed(self.program, roots, per_row))
            printed.append(self._pass(p, each, {}, self._loads(each), ()))
        return tuple(printed)

    def _loads(self, each: Sequence[int]) -> list[int]:
        return sorted(loaded(self.program, each) - set(self.uniform))

    def _pass(
        self, p: Pass, each: Sequence[int], kept: dict[int, str], loads: Sequence[int], keep: Sequence[int]
    ) -> RowPass:
        program = self.program
        row_lines = render_program(
            program,
            load=lambda k: f"fusion::load(a.in{k} + at[{self.loaded.index(k)}])",
            index=lambda axis: f"a.axis_{-axis}.at(row.index * row.length)",
            only=p.row,
        )
        lines = render_program(
            program,
            load=lambda k: f"gpu::get(x{k}[c], i)",
            index=lambda axis: f"a.axis_{-axis}.at(row.index * row.length + row.position(c, i))",
            only=[i for i in each if i not in kept],
            names=kept,
        )

        def value(i: int) -> str:
            return kept.get(i) or result(program, i)

        return RowPass(
            row_lines=tuple(row_lines),
            row_stores=tuple((self._out(s.tensor).name, value(s.instr)) for s in p.row_stores),
            loads=tuple(self.names.load(k) for k in loads),
            keep=tuple((compute(program[i].dtype), f"k{i}", f"v{i}") for i in keep),
            lines=tuple(lines),
            stores=tuple((self._out(s.tensor), value(s.instr)) for s in p.stores),
            reductions=tuple(reduction(program, i, value(program[i].args[0])) for i in p.reduce),
        )

    def _out(self, tensor: int) -> Out:
        return next(o for o in self.outs if o.tensor == self.names.local[tensor])


def reduction(program: Sequence[Instr], i: int, value: str) -> Reduction:
    """Instruction `i` of a program, which reduces `value`."""
    kind = program[i].op.removeprefix("reduce_")
    op = "Sum" if kind == "mean" else kind.capitalize()
    return Reduction(f"v{i}", f"r{i}", compute(program[i].dtype), op, value, kind == "mean")
