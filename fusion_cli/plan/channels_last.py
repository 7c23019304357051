"""Images with the channels last: what is computed between convolutions is computed over [N, ..., C], and turned over
where values come in and go out.

A convolution whose kernel is one point is a product over the channels then, and one that moves by as much as its kernel
covers (the patches of a vision transformer) a product over what it covers. One number of all positions of a large image
is made of one for each line of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from fusion_cli.operators.image_axes import IMAGE, to_first, to_last
from fusion_cli.plan.graph import LEAVES, REDUCTIONS, Uses, Val
from fusion_cli.plan.lowering import Builder
from fusion_cli.plan.row_axes import is_of_columns
from fusion_cli.plan.slicing import Slice, sliced
from fusion_cli.sizes.algebra import ONE

_BEFORE_SUMS = ("Abs", "Cast", "Mul")
"""What is computed of each element before it is summed: norms of vectors."""
_MANY = 1024
"""Positions of an image from which on there are too few channels for what would be reduced at once."""


def put_channels_last(builder: Builder, outputs: Sequence[Val]) -> list[Val]:
    """The program with convolutions, and arithmetic on what they make, over values whose channels come last."""
    turner = _Turner(builder)
    for val in Uses(outputs).order:
        builder.node = val.node
        turner.place(val)
    return [turner.first[o] for o in outputs]


class _Turner:
    """What each value of a program became: as it was (`first`) and, where it is made so, with its channels last."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.first: dict[Val, Val] = {}
        self._last: dict[Val, Val] = {}

    def place(self, val: Val) -> None:
        if val.op == "part":
            return  # made a part again with the concatenation
        if val.op == "conv":
            made = self._convolution(val)
        elif val.op == "concat" and self._is_joined_of_turned(val):
            rank = len(val.shape)
            axis = to_last(rank).index(rank + val.axis) - rank
            made = self.b.concat([self._with_last(p.args[0], rank) for p in val.args], axis)
        elif val.op == "slice" and self._is_turned(val):
            made = self._slice(val)
        elif self._is_shuffle(val):
            made = self._shuffle(val)
        elif val.is_elementwise and self._is_turned(val):
            made = self._elementwise(val)
        else:
            self.first[val] = self._of_positions(val) or self._of_sequence(val) or self._as_it_was(val)
            if self._puts_first(val):
                self._last[val] = self.first[val].args[0]
            return
        self._last[val] = made
        self.first[val] = self.b.transpose(made, to_first(len(made.shape)))

    def _puts_first(self, val: Val) -> bool:
        """Whether a value is an image of which the channels are last in memory. (Of three axes the same transpose puts
        them first and last: what it makes of an image is none.)"""
        rank, made = len(val.shape), self.first[val]
        moves = val.op in ("transpose", "reshape") and made.op == "transpose"
        return moves and rank >= IMAGE and made.perm == to_first(rank)

    def _as_it_was(self, val: Val) -> Val:
        if val.op == "concat":
            return self.b.concat([self.first[p.args[0]] for p in val.args], val.axis)
        args = [self.first[a] for a in val.args]
        if val.op == "transpose":
            return self.b.transpose(args[0], val.perm)
        if val.op == "reshape":
            return self.b.reshape(args[0], val.dims)
        return val if val.op in LEAVES or args == list(val.args) else self.b.again(val, args, val.dims)

    def _of_positions(self, val: Val) -> Val | None:
        """A reduction over all positions of an image: what it is of is computed as the image is read, and for a large
        one it is one over lines, and one of what those come to."""
        if val.op not in REDUCTIONS:
            return None
        read, steps = val.args[0], list[Val]()
        while read.op in _BEFORE_SUMS and len(set(read.args)) == 1:
            steps.insert(0, read)
            read = read.args[0]
        b, rows = self.b, self.first[read]
        if rows.op != "transpose" or rows.perm != (0, 2, 1):
            return None
        image = rows.args[0].args[0] if rows.args[0].op == "reshape" else rows.args[0]
        if val.op == "reduce_prod" or not self._is_large(image):
            return b.reduce(val.op, self._computed(steps, rows)) if steps else None
        lines = b.reduce(val.op, self._computed(steps, b.cast(b.transpose(image, (0, 1, 3, 2)), "float32")))
        each = b.reshape(lines, b.shapes.emit("slice", (lines.dims,), (0, 3, 1)))
        return b.cast(b.reduce(val.op, b.transpose(each, (0, 2, 1))), val.dtype)

    def _of_sequence(self, val: Val) -> Val | None:
        """What is computed of a sequence of an image's positions, of the image: its kernel computes that too."""
        if not val.is_elementwise:
            return None
        args = [self.first[a] for a in val.args]
        images = [a.args[0] if self._is_sequence(a, val) else None for a in args]
        return self._of_reshaped(val, args, images, val.dims)

    def _of_reshaped(self, val: Val, args: Sequence[Val], before: Sequence[Val | None], dims: int) -> Val | None:
        """What is computed of reshaped operands, of what these were before: all alike, with the last axis that they
        have now. None where another operand is not the same for all rows."""
        b, shapes = self.b, {x.dims for x in before if x is not None}
        if len(shapes) != 1 or not all(x or is_of_columns(b, a) for x, a in zip(before, args, strict=True)):
            return None
        return b.reshape(b.again(val, [x or a for x, a in zip(before, args, strict=True)], *shapes), dims)

    def _is_sequence(self, x: Val, like: Val) -> bool:
        """Whether x is an image, of which the positions became one axis, and of the shape of another value."""
        if x.op != "reshape" or len(x.shape) != IMAGE or not self.b.sizes.same_shape(x.shape, like.shape):
            return False
        (image,) = x.args
        is_made = image.op == "conv" or image.is_elementwise
        return is_made and len(image.shape) > IMAGE and self.b.sizes.equal(image.shape[-1], x.shape[-1])

    def _is_large(self, image: Val) -> bool:
        match self.b.literals(image.dims):
            case [_, int(high), int(wide), _]:
                return high * wide >= _MANY
            case _:
                return False

    def _computed(self, steps: Sequence[Val], val: Val) -> Val:
        """What these steps, each of the one before alone, make of a value; at least as exact as they are."""
        for step in steps:
            val = self.b.cast(val, step.dtype) if step.op == "Cast" else self.b.apply(step.op, *[val] * len(step.args))
        return val

    def _is_turned(self, val: Val) -> bool:
        """Whether an elementwise value is computed with its channels last: something it reads is."""
        rank = len(val.shape)
        turned = any(a in self._last and len(a.shape) == rank for a in val.args)
        return turned and rank >= IMAGE and all(len(a.shape) <= rank and a.op != "index" for a in val.args)

    def _is_joined_of_turned(self, val: Val) -> bool:
        return len(val.shape) >= IMAGE and any(p.args[0] in self._last for p in val.args)

    def _elementwise(self, val: Val) -> Val:
        """Where its operands are pixels that were channels before, the kernel that makes them of these computes it."""
        b, rank = self.b, len(val.shape)
        dims = b.shapes.emit("permute", (val.dims,), to_last(rank))
        args = [self._with_last(a, rank) for a in val.args]
        apart = [self._pixels_apart(a) for a in args]
        return self._of_reshaped(val, args, apart, dims) or b.again(val, args, dims)

    def _pixels_apart(self, image: Val) -> Val | None:
        """What an image [N, H * h, W * w, C] was as [N, H, h, W, w, C]."""
        apart = image.args[0] if image.op == "reshape" else image
        is_so = len(apart.shape) == 2 * len(image.shape) - 2 and self.b.sizes.equal(apart.shape[-1], image.shape[-1])
        return apart if is_so else None

    def _slice(self, val: Val) -> Val:
        b, rank = self.b, len(val.shape)
        values = (val.shape_value("starts"), val.dims, val.shape_value("steps"))
        starts, counts, steps = (b.shapes.emit("permute", (v,), to_last(rank)) for v in values)
        return sliced(b, self._last[val.args[0]], Slice(tuple(range(-rank, 0)), starts, counts, steps))

    def _is_shuffle(self, val: Val) -> bool:
        """Whether the channels of an image were made two axes, which were exchanged, and one again."""
        turned = val.args[0] if val.op == "reshape" else val
        split = turned.args[0] if turned.op == "transpose" and turned is not val else val
        image = split.args[0] if split.op == "reshape" and split is not val else val
        if image not in self._last or image.shape != val.shape or len(split.shape) != len(val.shape) + 1:
            return False
        exchanged = turned.perm == (0, 2, 1, *range(3, len(split.shape)))
        return exchanged and split.shape[0] == image.shape[0] and split.shape[3:] == image.shape[2:]

    def _shuffle(self, val: Val) -> Val:
        b, split = self.b, val.args[0].args[0]
        rank = len(val.shape)
        image = self._last[split.args[0]]
        apart = b.reshape(image, b.shapes.emit("permute", (split.dims,), (0, *range(3, rank + 1), 1, 2)))
        return b.reshape(b.transpose(apart, (*range(rank - 1), rank, rank - 1)), image.dims)

    def _with_last(self, val: Val, rank: int) -> Val:
        """An operand of an image of this rank, with its channels last."""
        if val in self._last and len(val.shape) == rank:
            return self._last[val]
        if all(s == ONE for s in val.shape):
            return val
        whole = self.b.unsqueeze(self.first[val], tuple(range(rank - len(val.shape))))
        return self.b.transpose(whole, to_last(rank))

    def _convolution(self, val: Val) -> Val:
        x, w, *bias = val.args
        rank = len(x.shape)
        options: dict[str, Any] = dict(val.attrs)
        kernel = self.b.literals(w.dims)[2:]
        if options["group"] == 1 and self._is_unpadded(options, kernel):
            if all(k == 1 for k in (*kernel, *options["strides"])):
                made = self._product(self._with_last(x, rank), w)
                return self._plus(made, bias)
            if self._is_patches(x, options, kernel):
                return self._plus(self._product(self._patches(x, kernel), w), bias)
        dims = self.b.shapes.emit("permute", (val.dims,), to_last(rank))
        attrs = (*val.attrs, ("channels_last", True))
        return self._plus(self.b.conv([self._with_last(x, rank), self.first[w]], dims, attrs), bias)

    def _plus(self, val: Val, bias: Sequence[Val]) -> Val:
        return self.b.apply("Add", val, self.first[bias[0]]) if bias else val

    @staticmethod
    def _is_unpadded(options: dict[str, Any], kernel: Sequence[int | None]) -> bool:
        if options["auto_pad"] == "NOTSET":
            return not any(options["pads"])
        return options["auto_pad"] == "VALID" or all(k == 1 for k in (*kernel, *options["strides"]))

    def _is_patches(self, x: Val, options: dict[str, Any], kernel: Sequence[int | None]) -> bool:
        """Whether a kernel moves by as much as it covers."""
        sizes = self.b.literals(x.dims)[2:]
        known = all(s is not None and k is not None and s >= k for s, k in zip(sizes, kernel, strict=True))
        return known and tuple(kernel) == options["strides"] and all(d == 1 for d in options["dilations"])

    def _product(self, x: Val, w: Val) -> Val:
        """x [N, ..., K] @ w^T of a filter [M, ...] with K elements for each of its M channels."""
        return self.b.matmul(x, self.b.flatten_from(self.first[w], 1), trans_b=True)

    def _patches(self, x: Val, kernel: Sequence[int | None]) -> Val:
        """[N, C, H, W] as [N, H / h, W / w, C * h * w], without what is left over of H and W."""
        b, n = self.b, len(kernel)
        counts = [s // k for s, k in zip(b.literals(x.dims)[2:], kernel, strict=True) if s and k]
        covered = b.shapes.const([c * (k or 1) for c, k in zip(counts, kernel, strict=True)])
        none, each = b.shapes.const((0,) * n), b.shapes.const((1,) * n)
        image = sliced(b, self.first[x], Slice(tuple(range(-n, 0)), none, covered, each))
        head = b.shapes.emit("slice", (x.dims,), (0, 2, 1))
        pairs = b.shapes.const(tuple(chain.from_iterable((c, k or 1) for c, k in zip(counts, kernel, strict=True))))
        split = b.reshape(image, b.shapes.emit("concat", (head, pairs)))
        turned = b.transpose(split, (0, *range(2, 2 + 2 * n, 2), 1, *range(3, 3 + 2 * n, 2)))
        return b.flatten_from(turned, 1 + n)
