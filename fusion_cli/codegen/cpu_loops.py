"""The loops of CPU kernels: what each one walks over, and its body as C++ lines.

A pointwise stage is a loop over runs of elements; a rowwise one several loops over a row, which keeps what later passes
need in working rows of the calling thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from fusion_cli.codegen.cpu_access import (
    Access,
    acc_access,
    inner_stride,
    reads,
    render,
    steps,
    store_line,
    writes,
)
from fusion_cli.codegen.expr import compute, needed, render_program
from fusion_cli.codegen.row_passes import Pass, per_row, schedule
from fusion_cli.codegen.text import space_shape
from fusion_cli.codes import emit as codes
from fusion_cli.errors import Unsupported
from fusion_cli.operators.dtypes import DTYPES, ONNX_FLOATS
from fusion_cli.operators.elementwise import ELEMENTWISE
from fusion_cli.planir.stages import Attention, Instr, Plan, Stage, Store

_WORK = 1 << 15  # scalar operations worth handing to another thread
_COST = {o.name: max(o.cost, 1) for o in ELEMENTWISE}
_WIDE_FROM = 12  # scalar operations per element from which a loop is not bound by memory
_ROWS_KEPT = 64  # thread_row's capacity in templates/cpu/loop.h

_REDUCTIONS = {
    "reduce_sum": ("+", "0", "+"),
    "reduce_mean": ("+", "0", "+"),
    "reduce_prod": ("*", "1", "*"),
    "reduce_max": (">", "lowest<{}>()", "max"),
    "reduce_min": ("<", "highest<{}>()", "min"),
}
"""The sign of a step, what it starts from, and OpenMP's name."""


@dataclass(frozen=True)
class Reduction:
    """A reduction of a row: its accumulator, the OpenMP clause, the step, and the finished value."""

    name: str
    type: str
    initial: str
    clause: str
    step: str
    result: str


@dataclass(frozen=True)
class Walk:
    """One pass over a row, as C++ lines."""

    before: list[str]
    body: list[str]
    reductions: list[Reduction]


@dataclass(frozen=True)
class Body:
    """The generated loop of a stage: what it reads and writes, and its passes.

    A pointwise body has one pass without reductions. `grain`: elements worth a thread's while.
    """

    accesses: list[Access]
    head: list[str]
    walks: list[Walk]
    tail: list[str]
    grain: int
    wide: bool
    """Whether it computes enough to gain from wider vectors."""


def loop(plan: Plan, stage: Stage, rowwise: bool, acc_dtype: str = "float32", factor: float = 1.0) -> Body:
    """The loop over a stage's program; the stage's own result (if it has one), times `factor`, is array `acc`."""
    space = space_shape(plan, stage)
    row_stores = _row_stores(plan, stage, space) if rowwise else frozenset()
    live = needed(stage.program, [s.instr for s in stage.stores])
    accesses = reads(plan, stage.program, stage.operands, live, space, acc_access(acc_dtype, factor))
    accesses |= writes(plan, stage.stores, row_stores, space)
    return _body(stage.program, stage.stores, accesses, row_stores if rowwise else None)


def score_loop(plan: Plan, stage: Attention, program: Sequence[Instr], result: int, space: Sequence[int | str]) -> Body:
    """The rowwise loop over attention scores, which `program` replaces in place by instruction `result`."""
    scores = acc_access("float32", stage.scale)
    live = needed(program, [result])
    accesses = {**reads(plan, program, stage.operands, live, space, scores), "acc": scores, "y-1": scores}
    body = _body(program, (Store(-1, result),), accesses, frozenset())
    return replace(body, accesses=[a for name, a in accesses.items() if name != "y-1"])


def _row_stores(plan: Plan, stage: Stage, space: Sequence[int | str]) -> frozenset[int]:
    """The stored tensors with one element per row: those whose last axis is 1, or that lack the last axis."""
    uniform = {k for k, o in enumerate(stage.operands) if inner_stride(plan, o, space) == 0}
    one_per_row = per_row(stage.program, uniform)
    found = set()
    for store in stage.stores:
        shape = plan.tensors[store.tensor].shape
        lead = len(space) - len(shape)
        whole = shape[-1:] == tuple(space[-1:]) and all(d == 1 for d in space[:lead])
        if one_per_row[store.instr] and space[-1] != 1 and not whole:
            found.add(store.tensor)
    return frozenset(found)


def _body(
    program: Sequence[Instr], stores: Sequence[Store], accesses: dict[str, Access], row_stores: Collection[int] | None
) -> Body:
    """The loop of a program: over rows if `row_stores`, the tensors with one element per row, are given."""
    live = needed(program, [s.instr for s in stores])
    if row_stores is None:
        head, tail = _widened(accesses, lambda buffer: f"float {buffer}[kBlock];")
        lines, names = render(program, accesses, live, {})
        walks = [Walk([], [*lines, *(store_line(program, s, accesses, names) for s in stores)], [])]
    else:
        uniform = {a.name for a in accesses.values() if a.role == "load" and a.inner == 0}
        passes = schedule(program, stores, {int(name[1:]) for name in uniform}, row_stores)
        numbers = iter(range(_ROWS_KEPT))

        def row(name: str, ctype: str = "float") -> str:
            """A working row of the kernel, declared."""
            number = next(numbers, None)
            if number is None:
                raise Unsupported(codes.LIMIT, f"at most {_ROWS_KEPT} values kept per row", "more")
            return f"{ctype}* {name} = thread_row<{ctype}>({number}, n);"

        head, tail = _widened(accesses, row, uniform)
        head += [row(f"k{i}", compute(program[i].dtype)) for p in passes for i in p.keep]
        walks = [_walk(program, p, accesses) for p in passes]
    cost = sum(_COST.get(program[i].op, 1) for i in live)
    return Body(list(accesses.values()), head, walks, tail, max(1, _WORK // max(1, cost)), cost >= _WIDE_FROM)


def _widened(
    accesses: dict[str, Access], declare: Callable[[str], str], uniform: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """What comes before and after the passes: steps, and float copies of narrow arrays but for `uniform` ones."""
    head, tail = steps(accesses), []
    for position, access in enumerate(accesses.values()):
        if not access.narrow or access.role == "row_store" or access.name in uniform:
            continue
        buffer = f"{access.name}_wide"
        head.append(declare(buffer))
        if access.role == "load":
            head.append(f"widen({access.name}, step[{position}], n, {buffer});")
        elif access.scattered:
            tail.append(f"copy({buffer}, 1, n, {access.name}, step[{position}]);")
        else:
            tail.append(f"narrow({buffer}, n, {access.name});")
    return head, tail


def _walk(program: Sequence[Instr], p: Pass, accesses: dict[str, Access]) -> Walk:
    uniform = render_program(
        program,
        load=lambda k: f"load(x{k})",
        index=lambda axis: f"at_p{-axis}",
        only=frozenset(p.row),
        names={i: f"v{i}" for i, instr in enumerate(program) if instr.op.startswith("reduce_")},
    )
    body, names = render(program, accesses, p.each, {i: f"k{i}[i]" for i in p.kept})
    before = uniform + [store_line(program, s, accesses, names) for s in p.row_stores]
    body += [f"k{i}[i] = v{i};" for i in p.keep]
    body += [store_line(program, s, accesses, names) for s in p.stores]
    return Walk(before, body, [_reduction(program, i, names) for i in p.reduce])


def _reduction(program: Sequence[Instr], i: int, names: dict[int, str]) -> Reduction:
    instr = program[i]
    ctype = compute(instr.dtype)
    if ctype == "bool":
        raise Unsupported(codes.DTYPE, "a numeric reduction", instr.dtype)
    source = instr.args[0]
    value = names.get(source, f"v{source}")
    acc = f"r{i}"
    sign, start, word = _REDUCTIONS[instr.op]
    initial, clause, result = f"{ctype} {acc} = {start.format(ctype)}", f"{word} : {acc}", acc
    if sign in "+*":
        step = f"{acc} {sign}= {value};"
        result = f"{acc} / {ctype}(n)" if instr.op == "reduce_mean" else acc
    else:
        step = f"{acc} = {value} {sign} {acc} ? {value} : {acc};"
        if DTYPES[instr.dtype].onnx in ONNX_FLOATS:
            # A comparison drops NaN, so it is looked for separately: the result must be NaN if any element is.
            initial, clause = f"int bad{i} = 0; {initial}", f"{clause}) reduction(| : bad{i}"
            step += f" bad{i} |= is_nan({value});"
            result = f"bad{i} ? nan<{ctype}>() : {acc}"
    return Reduction(f"v{i}", ctype, initial, clause, step, result)
