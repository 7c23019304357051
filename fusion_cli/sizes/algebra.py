"""Symbolic sizes: what is known about dimensions before run time, and when two of them are provably equal."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_PRODUCT = re.compile(r"\w+(\s*\*\s*\w+)*")


@dataclass(frozen=True)
class Size:
    """An integer known up to symbols: `coef` times the product of `factors` (sorted, with repetition)."""

    coef: int = 1
    factors: tuple[str, ...] = ()

    @property
    def known(self) -> int | None:
        """The number, if no symbol is in it."""
        return self.coef if not self.factors or self.coef == 0 else None

    @property
    def symbol(self) -> str | None:
        """The symbol, if it is one symbol and nothing else."""
        return self.factors[0] if self.coef == 1 and len(self.factors) == 1 else None

    def __str__(self) -> str:
        terms = [] if self.coef == 1 and self.factors else [str(self.coef)]
        return "*".join([*terms, *self.factors])


Shape = tuple[Size, ...]
ONE = Size(1)


class Sizes:
    """The symbols of one region and what is known to be equal among them.

    Broadcasting is a semilattice: sizes that broadcast together are equal or 1, so `max(a, b)` as an idempotent,
    commutative symbol describes the result exactly, whatever a and b turn out to be.
    """

    def __init__(self) -> None:
        self._value: dict[str, Size] = {}
        self._members: dict[str, frozenset[Size]] = {}
        self._signed: set[str] = set()
        self._fresh = 0

    def fresh(self, signed: bool = False) -> Size:
        """A size of which nothing is known; `signed` if it may be negative (an element of a tensor)."""
        self._fresh += 1
        name = f"?{self._fresh}"
        if signed:
            self._signed.add(name)
        return Size(1, (name,))

    def parse(self, text: str) -> Size:
        """A dimension as shape inference prints it: a symbol, a product of symbols, or any other expression."""
        if not _PRODUCT.fullmatch(text):
            return Size(1, (text.replace(" ", ""),))
        result = ONE
        for factor in re.split(r"\s*\*\s*", text):
            result = self.mul(result, Size(int(factor)) if factor.isdigit() else Size(1, (factor,)))
        return result

    def norm(self, size: Size) -> Size:
        """The size with every symbol replaced by what it is known to equal."""
        if not any(f in self._value for f in size.factors):
            return size
        result = Size(size.coef)
        for factor in size.factors:
            value = self._value.get(factor)
            result = self._times(result, Size(1, (factor,)) if value is None else self.norm(value))
        return result

    def learn(self, size: Size, claim: Size) -> None:
        """Take what shape inference says of a size that is made up or not worked out here; nothing else is believed,
        since shapes that a model declares of its outputs need not be right."""
        size, claim = self.norm(size), self.norm(claim)
        symbol = size.symbol
        if symbol and symbol[0] in "?(" and not self._mentions(claim, symbol):
            self._value[symbol] = claim

    def equal(self, a: Size, b: Size) -> bool:
        return self.norm(a) == self.norm(b)

    def same_shape(self, a: Shape, b: Shape) -> bool:
        """Provably equal, leading ones aside."""
        a, b = self.strip(a), self.strip(b)
        return len(a) == len(b) and all(self.equal(x, y) for x, y in zip(a, b, strict=True))

    def strip(self, shape: Shape) -> Shape:
        """The shape without its leading ones."""
        count = next((i for i, s in enumerate(shape) if self.norm(s) != ONE), len(shape))
        return shape[count:]

    def is_nonnegative(self, size: Size) -> bool:
        return size.coef >= 0 and not any(f in self._signed for f in size.factors)

    def mul(self, a: Size, b: Size) -> Size:
        return self._times(self.norm(a), self.norm(b))

    def product(self, sizes: Iterable[Size]) -> Size:
        result = ONE
        for size in sizes:
            result = self.mul(result, size)
        return result

    def div(self, a: Size, b: Size) -> Size:
        """Exact where b divides a symbolically, else an opaque symbol."""
        a, b = self.norm(a), self.norm(b)
        left = list(a.factors)
        if b.coef and a.coef % b.coef == 0 and all(f in left for f in b.factors):
            for factor in b.factors:
                if factor not in left:
                    return self.opaque("/", a, b)
                left.remove(factor)
            return Size(a.coef // b.coef, tuple(left))
        if a.known is not None and b.known:
            quotient = abs(a.known) // abs(b.known)
            return Size(quotient if (a.known < 0) == (b.known < 0) else -quotient)
        return self.opaque("/", a, b)

    def inferred(self, total: Size, rest: Size) -> Size:
        """What `rest` is to be multiplied with to give `total`, where nothing but a whole number can be meant: if that
        leaves one symbol to divide, it is a multiple from now on."""
        over, divisor = self._cancelled(total, rest)
        symbol = over.factors[0] if len(over.factors) == 1 else ""
        if divisor in (ONE, Size(0)) or not self._is_free(symbol):
            return self.div(total, rest)
        part = self.opaque("/", Size(1, (symbol,)), divisor)
        self._value[symbol] = self.mul(divisor, part)
        return self.mul(Size(over.coef), part)

    def agree(self, a: Size, b: Size) -> None:
        """Take two sizes for equal that must be, as numbers of elements: if that leaves a symbol to be a product of
        others, it is."""
        a, b = self._cancelled(a, b)
        for size, other in ((a, b), (b, a)):
            if size.symbol and self._is_free(size.symbol) and other.known is None:
                self._value[size.symbol] = other
                return

    def _cancelled(self, a: Size, b: Size) -> tuple[Size, Size]:
        """Two sizes without their common factors."""
        a, b = self.norm(a), self.norm(b)
        common = math.gcd(a.coef, b.coef) or 1
        over, under = Counter(a.factors) - Counter(b.factors), Counter(b.factors) - Counter(a.factors)
        left, right = (tuple(sorted(c.elements())) for c in (over, under))
        return Size(a.coef // common, left), Size(b.coef // common, right)

    def _is_free(self, symbol: str) -> bool:
        """Whether a symbol stands for a size of its own, of which nothing is known."""
        return symbol != "" and symbol not in self._members and symbol not in self._signed

    def runs(self, shape: Sequence[Size], target: Sequence[Size]) -> list[list[int]] | None:
        """Which axes of `target` each axis of `shape` is split into; None where axes are merged."""
        runs: list[list[int]] = []
        position = 0
        for size in shape:
            run: list[int] = []
            product = ONE
            while position < len(target) and (not run or product != size):
                product = self.mul(product, target[position])
                run.append(position)
                position += 1
            if product != size:
                return None
            runs.append(run)
        rest = range(position, len(target))
        if not runs or any(target[i] != ONE for i in rest):
            return None
        runs[-1] += rest
        return runs

    def opaque(self, op: str, a: Size, b: Size) -> Size:
        """The symbol of an operation that is not worked out; equal operands give the equal symbol."""
        name = f"({self.norm(a)}{op}{self.norm(b)})"
        if op == "-" or not (self.is_nonnegative(a) and self.is_nonnegative(b)):
            self._signed.add(name)
        return Size(1, (name,))

    def broadcast(self, a: Size, b: Size) -> Size:
        """numpy's broadcast of two sizes: equal, or one of them 1."""
        members = self._parts(self.norm(a)) | self._parts(self.norm(b))
        members.discard(ONE)
        numbers = [m for m in members if m.known is not None]
        if numbers or len(members) <= 1:
            return numbers[0] if numbers else next(iter(members), ONE)
        name = f"max({','.join(sorted(map(str, members)))})"
        self._members[name] = frozenset(members)
        return self.norm(Size(1, (name,)))

    def broadcast_shapes(self, shapes: Iterable[Shape]) -> Shape:
        result: Shape = ()
        for shape in shapes:
            rank = max(len(result), len(shape))
            left = (ONE,) * (rank - len(result)) + result
            right = (ONE,) * (rank - len(shape)) + shape
            result = tuple(self.broadcast(a, b) for a, b in zip(left, right, strict=True))
        return result

    def _mentions(self, size: Size, symbol: str) -> bool:
        parts = (m for f in size.factors for m in self._members.get(f, ()))
        return symbol in size.factors or any(self._mentions(self.norm(part), symbol) for part in parts)

    def _parts(self, size: Size) -> set[Size]:
        members = self._members.get(size.symbol or "")
        if members is None:
            return {size}
        return {part for member in members for part in self._parts(self.norm(member))}

    @staticmethod
    def _times(a: Size, b: Size) -> Size:
        coef = a.coef * b.coef
        return Size(coef, tuple(sorted(a.factors + b.factors)) if coef else ())
