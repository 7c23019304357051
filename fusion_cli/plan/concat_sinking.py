"""Joined values: what is computed from a concatenation is computed part by part, and joined only if it must be stored.

Rotary embedding, x * cos + concat(-x2, x1) * sin, becomes concat(x1 * cos1 - x2 * sin1, x2 * cos2 + x1 * sin2): two
expressions over one space, whose kernel writes both parts of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusion_cli.plan.graph import LEAVES, Uses, Val
from fusion_cli.plan.lowering import Builder
from fusion_cli.plan.row_axes import with_row_axes
from fusion_cli.plan.slicing import Slice, Split, sliced, taken_of, viewed
from fusion_cli.sizes.algebra import ONE


def compute_by_parts(builder: Builder, outputs: Sequence[Val]) -> list[Val]:
    """The program with slices taken of operands rather than of results, and concatenation as late as can be."""
    uses = Uses(outputs)
    new: dict[Val, Val] = {}
    for val in uses.order:
        builder.node = val.node
        new[val] = val if val.op in LEAVES else _again(builder, uses, val, new)
    return [new[o] for o in outputs]


def join_at_once(builder: Builder, outputs: Sequence[Val]) -> list[Val]:
    """The program with what is joined of joined values joined once: the heads that a rotary embedding turns by halves,
    behind those that it leaves."""
    uses = Uses(outputs)
    if not any(_nested(uses, part) for val in uses.order if val.op == "concat" for part in val.args):
        return list(outputs)
    new: dict[Val, Val] = {}
    for val in uses.order:
        builder.node = val.node
        if val.op == "concat":
            parts = [p for part in val.args for p in _parts(builder, uses, part, new)]
            new[val] = builder.again(val, parts, val.dims)
        elif val.op != "part":  # those are made with what they are parts of
            args = [new[a] for a in val.args]
            new[val] = val if args == list(val.args) else builder.again(val, args, val.dims)
    return [new[o] for o in outputs]


def _nested(uses: Uses, part: Val) -> bool:
    """Whether a part is joined of others, which nothing else needs as a whole."""
    whole = part.args[0]
    return whole.op == "concat" and whole not in uses.outputs and uses.readers(whole) == [part]


def _parts(b: Builder, uses: Uses, part: Val, new: Mapping[Val, Val]) -> list[Val]:
    """A part, or in its place those that it is joined of, where they lie in the whole."""
    source = new[part.args[0]]
    if not _nested(uses, part):
        return [b.again(part, (source,), part.dims)]
    return [b.moved(inner, part.shape_value("starts")) for inner in source.args]


def _again(b: Builder, uses: Uses, val: Val, new: dict[Val, Val]) -> Val:
    args = [new[a] for a in val.args]
    if val.op == "part":
        return _unmerged(b, args[0])  # made a part again with the concatenation
    if val.op == "concat":
        return b.concat(args, val.axis)
    if val.op == "slice":
        taken = taken_of(b, val, args[0])
        return viewed(b, args[0], taken) if taken.fits(b, args[0], args[0]) else sliced(b, args[0], taken)
    result = None
    if val.op in ("reshape", "transpose"):
        # A transpose of what is stored is a copy, unless its parts are stored so; a reshape never is.
        alone = val.op == "transpose" and val.args[0] not in uses.outputs and uses.readers(val.args[0]) == [val]
        if args[0].op == "concat" and (alone or _is_computed_with(uses, val.args[0])):
            result = _viewed_parts(b, val, args[0])
        if result is None:
            result = b.transpose(args[0], val.perm) if val.op == "transpose" else with_row_axes(b, uses, val, new)
        return result or b.reshape(args[0], val.dims)
    if val.is_elementwise:
        late = [a for old, a in zip(val.args, args, strict=True) if _is_joined(a) and _is_computed_with(uses, old)]
        joined = next((a for a in late if a.op == "concat"), None)
        merged = next((a for a in late if a.op == "reshape"), None)
        if joined is not None:
            result = _by_parts(b, val, args, joined)
        elif merged is not None:
            result = _before_merging(b, val, args, merged)
    return result or (val if args == list(val.args) else b.again(val, args, val.dims))


def _is_joined(val: Val) -> bool:
    return val.op == "concat" or (val.op == "reshape" and val.args[0].op == "concat")


def _is_computed_with(uses: Uses, val: Val) -> bool:
    """Whether nothing but arithmetic reads a value, through views too: nobody needs it in memory."""
    if val in uses.outputs:
        return False
    readers = uses.readers(val)
    return all(
        r.is_elementwise or (r.op in ("reshape", "transpose", "slice") and _is_computed_with(uses, r)) for r in readers
    )


def _by_parts(b: Builder, val: Val, args: Sequence[Val], joined: Val) -> Val | None:
    """f(concat(a, b), y) as concat(f(a, y1), f(b, y2)); None where y cannot be told apart in the same parts."""
    axis = joined.axis
    if not b.sizes.equal(joined.shape[axis], val.shape[axis]):
        return None
    parts = []
    for part in joined.args:
        place = (len(joined.shape) + axis,)
        first, count = (b.shapes.emit("take", (v,), place) for v in (part.shape_value("starts"), part.dims))
        piece = Slice((axis,), first, count, b.shapes.const((1,)))
        if not all(piece.fits(b, a, val) for a in args):
            return None
        pieces = [part.args[0] if a is joined else viewed(b, a, piece) for a in args]
        if any(p.op == "slice" and p.args[0].op == "concat" for p in pieces):
            return None
        parts.append(b.again(val, pieces, piece.dims(b, val)))
    return b.concat(parts, axis)


def _before_merging(b: Builder, val: Val, args: Sequence[Val], merged: Val) -> Val | None:
    """f(reshape(concat), y) as reshape(f(concat, y with axes split)), where the reshape merges axes."""
    joined = merged.args[0]
    runs = b.axis_runs(val.dims, joined.dims)
    if runs is None:
        return None
    split = Split(tuple(map(tuple, runs)), joined.dims)
    if not all(split.fits(b, a, val) for a in args):
        return None
    apart = [joined if a is merged else viewed(b, a, split) for a in args]
    result = _by_parts(b, b.again(val, apart, joined.dims), apart, joined)
    return None if result is None else b.reshape(result, val.dims)


def _unmerged(b: Builder, x: Val) -> Val:
    """What a stacked value is computed from, rather than the reshape of what it would be stored as."""
    runs = b.axis_runs(x.args[0].dims, x.dims) if x.op == "reshape" else None
    return x if runs is None else viewed(b, x.args[0], Split(tuple(map(tuple, runs)), x.dims))


def _viewed_parts(b: Builder, val: Val, joined: Val) -> Val | None:
    """The transpose of joined values as the join of transposes; the same for axes of 1 put in or taken out."""
    axis = joined.axis + len(joined.shape)
    if val.op == "transpose":
        parts = [b.transpose(p.args[0], val.perm) for p in joined.args]
        return b.concat(parts, val.perm.index(axis) - len(val.perm))
    runs = b.axis_runs(joined.dims, val.dims)
    if runs is None:
        return None
    run = [i for i in runs[axis] if b.sizes.norm(val.shape[i]) != ONE] or runs[axis][:1]
    if len(run) != 1:
        return None
    parts = []
    for part in joined.args:
        count = b.shapes.emit("take", (part.dims,), (axis,))
        parts.append(b.reshape(part.args[0], b.shapes.emit("put", (val.dims, count), run)))
    return b.concat(parts, run[0] - len(val.shape))
