"""Views on the way from the scores of an attention to the product with its values, told apart from the arithmetic.

Exporters transpose, split and merge the axes of scores and weights as they please. Here every value on the way becomes
a view of one with the queries and keys last, and nothing moves but the operands of the products, and the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from fusion_cli.codes.plan import STORED_SCORES
from fusion_cli.errors import Unsupported
from fusion_cli.plan.attention_groups import reshaped, split_heads, unrepeated
from fusion_cli.plan.graph import Val
from fusion_cli.plan.lowering import Builder
from fusion_cli.plan.slicing import Split, viewed
from fusion_cli.sizes.algebra import ONE

Perm = tuple[int, ...]


def stored(found: str) -> Unsupported:
    """Why the scores of an attention have to be stored."""
    return Unsupported(STORED_SCORES, "an attention that a kernel can compute without storing its scores", found)


@dataclass(frozen=True, eq=False)
class Laid:
    """A value as `core` transposed by `perm`, with axes merged then to dimensions `merged` (a shape value) if given."""

    core: Val
    perm: Perm
    merged: int | None = None

    @property
    def is_plain(self) -> bool:
        return self.merged is None and self.perm == tuple(range(len(self.perm)))


def bases(b: Builder, matmul: Val, inside: Collection[Val]) -> Iterator[Laid]:
    """The product with heads apart that share keys, as itself, as that of the operands swapped, and with axes split as
    some reshape after it has them."""
    a, w = matmul.args
    trans_a, trans_b, alpha = bool(matmul.attr("trans_a")), bool(matmul.attr("trans_b")), matmul.attr("alpha")
    assert isinstance(alpha, float)
    rank = len(matmul.shape)
    straight, turned = swap(b, a) if trans_a else a, swap(b, w) if trans_b else w

    def split(dims: int) -> Iterator[Laid]:
        runs = b.axis_runs(matmul.dims, dims)
        if runs is not None and len(runs[-1]) == 1:
            rows = _apart(b, straight, runs, dims, True)
            product = b.matmul(rows, unrepeated(b, _apart(b, turned, runs, dims, False), rows), alpha=alpha)
            yield Laid(product, tuple(range(len(product.shape))), matmul.dims)

    groups = split_heads(b, matmul)
    if groups is not None:
        yield from split(groups)
    yield Laid(b.matmul(a, unrepeated(b, w, a), trans_a, trans_b, alpha), tuple(range(rank)))
    yield Laid(b.matmul(w, a, not trans_b, not trans_a, alpha), swapped(tuple(range(rank))))
    for dims in dict.fromkeys(v.dims for v in inside if v.op == "reshape"):
        yield from split(dims)


def swapped(perm: Perm) -> Perm:
    return (*perm[:-2], perm[-1], perm[-2])


def swap(b: Builder, x: Val) -> Val:
    return b.transpose(x, swapped(tuple(range(len(x.shape)))))


def _apart(b: Builder, x: Val, runs: Sequence[Sequence[int]], split: int, rows: bool) -> Val:
    """A factor [batch..., m, n] of a product of which each axis is split into a run of axes of `split`: with its batch
    axes split, and its rows too or (for a factor that the product's rows are not of) with 1s for the further rows."""
    parts = []
    for axis in range(-min(len(runs), len(x.shape)), -1):
        ones = b.shapes.const((1,) * (len(runs[axis]) - (axis == -2 and not rows)))
        if axis == -2 and not rows:
            parts += [ones, b.shapes.emit("take", (x.dims,), (len(x.shape) - 2,))]
        elif b.sizes.norm(x.shape[axis]) == ONE:
            parts.append(ones)
        else:
            parts.append(b.shapes.emit("take", (split,), runs[axis]))
    parts.append(b.shapes.emit("take", (x.dims,), (len(x.shape) - 1,)))
    return reshaped(b, x, b.shapes.emit("concat", parts))


class Layouts:
    """The values of `inside`, which lie on the way from those of `known` on, as views."""

    def __init__(self, b: Builder, known: dict[Val, Laid], inside: Collection[Val]) -> None:
        self.b = b
        self.known = known
        self._inside = inside

    def of(self, val: Val) -> Laid:
        """Raises Unsupported where no views in front of the arithmetic do."""
        if val not in self.known:
            self.known[val] = self._after(val)
        return self.known[val]

    def softmax(self, x: Val, zero_empty: bool) -> Laid:
        """The softmax of x over its last axis, where that is one of the last two of the product."""
        laid = self.of(x)
        if laid.perm[-1] != len(laid.perm) - 1 or (laid.merged and len(self._runs(laid)[-1]) > 1):
            raise stored("a softmax over another axis than that of the keys")
        return Laid(self.b.softmax(laid.core, zero_empty), laid.perm, laid.merged)

    def weighted(self, product: Val, weights: Val) -> tuple[Val, Callable[[Val], Val]]:
        """The product of the weights, on the left, and the values, in which nothing is transposed; and what makes the
        given product of it."""
        b, laid, at = self.b, self.of(weights), product.args.index(weights)
        flips = [bool(product.attr(name)) != bool(at) for name in ("trans_a", "trans_b")]
        values = product.args[1 - at]
        perm = swapped(laid.perm) if flips[at] else laid.perm
        if flips[1 - at]:
            values = swap(b, values)
        if perm != tuple(range(len(perm))) or (flips[at] and laid.merged is not None):
            raise stored("weights that are summed over another axis than that of the keys")
        if laid.merged is not None:
            values = _apart(b, values, self._runs(laid), self._dims(laid), False)
        if product.attr("alpha") != 1.0:
            raise stored("a factor in the product with the values")

        def outer(x: Val) -> Val:
            if laid.merged is not None:
                rank = len(product.shape)
                turn = swapped(tuple(range(rank))) if at else tuple(range(rank))
                x = b.reshape(x, b.shapes.emit("permute", (product.dims,), turn))
            return swap(b, x) if at else x

        return b.matmul(laid.core, unrepeated(b, values, laid.core)), outer

    def undone(self, other: Val, laid: Laid, beside: Val) -> Val:
        """An operand that stands beside a value so laid, as it stands beside its core."""
        b = self.b
        if laid.is_plain:
            return other
        if len(other.shape) > len(beside.shape):
            raise stored("scores that are broadcast on the way")
        if other.op == "const":
            return b.const(other.value or 0, other.dtype)
        if laid.merged is not None:
            split = Split(tuple(map(tuple, self._runs(laid))), self._dims(laid))
            if other.op == "index" or not split.fits(b, other, beside):
                raise stored("a mask that cannot be told apart by heads")
            other = viewed(b, other, split)
        rank = len(laid.perm)
        if other.op == "index":
            return b.positions(laid.perm[int(other.value or 0)] - rank, laid.core.dims)
        inverse = [laid.perm.index(i) for i in range(rank)]
        return b.transpose(b.unsqueeze(other, tuple(range(rank - len(other.shape)))), inverse)

    def _after(self, val: Val) -> Laid:
        dependent = [a for a in val.args if a in self._inside or a in self.known]
        first = self.of(dependent[0])
        if val.op == "transpose":
            if first.merged is not None:
                raise stored("scores transposed after axes were merged")
            return Laid(first.core, tuple(first.perm[p] for p in val.perm))
        if val.op == "reshape":
            same = self._is_shape(self._dims(first), val)
            return self._checked(Laid(first.core, first.perm, None if same else val.dims), val)
        if not val.is_elementwise or (val.op == "Expand" and not first.is_plain):
            raise stored(f"{val.node or val.op} between the scores and the values")
        laid = [self.of(a) for a in dependent]
        if any(x.perm != first.perm or (x.merged is None) != (first.merged is None) for x in laid):
            raise stored("scores that are put together in two layouts")
        args = [self.of(a).core if a in dependent else self.undone(a, first, dependent[0]) for a in val.args]
        if first.is_plain:
            return Laid(self.b.again(val, args, val.dims), tuple(range(len(val.shape))))
        core = self.b.apply(val.op, *args, dtype=val.dtype)
        return self._checked(Laid(core, first.perm, None if first.merged is None else val.dims), val)

    def _checked(self, laid: Laid, val: Val) -> Laid:
        """The layout, where it provably has the value's dimensions."""
        if laid.merged is not None:
            self._runs(laid)
        elif not self._is_shape(self._dims(laid), val):
            raise stored("scores that are broadcast on the way")
        return laid

    def _is_shape(self, dims: int, val: Val) -> bool:
        norm = self.b.sizes.norm
        return [norm(s) for s in self.b.shapes.values[dims]] == [norm(s) for s in val.shape]

    def _dims(self, laid: Laid) -> int:
        """The dimensions before axes are merged (a shape value)."""
        if laid.perm == tuple(range(len(laid.perm))):
            return laid.core.dims
        return self.b.shapes.emit("permute", (laid.core.dims,), laid.perm)

    def _runs(self, laid: Laid) -> list[list[int]]:
        assert laid.merged is not None
        runs = self.b.axis_runs(laid.merged, self._dims(laid))
        if runs is None:
            raise stored("scores reshaped to sizes that are not provably those of queries, keys and heads")
        return runs
