"""What is learned of symbols: it holds wherever it may, and never goes in circles."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fusion_cli.sizes.algebra import ONE, Size, product, unknown
from fusion_cli.sizes.equalities import Sizes
from fusion_cli.sizes.operations import substitute
from fusion_cli.sizes.parsing import parse

VALUES = {"a": 2, "b": 2, "c": 6, "d": 4, "e": 12, "f": 6, "?1": 2, "?2": 6, "?3": 8}
EXPRESSIONS = st.recursive(
    st.sampled_from(sorted(VALUES)) | st.sampled_from(["1", "2", "3"]),
    lambda e: st.builds(str.format, st.sampled_from(["({}+{})", "({}*{})", "({}//{})", "Max({}, {})"]), e, e),
    max_leaves=4,
)


def number(size: Size) -> int | None:
    return substitute(size, {name: Size(value) for name, value in VALUES.items()}).known


@given(st.lists(st.tuples(EXPRESSIONS, EXPRESSIONS, st.booleans()), max_size=12), st.lists(EXPRESSIONS, min_size=1))
def test_true_claims_make_no_false_ones(claims: list[tuple[str, str, bool]], asked: list[str]) -> None:
    sizes = Sizes()
    for left, right, meet in claims:
        a, b = parse(left), parse(right)
        if number(a) == number(b):
            if meet:
                sizes.equate([a, b])
            else:
                sizes.learn(a, b)
    for text in asked:
        size = parse(text)
        assert number(sizes.norm(size)) == number(size)


def test_sizes_that_meet_are_equal_in_products_and_sums() -> None:
    sizes = Sizes()
    sizes.equate(map(parse, ["seq", "n", 1]))
    sizes.equate(map(parse, ["n", "m"]))
    assert sizes.equal(parse("2*seq*batch"), parse("batch*2*m"))
    assert sizes.equal(parse("past + seq"), parse("m + past"))
    assert not sizes.equal(parse("seq"), ONE)
    sizes.equate(map(parse, ["m", 16]))
    assert sizes.norm(parse("seq*batch//8")) == parse("2*batch")


def test_products_are_compared_by_factors() -> None:
    sizes = Sizes()
    sizes.equate(map(parse, ["rows", "batch*seq"]))
    assert sizes.norm(product([parse("rows"), Size(8)])) == parse("8*seq*batch")


def test_shapes_are_compared_without_leading_ones() -> None:
    sizes = Sizes()
    assert sizes.same_shape((ONE, parse("n"), ONE), (parse("n"), ONE))
    assert not sizes.same_shape((parse("n"), ONE), (parse("n"),))


def test_only_what_is_made_up_or_computed_is_learned() -> None:
    sizes = Sizes()
    sizes.give((parse("past + seq"),))
    sizes.learn(parse("batch"), parse("rows"))
    sizes.learn(parse("past + seq"), parse("total"))
    sizes.learn(unknown("1"), parse("total"))
    sizes.learn(parse("seq//3"), parse("third"))
    assert not sizes.equal(parse("batch"), parse("rows"))
    assert not sizes.equal(parse("past + seq"), parse("total"))
    assert sizes.equal(unknown("1"), parse("total"))
    assert sizes.norm(parse("2*(seq//3) + 1")) == parse("2*third + 1")


def test_a_size_is_not_learned_of_itself() -> None:
    sizes = Sizes()
    sizes.learn(unknown("1"), parse("?2 + 1"))
    sizes.learn(unknown("2"), parse("?1*2"))
    assert sizes.norm(unknown("1")) == parse("?2 + 1")
