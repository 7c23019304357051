"""The algebra of sizes against integers put in for symbols: what it says is equal is equal."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from random import Random

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fusion_cli.sizes import operations
from fusion_cli.sizes.algebra import ONE, Size, names_in, product, runs
from fusion_cli.sizes.operations import broadcast_shapes, substitute
from fusion_cli.sizes.parsing import parse

NAMES = ("batch", "heads", "past", "seq")
VALUES = st.fixed_dictionaries({name: st.integers(1, 9) for name in NAMES})

Tree = int | str | tuple[str, "Tree", "Tree"]
"""An expression: a number, a name, or an operation on two expressions."""
EXACT: Mapping[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "trunc": lambda a, b: int(math.copysign(1, a * b)) * (abs(a) // abs(b)),
    "Min": min,
    "Max": max,
    "equal": lambda a, b: int(a == b),
}
SYMBOLIC: Mapping[str, Callable[[Size, Size], Size]] = {
    "+": Size.__add__,
    "-": Size.__sub__,
    "*": Size.__mul__,
    "//": Size.__floordiv__,
    "%": Size.__mod__,
    "trunc": operations.truncated,
    "Min": operations.OPERATIONS["Min"],
    "Max": operations.OPERATIONS["Max"],
    "equal": operations.is_equal,
}
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.integers(-4, 9) | st.sampled_from(NAMES), lambda t: st.tuples(st.sampled_from(sorted(EXACT)), t, t), max_leaves=8
)


def number_of(tree: Tree, values: Mapping[str, int]) -> int:
    if isinstance(tree, tuple):
        left, right = (number_of(t, values) for t in tree[1:])
        assume(right != 0 or tree[0] not in ("//", "%", "trunc"))
        return EXACT[tree[0]](left, right)
    return values[tree] if isinstance(tree, str) else tree


def size_of(tree: Tree) -> Size:
    return SYMBOLIC[tree[0]](*map(size_of, tree[1:])) if isinstance(tree, tuple) else parse(tree)


def value(size: Size, values: Mapping[str, int]) -> int | None:
    return substitute(size, {name: Size(number) for name, number in values.items()}).known


@given(TREES, VALUES)
def test_what_is_computed_with_symbols_holds_for_numbers(tree: Tree, values: dict[str, int]) -> None:
    number = number_of(tree, values)
    size = size_of(tree)
    assert value(size, values) == number
    assert number >= 0 or not size.is_nonnegative


@given(TREES, VALUES)
def test_what_is_written_is_read_back(tree: Tree, values: dict[str, int]) -> None:
    number_of(tree, values)
    size = size_of(tree)
    assume(len(str(size)) < 500 and not str(size).startswith("named_"))
    assert parse(str(size)) == size


@given(st.lists(st.sampled_from(NAMES) | st.integers(1, 9), min_size=1, max_size=5), st.randoms())
def test_sums_and_products_do_not_depend_on_the_order(operands: list[int | str], random: Random) -> None:
    sizes = [parse(o) for o in operands]
    mixed = [parse(o) for o in random.sample(operands, len(operands))]
    for op in ("+", "Min", "Max", "broadcast"):
        assert operations.operation(op, sizes) == operations.operation(op, mixed)
    assert product(sizes) == product(mixed)


@given(TREES, TREES)
@example(-1, ("+", ("*", "batch", "batch"), ("+", 1, "batch")))
def test_what_was_added_or_multiplied_is_taken_away(a: Tree, b: Tree) -> None:
    x, y = size_of(a), size_of(b)
    assert x + y - y == x
    assume(y.coef)
    assert x * y // y == x
    assert x * y % y == Size(0)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("2*seq*batch", "batch * seq * 2"),
        ("past + seq", "seq + past"),
        ("2*(seq + 1)", "2*seq + 2"),
        ("heads*past + heads*seq", "heads*(past + seq)"),
        ("(past + seq)*heads//heads", "past + seq"),
        ("seq**2", "seq*seq"),
        ("((seq - 1)//2) + 1", "floor(seq/2 + 1/2)"),
        ("(4*seq)//6", "floor(2*seq/3)"),
        ("ceiling(seq/8)", "(seq + 7)//8"),
        ("seq/2*2", "seq"),
        ("Max(seq, 4, Max(past, 3))", "max(past, max(seq, 4))"),
        ("Min(seq, seq + 1)", "seq"),
        ("seq//-2", "-seq//2"),
        ("Mod(8*seq, 4)", "0"),
        ("1 - (past - seq)", "seq - past + 1"),
    ],
)
def test_ways_to_write_a_size(left: str, right: str) -> None:
    assert parse(left) == parse(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("seq", "past"),
        ("seq + 1", "seq"),
        ("seq//2*2", "seq"),
        ("Max(seq, 2)", "Min(seq, 2)"),
        ("seq/2", "seq/3"),
        ("floor(2*Max(seq/2, past/2))", "2*Max(seq//2, past//2)"),
    ],
)
def test_sizes_that_differ(left: str, right: str) -> None:
    assert parse(left) != parse(right)


@given(st.lists(st.lists(st.sampled_from([1, 3, *NAMES]), max_size=3), min_size=1, max_size=3), VALUES, st.data())
def test_broadcast_is_numpys(shapes: list[list[int | str]], values: dict[str, int], data: st.DataObject) -> None:
    ones = data.draw(st.sets(st.sampled_from(NAMES)))
    values = {name: 1 if name in ones else 3 for name in NAMES}
    made = broadcast_shapes([tuple(map(parse, shape)) for shape in shapes])
    numbers = [tuple(values[d] if isinstance(d, str) else d for d in shape) for shape in shapes]
    assert tuple(value(size, values) for size in made) == np.broadcast_shapes(*numbers)


def test_a_broadcast_of_nothing_and_one_is_nothing() -> None:
    assert value(operations.broadcast(parse("seq"), parse("past")), {"seq": 0, "past": 1}) == 0


@given(st.lists(st.lists(st.sampled_from([1, 2, 3, *NAMES]), min_size=1, max_size=3), min_size=1, max_size=4), VALUES)
def test_split_axes_are_found(parts: list[list[int | str]], values: dict[str, int]) -> None:
    target = [parse(d) for part in parts for d in part]
    shape = [product(map(parse, part)) for part in parts]
    found = runs(shape, target)
    assert found is not None
    assert [i for run in found for i in run] == list(range(len(target)))
    assert [product(target[i] for i in run) for run in found] == shape


@pytest.mark.parametrize("target", [["batch*seq", 8], [8, "batch", "seq"], ["batch", 2, 3]])
def test_merged_or_moved_axes_are_no_split(target: list[int | str]) -> None:
    assert runs([parse(d) for d in ("batch", "seq", 8)], list(map(parse, target))) is None


def test_names_of_an_expression() -> None:
    assert names_in(parse("2*seq*floor((past + heads)/4) + Max(batch, 3)")) == ["batch", "heads", "past", "seq"]
    assert names_in(ONE) == []
