"""Products of many rows on Hopper: our own kernel with the epilogue in it, for one product or for several of one left
operand, where a second's epilogue may read what the first made (gate and up), or all stand side by side (query, key and
value)."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from fusion_cli.codegen.cuda_parts import Body, Names
from fusion_cli.devices.work import Work
from fusion_cli.kernels.addends import is_row, lies_dense
from fusion_cli.kernels.family import Schedule, Sized
from fusion_cli.kernels.skinny import chains_of, rows_of
from fusion_cli.operators.dtypes import NARROW
from fusion_cli.planir.stages import Linear, Operand, Plan, own_operands

_MOST = 2
"""Products of a chain: their sums share the registers."""
_ABREAST = 4
"""Chains of one launch: the kernel has the epilogues of them all."""
_LARGEST = 2**28
"""Sizes below it are reckoned with in 32 bits, as in wide_choice.cuh."""
ROWS = 64
"""From so many on, as in wide_choice.cuh."""
_ARCH, _EIGHT = "sm_90a", 8
_SLOWDOWN = 1.05
"""Beside the vendor's bare product: 10.1 us for 9.6 on an H200 with GELU at 1024x3072x768, 365 for 359 with SiLU at
2048x16384x4096. Where it would be slower than that and its pass, that is taken (wide_pays in wide_choice.cuh)."""
_SIDE_BY_SIDE = 1.0
"""Of several chains, beside one product as wide as all of them: 7.5 us for 8.0 with three of 1024x768x768, 92 for 90 at
2048x4608x3584."""
_READING = 1.1
"""Where its end reads a matrix besides: 374 us for 339 with a residual at 2048x4096x16384, 10.4 for 9.6 at
1024x768x3072."""
_FITS = f"sm_90a: at least {ROWS} rows, columns by the eight, all operands on 16-byte boundaries"

SCHEDULE = Schedule(
    "warpgroups",
    f"{_FITS}, and faster than the vendor's with its pass, as measured on an H200",
    (("rows", 128), ("columns", 256)),
)
TRIED = Schedule(
    "warpgroups by trial",
    "sm_90a: more than 16 rows and few tiles, columns by the eight, all operands on 16-byte boundaries, where a trial "
    "finds it faster than the vendor's: the blocks of a cluster share a tile's depth",
    (("rows", 64), ("columns", 64)),
)
CHAIN = Schedule(
    "warpgroups together",
    f"{_FITS}: with its neighbour of the same left operand in one launch, the epilogues in it",
    (("rows", 128), ("columns", 128)),
)
ABREAST = Schedule(
    "warpgroups abreast",
    f"{_FITS}: with the others of the same left operand in one launch, where the vendor's would take longer",
    (("rows", 128), ("columns", 256)),
)


@dataclass(frozen=True)
class WidePart:
    """A product's epilogue for two neighbours of a row: `x` holds its operands, `y` what it and others made."""

    stage: int
    """Which of the stages of the launch it is."""
    body: Body
    stored: tuple[str, ...]
    """The names of those results that somebody else reads."""
    steps: dict[int, tuple[str, str]]
    """How far apart in memory an operand's rows and columns are, as the kernel writes it."""

    @property
    def by_column(self) -> bool:
        """Whether it can be computed of eight rows of a column as well: what it reads is alike in all rows, and it
        makes one result of 16 bits."""
        alike = all(row == "0" for row, _ in self.steps.values()) and not self.body.axes
        names = tuple(y.name for y in self.body.outs if y.dtype in NARROW)
        return alike and len(self.body.outs) == 1 and self.stored == names


@dataclass(frozen=True)
class Wide:
    """Products that one kernel computes, by their epilogues: those of a chain at once, chains as parts of one grid."""

    chains: tuple[tuple[WidePart, ...], ...]
    trans_b: bool
    """Whether the right operands are contiguous along K."""
    sizes: tuple[int, ...] = ()
    """Rows, depth and the columns of every chain; empty where one of them is known at run time only."""


def column_major(plan: Plan, operand: Operand, transposed: bool) -> bool:
    """Whether the matrix is contiguous along its rows' axis, the last but one as the product sees it."""
    rank = len(plan.tensors[operand.tensor].shape)
    perm = operand.perm or tuple(range(rank))
    innermost = rank - 1 - perm.index(rank - 1)
    return innermost == (0 if transposed else 1)


def right_input(plan: Plan, position: int) -> int | None:
    """The operator's input that a stage's right operand is, if it is one: of a constant something may be kept."""
    stage = plan.stages[position]
    assert isinstance(stage, Linear)
    root = plan.tensors[plan.root(stage.operands[stage.b].tensor)]
    return root.slot if root.role == "input" else None


def right_are_inputs(plan: Plan, positions: Sequence[int]) -> bool:
    """Whether the right operands of all these stages are inputs of the operator, and so may be constants."""
    return all(right_input(plan, position) is not None for position in positions)


def wide_of(plan: Plan, chains: Sequence[Sequence[int]], takes: Set[str] = NARROW) -> Wide | None:
    """The kernel of chains of products, by position in the plan; None where there is none for them. `takes`: element
    types that it multiplies."""
    flat = [i for chain in chains for i in chain]
    stages = linears(plan, flat)
    types = {plan.tensors[s.operands[k].tensor].dtype for s in stages for k in (s.a, s.b)}
    turned = {column_major(plan, s.operands[s.b], s.trans_b) for s in stages}
    upright = not any(column_major(plan, s.operands[s.a], s.trans_a) for s in stages)
    longest = max(map(len, chains))
    fits = longest <= _MOST and len(chains) <= (_ABREAST if longest == 1 else 1)
    if not fits or len(types) > 1 or not types <= takes or len(turned) > 1 or not upright:
        return None
    order = sorted(flat)
    return Wide(tuple(_parts(plan, chain, order) for chain in chains), turned.pop(), _sizes(plan, chains))


def _sizes(plan: Plan, chains: Sequence[Sequence[int]]) -> tuple[int, ...]:
    firsts = linears(plan, [chain[0] for chain in chains])
    rows, depth = rows_of(plan, firsts[0]), plan.viewed(firsts[0].operands[firsts[0].a])[-1]
    others = (depth, *(_width(plan, stage) for stage in firsts))
    if any(isinstance(size, str) for size in (*rows, *others)):
        return ()
    sizes = (math.prod(map(int, rows)), *map(int, others))
    return sizes if all(0 < size < _LARGEST for size in sizes) else ()


def _parts(plan: Plan, chain: Sequence[int], order: Sequence[int]) -> tuple[WidePart, ...]:
    made: dict[int, str] = {}
    parts = []
    for n, position in enumerate(chain):
        stage = plan.stages[position]
        assert isinstance(stage, Linear)
        body = _body(plan, stage, n, made)
        stored = [
            y.name for y, s in zip(body.outs, stage.stores, strict=True) if not _is_private(plan, chain, s.tensor)
        ]
        steps = {x.operand: _steps(plan, stage, n, x.operand) for x in body.loads}
        parts.append(WidePart(order.index(position), body, tuple(stored), steps))
        made |= {s.tensor: f"y{n}_{k}[i]" for k, s in enumerate(stage.stores)}
    return tuple(parts)


def wide_with(plan: Plan, position: int) -> Wide | None:
    """The kernel that runs a stage together with all other products of its left operand."""
    chains = chains_with(plan, position)
    return wide_of(plan, chains) if chains and may_be_many(plan, position) else None


def may_be_many(plan: Plan, position: int) -> bool:
    """Whether a product may have as many rows as the kernel takes, by what is known of its sizes before it runs."""
    rows = rows_of(plan, plan.stages[position])
    return any(isinstance(size, str) for size in rows) or math.prod(map(int, rows)) >= ROWS


def linears(plan: Plan, positions: Sequence[int]) -> list[Linear]:
    """The products among these stages."""
    return [stage for i in positions if isinstance(stage := plan.stages[i], Linear)]


def chains_with(plan: Plan, position: int) -> list[list[int]]:
    """The products of a stage's left operand as chains, by position in the plan; none where they are not to be had."""
    group = next((g for g in plan.groups if g.kind == "products" and position in g.stages), None)
    chains = chains_of(plan, group) if group else None
    return [[group.stages[i] for i in chain] for chain in chains] if group and chains else []


def is_chain(wide: Wide | None) -> bool:
    """Whether one chain is all there is: it always runs together."""
    return wide is not None and len(wide.chains) == 1


def work_together(at: Sized) -> Work | None:
    """What one of the products that have one launch has to do at these sizes: the first reads their left operand, and
    nobody stores what only a chain reads. None where they do not run together."""
    position = at.plan.stages.index(at.stage)
    chains = chains_with(at.plan, position)
    if not chains or wide_of(at.plan, chains) is None:
        return None
    flat = [i for chain in chains for i in chain]
    if not all(_suits(replace(at, stage=stage)) for stage in linears(at.plan, flat)):
        return None
    is_joined = position != min(flat)
    left = {at.stage.operands[at.stage.a].tensor} if is_joined else set()
    chain = next(c for c in chains if position in c)
    moved = [t for t in at.stage.tensors if t not in left and not _is_private(at.plan, chain, t)]
    return _work(at, moved, _SLOWDOWN if len(chains) == 1 else _SIDE_BY_SIDE, is_joined)


def work_alone(at: Sized) -> Work | None:
    """What a product that has this kernel to itself has to do at these sizes; None where they do not suit it."""
    if not _suits(at):
        return None
    others = set(range(len(at.stage.operands))) - set(own_operands(at.stage))
    reads = any(math.prod(at.shape(k)) >= at.space for k in others)
    return _work(at, at.stage.tensors, _READING if reads else _SLOWDOWN)


def _suits(at: Sized) -> bool:
    """Whether the kernel takes a product of these sizes."""
    rows, columns = math.prod(at.dims[at.stage.dims][:-1]), at.dims[at.stage.dims][-1]
    return at.profile.arch == _ARCH and rows >= ROWS and columns % _EIGHT == 0 and _depth(at) % _EIGHT == 0


def _work(at: Sized, tensors: Sequence[int], slowdown: float, is_joined: bool = False) -> Work:
    """Of a product that moves these tensors."""
    return Work(
        "Linear",
        at.moved(tensors),
        2.0 * at.space * _depth(at),
        at.dtype(at.stage.a),
        slowdown=slowdown,
        grid=at.grid,
        weights=at.constants(at.stage.tensors),
        is_joined=is_joined,
    )


def _depth(at: Sized) -> int:
    return at.shape(at.stage.a)[-1]


def _body(plan: Plan, stage: Linear, n: int, made: dict[int, str]) -> Body:
    """The n-th product's epilogue; `made` are the results of those before it, as the kernel writes them."""
    names = Names(plan, stage)
    outs = names.outs()

    def load(k: int) -> str:
        return made.get(stage.operands[k].tensor) or f"gpu::get(x.in{n}_{k}, i)"

    body = names.body(stage.program, outs, load=load, position=lambda back: f"e{n}.axis_{back}.at(e + i)")
    read = tuple(x for x in body.loads if stage.operands[x.operand].tensor not in made)
    return Body(read, body.outs, body.axes, body.lines)


def _steps(plan: Plan, stage: Linear, n: int, k: int) -> tuple[str, str]:
    """Those of operand k of the n-th product: of a row or a matrix as wide as the result they are known beforehand, and
    the kernel asks for nothing."""
    width, operand = _width(plan, stage), stage.operands[k]
    shape = plan.tensors[operand.tensor].shape
    known = width != 1 and shape[-1:] == (width,) and lies_dense(plan, operand)
    return "0" if known and is_row(shape, width) else f"e{n}.row{k}", "1" if known else f"e{n}.column{k}"


def _width(plan: Plan, stage: Linear) -> int | str:
    right = stage.operands[stage.b]
    shape = plan.tensors[right.tensor].shape
    seen = tuple(shape[p] for p in right.perm or range(len(shape)))
    return seen[-2 if stage.trans_b else -1]


def _is_private(plan: Plan, chain: Sequence[int], tensor: int) -> bool:
    """Whether nothing but the chain reads a tensor that it writes."""
    others = (s for i, s in enumerate(plan.stages) if i not in chain)
    read = {plan.root(o.tensor) for s in others for o in s.operands}
    return plan.tensors[tensor].role == "temp" and tensor not in read
