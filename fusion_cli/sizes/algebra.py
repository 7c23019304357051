"""Symbolic sizes: what is known about dimensions before run time, in one normal form.

A size is a number times a product of factors. What is no product (a sum, a quotient with a remainder, the larger of
two) is a factor of its own, a `Term`: equal operations on equal operands are equal terms. Equal sizes are equal for
whatever their symbols stand for; sizes that are not equal may still be.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Self

_COUNTS = frozenset({"equal", "start", "count", "reshape"})
"""Operations whose results are not negative, whatever their operands are."""
QUOTIENTS = ("floor", "trunc")
UNKNOWN = "?"
"""What the names of sizes begin with that have none in the model."""
SIGNED = "?signed"
"""The same, of those that may be negative."""


@dataclass(frozen=True)
class Size:
    """An integer known up to symbols: `coef` times the product of `factors` (sorted, with repetition)."""

    coef: int = 1
    factors: tuple[str, ...] = ()

    @property
    def known(self) -> int | None:
        """The number, if no symbol is in it."""
        return self.coef if not self.factors else None

    @property
    def symbol(self) -> str | None:
        """The factor, if it is one factor and nothing else."""
        return self.factors[0] if self.coef == 1 and len(self.factors) == 1 else None

    @property
    def is_nonnegative(self) -> bool:
        """Whether it is provably not negative; symbols are not, as they are sizes."""
        return self.coef >= 0 and all(map(_is_nonnegative, self.factors))

    @property
    def parts(self) -> frozenset[str]:
        """The names and terms that it is made of."""
        return frozenset(self.factors).union(*(f.parts for f in self.factors if isinstance(f, Term)))

    @property
    def terms(self) -> tuple[Size, ...]:
        """What adds up to it; a product with one sum in it is multiplied out."""
        sums = [f for f in self.factors if isinstance(f, Term) and f.op == "+"]
        if len(sums) != 1:
            return (self,)
        rest = list(self.factors)
        rest.remove(sums[0])
        around = Size(self.coef, tuple(rest))
        return tuple(part for t in sums[0].args for part in (around * t).terms)

    def __str__(self) -> str:
        if len(self.factors) == 1 and len(self.terms) > 1:
            return " + ".join(map(str, self.terms)).replace("+ -", "- ")
        number = {1: "", -1: "-"}.get(self.coef, f"{self.coef}*") if self.factors else str(self.coef)
        return number + "*".join(self.factors)

    def __mul__(self, other: Size) -> Size:
        coef = self.coef * other.coef
        return Size(coef, tuple(sorted(self.factors + other.factors)) if coef else ())

    def __add__(self, other: Size) -> Size:
        coefs: dict[tuple[str, ...], int] = {}
        for part in (*self.terms, *other.terms):
            coefs[part.factors] = coefs.get(part.factors, 0) + part.coef
        return _sum([Size(coef, factors) for factors, coef in coefs.items() if coef])

    def __sub__(self, other: Size) -> Size:
        return self + Size(-1) * other

    def __floordiv__(self, other: Size) -> Size:
        """The quotient, rounded down."""
        a, b = cancelled(self, other)
        if b == ONE:
            return a
        if a.known is not None and b.known:
            return Size(a.known // b.known)
        whole, rest = Size(0), Size(0)
        for part in a.terms:
            quotient, remainder = _divided(part, b)
            whole, rest = whole + quotient, rest + remainder
        return term("floor", a, b) if rest == a else whole + rest // b

    def __mod__(self, other: Size) -> Size:
        """What is left of that division."""
        rest = self - self // other * other
        return rest if other.coef and rest.known is not None else term("Mod", self, other)


Shape = tuple[Size, ...]
ONE = Size(1)


class Term(str):
    """An operation as a factor of a size: its text, with the operation by name and its operands."""

    op: str
    args: Shape
    parts: frozenset[str]
    """All names and terms that its operands are made of."""

    def __new__(cls, op: str, args: Iterable[Size]) -> Self:
        args = tuple(args)
        if op == "+":
            text = "(" + " + ".join(map(str, args)).replace("+ -", "- ") + ")"
        elif op in QUOTIENTS:
            over, under = (a.symbol or (str(a) if not a.factors else f"({a})") for a in args)
            text = f"{op}({over}/{under})"
        else:
            text = f"{op}({', '.join(map(str, args))})"
        made = super().__new__(cls, text)
        made.op, made.args = op, args
        made.parts = frozenset().union(*(a.parts for a in args))
        return made


def term(op: str, *args: Size) -> Size:
    """The operation as a size."""
    return Size(1, (Term(op, args),))


def names_in(size: Size) -> list[str]:
    """The symbols in a size, in order of the alphabet."""
    return sorted(part for part in size.parts if not isinstance(part, Term))


def unknown(name: str, signed: bool = False) -> Size:
    """A size of which nothing is known, told apart by `name`; `signed` if it may be negative, as elements of tensors
    may."""
    return Size(1, (f"{SIGNED if signed else UNKNOWN}{name}",))


def product(sizes: Iterable[Size]) -> Size:
    return math.prod(sizes, start=ONE)


def runs(shape: Sequence[Size], target: Sequence[Size]) -> list[list[int]] | None:
    """Which axes of `target` each axis of `shape` is split into; None where axes are merged."""
    found: list[list[int]] = []
    position = 0
    for size in shape:
        run: list[int] = []
        whole = ONE
        while position < len(target) and (not run or whole != size):
            whole *= target[position]
            run.append(position)
            position += 1
        if whole != size:
            return None
        found.append(run)
    rest = range(position, len(target))
    if not found or any(target[i] != ONE for i in rest):
        return None
    found[-1] += rest
    return found


def _sum(terms: list[Size]) -> Size:
    """The sum of different products, with what is common to all of them as factors."""
    if len(terms) < 2:
        return terms[0] if terms else Size(0)
    terms.sort(key=lambda t: (not t.factors, t.factors))
    coef = math.gcd(*(t.coef for t in terms)) * (1 if terms[0].coef > 0 else -1)
    shared = Size(coef, _common(*(t.factors for t in terms)))
    if shared == ONE:
        return term("+", *terms)
    return shared * reduce(Size.__add__, (_over(t, shared) for t in terms))


def _common(first: tuple[str, ...], *others: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f for i, f in enumerate(first) if all(first[: i + 1].count(f) <= o.count(f) for o in others))


def _over(a: Size, b: Size) -> Size:
    """The quotient of a size and a divisor of it."""
    left = list(a.factors)
    for factor in b.factors:
        left.remove(factor)
    return Size(a.coef // b.coef, tuple(left))


def cancelled(a: Size, b: Size) -> tuple[Size, Size]:
    """The least dividend and divisor of the same quotient, the divisor with a positive coefficient."""
    if a.coef == 0 or b.coef == 0:
        return a, ONE if b.coef else b
    shared = Size(math.gcd(a.coef, b.coef) * (1 if b.coef > 0 else -1), _common(a.factors, b.factors))
    return (_over(a, shared), _over(b, shared)) if shared != ONE else (a, b)


def _divided(a: Size, b: Size) -> tuple[Size, Size]:
    """A quotient and a remainder of a product."""
    if a.known is not None and b.known:
        return Size(a.known // b.known), Size(a.known % b.known)
    divides = b.coef and a.coef % b.coef == 0 and _common(b.factors, a.factors) == b.factors
    return (_over(a, b), Size(0)) if divides else (Size(0), a)


def _is_nonnegative(factor: str) -> bool:
    if isinstance(factor, Term):
        return factor.op in _COUNTS or all(a.is_nonnegative for a in factor.args)
    return not factor.startswith(SIGNED)
