"""Views of values: a slice, or split axes, taken of what is in memory or of what a value is computed from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from fusion_cli.plan.graph import CHEAP, LEAVES, RECOMPUTED, REDUCTIONS, Val
from fusion_cli.plan.lowering import Builder
from fusion_cli.sizes.algebra import ONE


class View(Protocol):
    """Picks or arranges elements of a value, and of the operands that broadcast to it alike."""

    def of(self, b: Builder, x: Val) -> Val:
        """The view of x."""

    def dims(self, b: Builder, x: Val) -> int:
        """The shape value with the dimensions of the view of x."""

    def fits(self, b: Builder, x: Val, full: Val) -> bool:
        """Whether x is provably either broadcast or as long as `full` wherever the view looks."""

    @property
    def cuts_rows(self) -> bool:
        """Whether what it makes of a row is no row."""


@dataclass(frozen=True)
class Slice:
    """Along each of `axes` (negative, from the end) `counts` elements from `first` on, `steps` apart (shape values).
    An axis that x does not have, or of size 1, is one that x is broadcast over."""

    axes: tuple[int, ...]
    first: int
    counts: int
    steps: int

    def of(self, b: Builder, x: Val) -> Val:
        return sliced(b, x, self._within(b, x))

    def dims(self, b: Builder, x: Val) -> int:
        return self._within(b, x).put(b, x.dims, self._within(b, x).counts)

    def fits(self, b: Builder, x: Val, full: Val) -> bool:
        return all(_covers(b, x, full, a) and b.sizes.norm(full.shape[a]) != ONE for a in self.axes)

    @property
    def cuts_rows(self) -> bool:
        return -1 in self.axes

    def only(self, b: Builder, positions: list[int]) -> Slice:
        """The slice of some of the axes."""
        first, counts, steps = (b.shapes.emit("take", (v,), positions) for v in (self.first, self.counts, self.steps))
        return Slice(tuple(self.axes[p] for p in positions), first, counts, steps)

    def trimmed(self, b: Builder, x: Val) -> Slice:
        """Without the axes of which it takes all."""
        steps, counts = b.literals(self.steps), b.shapes.values[self.counts]
        return self.only(
            b, [i for i, a in enumerate(self.axes) if steps[i] != 1 or not b.sizes.equal(counts[i], x.shape[a])]
        )

    def put(self, b: Builder, vector: int, values: int) -> int:
        """`vector`, one element per axis of a tensor, with `values` for the sliced axes."""
        rank = len(b.shapes.values[vector])
        return b.shapes.emit("put", (vector, values), [a + rank for a in self.axes])

    def _within(self, b: Builder, x: Val) -> Slice:
        inside = [i for i, a in enumerate(self.axes) if -a <= len(x.shape) and b.sizes.norm(x.shape[a]) != ONE]
        return self.only(b, inside)


@dataclass(frozen=True)
class Split:
    """Axes split in several: `runs` are the axes of the shape `split` (a shape value) that each axis becomes."""

    runs: tuple[tuple[int, ...], ...]
    split: int

    def of(self, b: Builder, x: Val) -> Val:
        dims = self.dims(b, x)
        run = self.runs[int(x.value or 0)] if x.op == "index" else ()
        if len(run) == 1:  # positions along an axis that stays one
            return b.positions(run[0] - len(b.shapes.values[self.split]), dims)
        return b.reshape(x, dims)

    def dims(self, b: Builder, x: Val) -> int:
        target = [b.shapes.const(())]
        for axis in range(-len(x.shape), 0):
            run = self.runs[axis]
            is_one = b.sizes.norm(x.shape[axis]) == ONE
            target.append(b.shapes.const((1,) * len(run)) if is_one else b.shapes.emit("take", (self.split,), run))
        return b.shapes.emit("concat", target)

    def fits(self, b: Builder, x: Val, full: Val) -> bool:
        return all(_covers(b, x, full, axis) for axis in range(-len(full.shape), 0))

    @property
    def cuts_rows(self) -> bool:
        return len(self.runs[-1]) > 1


def taken_of(b: Builder, part: Val, x: Val) -> Slice:
    """What a slice takes of x, without the axes of which it takes all."""
    axes = tuple(range(-len(part.shape), 0))
    return Slice(axes, part.shape_value("starts"), part.dims, part.shape_value("steps")).trimmed(b, x)


def viewed(b: Builder, x: Val, view: View) -> Val:
    """The view of x: where x is computed by a few cheap operations, the same operations on views of their operands;
    else of x in memory. Rows that are normed stay whole, as they are where they are reduced."""
    made: dict[Val, Val] = {}
    rows = _Rows(b) if view.cuts_rows else None
    for val in _cheap_tree(x, rows):
        for arg in val.args:
            if arg not in made:
                if not view.fits(b, arg, x):
                    return view.of(b, x)
                made[arg] = view.of(b, arg)
        args = [made[a] for a in val.args]
        if any(a.op in ("slice", "reshape") and a.args[0].op in LEAVES - {"input"} for a in args):
            return view.of(b, x)
        made[val] = b.again(val, args, view.dims(b, val))
    return made[x] if x in made else view.of(b, x)


class _Rows:
    """What is computed from reductions of rows."""

    def __init__(self, b: Builder) -> None:
        self._b = b
        self._normed: dict[Val, bool] = {}

    def is_normed(self, x: Val) -> bool:
        """Whether x is rows that meet numbers of their own, and then others that are the same for all rows."""
        if x not in self._normed:
            self._normed[x] = x.is_elementwise and self._meets(x)
        return self._normed[x]

    def _meets(self, x: Val) -> bool:
        if any(map(self._is_of_each, x.args)):
            return True
        others = [a for a in x.args if not self.is_normed(a)]
        return len(others) < len(x.args) and all(self._is_of_all(a) for a in others)

    def _is_of_each(self, x: Val) -> bool:
        """Whether x is one number of each row, from a reduction."""
        is_one = bool(x.shape) and self._b.sizes.norm(x.shape[-1]) == ONE
        return x.op in REDUCTIONS or (is_one and x.is_elementwise and any(map(self._is_of_each, x.args)))

    def _is_of_all(self, x: Val) -> bool:
        return all(self._b.sizes.norm(size) == ONE for size in x.shape[:-1])


def _cheap_tree(x: Val, rows: _Rows | None) -> list[Val]:
    """The operations that compute x, arguments first, as far as they are cheap, and with `rows` up to those; none where
    there are many, or where they belong behind a product."""
    found: list[Val] = []
    stack = [(x, False)]
    while stack:
        val, expanded = stack.pop()
        if val.op in ("matmul", "conv", "pool", "moments"):
            return []
        if val in found or not (val.is_elementwise and val.op in CHEAP) or (rows is not None and rows.is_normed(val)):
            continue
        if expanded:
            found.append(val)
            if len(found) > RECOMPUTED:
                return []
        else:
            stack.append((val, True))
            stack.extend((a, False) for a in val.args)
    return found


def _covers(b: Builder, x: Val, full: Val, axis: int) -> bool:
    if -axis > len(x.shape) or b.sizes.norm(x.shape[axis]) == ONE:
        return True
    return b.sizes.equal(x.shape[axis], full.shape[axis])


def sliced(b: Builder, x: Val, c: Slice) -> Val:
    """x, sliced: as a view of what x is itself a view of, and as part of what x is joined from."""
    c = c.trimmed(b, x)
    if not c.axes:
        return x
    if x.op == "const":
        return b.again(x, (), c.put(b, x.dims, c.counts))
    if x.op == "index":
        return _slice_index(b, x, c)
    if x.op == "transpose":
        rank = len(x.shape)
        turned = Slice(tuple(x.perm[a] - rank for a in c.axes), c.first, c.counts, c.steps)
        return b.transpose(sliced(b, x.args[0], turned), x.perm)
    part = _slice_concat(b, x, c) if x.op == "concat" else None
    return part or _slice(b, x, c)


def _slice(b: Builder, x: Val, c: Slice) -> Val:
    """A slice of memory; of a slice, the slice that both make."""
    dims = c.put(b, x.dims, c.counts)
    rank = len(x.shape)
    if x.op != "slice":
        starts, steps = b.shapes.const((0,) * rank), b.shapes.const((1,) * rank)
        return b.slice(x, dims, c.put(b, starts, c.first), c.put(b, steps, c.steps))
    starts, steps = x.shape_value("starts"), x.shape_value("steps")
    own_start, own_step = (b.shapes.emit("take", (v,), [a + rank for a in c.axes]) for v in (starts, steps))
    first = b.shapes.emit("add", (b.shapes.emit("mul", (c.first, own_step)), own_start))
    step = b.shapes.emit("mul", (c.steps, own_step))
    return b.slice(x.args[0], dims, c.put(b, starts, first), c.put(b, steps, step))


def _slice_index(b: Builder, x: Val, c: Slice) -> Val:
    """Positions along an axis: those of the sliced shape, scaled and moved."""
    axis = int(x.value or 0)
    positions = b.positions(axis, c.put(b, x.dims, c.counts))
    if axis not in c.axes:
        return positions
    place = c.axes.index(axis)
    first, step = b.literals(c.first)[place], b.literals(c.steps)[place]
    if first is None or step is None:
        return _slice(b, x, c)
    return b.apply("Add", b.apply("Mul", positions, step), first)


def _slice_concat(b: Builder, x: Val, c: Slice) -> Val | None:
    """Of joined values: the one that is cut out, or each of them cut along other axes."""
    axis = x.axis
    if axis not in c.axes:
        return b.concat([sliced(b, part.args[0], c) for part in x.args], axis)
    place = c.axes.index(axis)
    others = c.only(b, [i for i in range(len(c.axes)) if i != place])
    first, count = b.shapes.values[c.first][place], b.shapes.values[c.counts][place]
    for part in x.args:
        begin = b.shapes.values[part.shape_value("starts")][axis]
        whole = b.sizes.equal(first, begin) and b.sizes.equal(count, part.shape[axis])
        if whole and b.literals(c.steps)[place] == 1:
            return sliced(b, part.args[0], others)
    return None
