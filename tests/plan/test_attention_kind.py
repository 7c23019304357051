"""What sort of attention a pair of programs is: masks, causality, what is done to the probabilities."""

from __future__ import annotations

import math

import pytest

from fusion_cli.plan.attention_kind import hides_later, kind_of
from fusion_cli.planir.attention_sort import AttentionKind
from fusion_cli.planir.stages import Instr
from tests.helpers.plan_builder import Program

COLUMN, ROW = -1, -2
ACC = (Instr("acc", (), "float32"),)


def of_score(p: Program, score: int) -> AttentionKind:
    return kind_of(p.done(), score, (), 0, False, False)


def of_probabilities(p: Program, prob: int, zero_empty: bool = False) -> str:
    return kind_of(ACC, 0, p.done(), prob, zero_empty, False).probabilities


def comparison(p: Program, op: str, left: int, right: int) -> int:
    return p(op, p("index", dtype="int64", value=left), p("index", dtype="int64", value=right), dtype="bool")


def test_probability_programs_are_told_apart() -> None:
    assert of_probabilities(Program(), 0) == "identity"
    assert of_probabilities(Program(), 0, zero_empty=True) == "zero_empty"
    guard = Program()
    acc = guard("acc")
    root = guard("Where", guard("IsNaN", acc, dtype="bool"), guard.const(0.0), acc)
    assert of_probabilities(guard, root) == "zero_nan"
    assert of_probabilities(guard, guard("Cast", root, dtype="float16")) == "zero_nan"
    assert of_probabilities(guard, guard("Mul", root, guard.load(3))) == "general"
    ones = Program()
    acc = ones("acc")
    assert of_probabilities(ones, ones("Where", ones("IsNaN", acc, dtype="bool"), ones.const(1.0), acc)) == "general"


def test_a_rounded_probability_is_the_identity() -> None:
    p = Program()
    assert of_probabilities(p, p("Cast", p("acc"), dtype="float16")) == "identity"
    assert of_probabilities(p, p("Cast", p("Cast", 0, dtype="int32"), dtype="float32")) == "general"


@pytest.mark.parametrize(
    ("op", "left", "right", "negated", "causal"),
    [
        ("Greater", COLUMN, ROW, False, True),
        ("Less", ROW, COLUMN, False, True),
        ("LessOrEqual", COLUMN, ROW, True, True),
        ("GreaterOrEqual", ROW, COLUMN, True, True),
        ("Greater", COLUMN, ROW, True, False),  # sees the later keys only
        ("GreaterOrEqual", COLUMN, ROW, False, False),  # hides the query itself too: not the bare product elsewhere
        ("Greater", COLUMN, -3, False, False),
    ],
)
def test_a_causal_score_is_recognised(op: str, left: int, right: int, negated: bool, causal: bool) -> None:
    p = Program()
    hidden = comparison(p, op, left, right)
    hidden = p("Not", hidden, dtype="bool") if negated else hidden
    kind = of_score(p, p("Where", hidden, p.const(-math.inf), p("acc")))
    assert kind.causal == causal
    assert kind.masking == ("none" if causal else "boolean")


def test_a_causal_score_may_have_other_masks_under_it() -> None:
    p = Program()
    later = comparison(p, "Greater", COLUMN, ROW)
    masked = p("Where", p.load(3, "bool"), p("acc"), p.const(-math.inf))
    kind = of_score(p, p("Where", later, p.const(-math.inf), masked))
    assert kind.causal
    assert kind.masking == "boolean"
    # A finite number instead of -inf leaves the later keys their part of the sum.
    assert not of_score(p, p("Where", later, p.const(-1e9), masked)).causal


@pytest.mark.parametrize(
    ("number", "added", "known"),
    [(-65504.0, True, True), (-1e9, False, True), (-1e3, True, False), (-1e3, False, False), (math.nan, True, False)],
)
def test_a_number_that_hides_later_keys_is_known(number: float, added: bool, known: bool) -> None:
    p = Program()
    seen, acc, low, zero = comparison(p, "LessOrEqual", COLUMN, ROW), p("acc"), p.const(number), p.const(0.0)
    score = p("Add", acc, p("Where", seen, zero, low)) if added else p("Where", seen, acc, low)
    kind = of_score(p, score)
    if known:
        assert kind == AttentionKind("none", True, "identity", False, number, added)
    else:
        assert kind == AttentionKind("additive" if added else "boolean", False)
    assert not hides_later(kind)


def test_what_is_added_in_several_steps_is_known() -> None:
    p = Program()
    seen, zero = comparison(p, "LessOrEqual", COLUMN, ROW), p.const(0.0)
    steps = p("Sub", p("Where", seen, zero, p.const(-3e4)), p("Where", seen, zero, p.const(4e4)))
    assert of_score(p, p("Add", steps, p("acc"))) == AttentionKind("none", True, "identity", False, -7e4, True)
    infinite = p("Add", p("acc"), p("Where", seen, zero, p.const(-math.inf)))
    assert of_score(p, infinite) == AttentionKind("none", True)
    assert hides_later(of_score(p, infinite))


def test_a_number_hides_later_keys_only_where_nothing_else_is_done() -> None:
    p = Program()
    seen, zero, low = comparison(p, "LessOrEqual", COLUMN, ROW), p.const(0.0), p.const(-65504.0)
    causal = p("Add", p("acc"), p("Where", seen, zero, low))
    biased = p("Add", causal, p.load(3))
    rounded = p("Cast", causal, dtype="float16")
    key, query = (p("index", dtype="int64", value=i) for i in (COLUMN, ROW))
    near = p("Less", p("Sub", query, key), p.const(9))
    window = p("Add", p("acc"), p("Where", p("And", near, seen, dtype="bool"), zero, low))
    for score in (biased, rounded, window):
        assert of_score(p, score) == AttentionKind("additive")


def test_positions_may_be_of_fewer_bits() -> None:
    p = Program()
    key, query = (p("Cast", p("index", dtype="int64", value=i), dtype="int32") for i in (COLUMN, ROW))
    later = p("Greater", key, query, dtype="bool")
    assert of_score(p, p("Where", later, p.const(-math.inf), p("acc"))).causal
    key, query = (p("Cast", p("index", dtype="int64", value=i), dtype="float16") for i in (COLUMN, ROW))
    later = p("Greater", key, query, dtype="bool")
    assert not of_score(p, p("Where", later, p.const(-math.inf), p("acc"))).causal


def test_sums_of_many_numbers_are_told_in_short_time() -> None:
    p = Program()
    total = p("acc")
    for i in range(40):
        mask = p("Less", p.load(3), p.const(float(i)), dtype="bool")
        total = p("Add", total, p("Where", mask, p.const(0.0), p.const(2.0**i)))
    assert of_score(p, total).masking == "additive"


def test_masks_are_told_apart() -> None:
    p = Program()
    acc, bias = p("acc"), p.load(3)
    total = p("Add", p("Mul", bias, p.const(-1e9)), p("Sub", acc, bias))
    hidden = p("LessOrEqual", bias, p.const(-1e9), dtype="bool")
    scores = {
        "none": acc,
        "boolean": p("Where", hidden, p.const(-1e9), acc),
        "additive": total,
        "general": p("Add", p("Tanh", acc), bias),
    }
    assert {name: of_score(p, score).masking for name, score in scores.items()} == {name: name for name in scores}
    assert of_score(p, p("Where", hidden, p.const(-math.inf), p("Cast", total, dtype="float16"))).masking == "additive"
    for other in (p("Mul", acc, bias), p("Add", acc, acc), p("Sub", bias, acc), p("Where", hidden, bias, acc)):
        assert of_score(p, other).masking == "general"
