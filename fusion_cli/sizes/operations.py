"""What is computed of sizes beyond sums, products and quotients: worked out where that is possible, else a term."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce

from fusion_cli.sizes.algebra import ONE, Shape, Size, Term, term

BEYOND = 2**31 - 1
"""The least end of a slice that exporters write for "through the last element"."""
LARGEST_ENDS = (2**31 - 1, 2**63 - 1)
"""Those that stand for the last element that there is, in the direction of the slice."""


def substitute(size: Size, values: Mapping[str, Size]) -> Size:
    """The size with `values` for symbols and terms, and for those in these values."""
    if not size.factors or values.keys().isdisjoint(size.parts):
        return size
    result = Size(size.coef)
    for factor in size.factors:
        if factor in values:
            result *= substitute(values[factor], values)
        elif isinstance(factor, Term):
            result *= operation(factor.op, [substitute(a, values) for a in factor.args])
        else:
            result *= Size(1, (factor,))
    return result


def truncated(a: Size, b: Size) -> Size:
    """The quotient rounded towards zero, as integers are divided at run time."""
    down = a // b
    if down * b == a or (a.is_nonnegative and b.is_nonnegative):
        return down
    if a.known is not None and b.known:
        return down if (a.known < 0) == (b.known < 0) else down + ONE
    return term("trunc", a, b)


def is_equal(a: Size, b: Size) -> Size:
    """1 where the sizes are equal, 0 where they are not."""
    more = a - b
    if more.known is not None:
        return Size(int(more.known == 0))
    # A sum of sizes and a positive number is positive.
    if any(d.is_nonnegative and any(t.known for t in d.terms) for d in (more, b - a)):
        return Size(0)
    return term("equal", *sorted((a, b), key=str))


def chosen(condition: Size, a: Size, b: Size) -> Size:
    """a where the condition is not 0, else b."""
    if a == b or condition.known is not None:
        return a if condition.known != 0 else b
    return term("where", condition, a, b)


def broadcast(*sizes: Size) -> Size:
    """numpy's broadcast: the sizes are equal or 1.

    Which makes it a semilattice: as an idempotent, commutative term it describes the result exactly, whatever the
    symbols turn out to be.
    """
    if all(size == sizes[0] for size in sizes):
        return sizes[0]
    members = _members("broadcast", sizes) - {ONE}
    numbers = [m.coef for m in members if m.known is not None]
    if numbers:
        return Size(max(numbers))
    # What a table is cut to, Min(64, n), goes with n only if it is n.
    members -= {m for m in members for n in members if is_least_of(m, n)}
    return _united("broadcast", members)


def is_least_of(least: Size, size: Size, others: int = 1) -> bool:
    """Whether it is the least of the size and numbers, which are no less than `others`."""
    only = least.symbol
    if not isinstance(only, Term) or only.op != "Min" or size not in only.args:
        return False
    return all((a.known or 0) >= others for a in only.args if a != size)


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    rank = max(map(len, shapes), default=0)
    columns = zip(*((ONE,) * (rank - len(s)) + s for s in shapes), strict=True)
    return tuple(broadcast(*column) for column in columns)


def slice_positions(size: int, start: int, end: int, step: int) -> range:
    """What a slice takes of an axis, as ONNX Runtime has it. Unlike Python's, one that goes backwards begins at 0 at
    the latest, and the largest numbers as its end are before the first element."""
    least, most = (0, size) if step > 0 else (-1, size - 1)
    if step < 0 and end in LARGEST_ENDS:
        end = -size - 1
    first, last = (min(max(v + size if v < 0 else v, least), most) for v in (start, end))
    return range(max(first, 0), last if size else 0, step)


def operation(op: str, args: Sequence[Size]) -> Size:
    """The size that an operation makes: worked out where that is possible, else a term."""
    return OPERATIONS[op](*args) if op in OPERATIONS else term(op, *args)


def _members(op: str, sizes: Iterable[Size]) -> set[Size]:
    """What an operation whose operands come in any order, and any number of times, is made of."""
    terms = ((size, size.symbol) for size in sizes)
    return {m for size, t in terms for m in (t.args if isinstance(t, Term) and t.op == op else (size,))}


def _united(op: str, members: set[Size]) -> Size:
    return term(op, *sorted(members, key=str)) if len(members) > 1 else next(iter(members))


def _extreme(op: str, sign: int, *sizes: Size) -> Size:
    """The least or the largest, without what another one is provably beyond."""
    members = _members(op, sizes)
    beyond = {m for m in members for n in members if m != n and (Size(sign) * (m - n)).is_nonnegative}
    return _united(op, members - beyond)


OPERATIONS: Mapping[str, Callable[..., Size]] = {
    "+": lambda *terms: reduce(Size.__add__, terms),
    "floor": Size.__floordiv__,
    "trunc": truncated,
    "Mod": Size.__mod__,
    "Min": partial(_extreme, "Min", 1),
    "Max": partial(_extreme, "Max", -1),
    "equal": is_equal,
    "where": chosen,
    "broadcast": broadcast,
}
