"""Rotary position embedding: on halves or on pairs, however cut, turned and put together again."""

from __future__ import annotations

import pytest

from tests.helpers.graphs import matches, parse

INTEGERS = {"i0": 0, "i1": 1, "i2": 2, "i4": 4, "i8": 8, "i16": 16, "all": 9223372036854775807, "last": -1}
INPUTS = "float[b, 4, s, 16] x, float[s, 16] cos, float[s, 16] sin, float[s, 8] hcos, float[s, 8] hsin"
OUT = "float[b, 4, s, 16] y"


def ropes(body: str, inputs: str = INPUTS, outputs: str = OUT, opset: int = 17) -> int:
    """How many rotary embeddings are recognised in a graph that may use the numbers above by name."""
    names = [f"{n} = Constant <value = int64[1] {{{i}}}> ()" for n, i in INTEGERS.items()]
    names += [
        "pairs = Constant <value = int64[5] {0, 0, 0, 8, 2}> ()",
        "rows = Constant <value = int64[5] {0, 0, 0, 2, 8}> ()",
        "flat = Constant <value = int64[4] {0, 0, 0, 16}> ()",
        "zero = Constant <value = int64 {0}> ()",
        "one = Constant <value = int64 {1}> ()",
        "minus = Constant <value = float {-1.0}> ()",
    ]
    model = parse(f"g ({inputs}) => ({outputs}) {{ {' '.join(names)} {body} }}", opset=opset)
    return matches(model, "AttentionHeads").idioms.get("RotaryEmbedding", 0)


CUTS = {
    "slices": "u = Slice (x, i0, i8, last) w = Slice (x, i8, all, last)",
    "slices with steps": "w = Slice (x, i8, all, last, i1) u = Slice (x, i0, i8, last, i1)",
    "split": "u, w = Split <axis = -1> (x)",
    "reshaped": "r = Reshape (x, rows) u0, w0 = Split <axis = 3> (r) m3 = Constant <value = int64[1] {3}> () "
    "u = Squeeze (u0, m3) w = Squeeze (w0, m3)",
    "gathered": "r = Reshape (x, rows) u = Gather <axis = 3> (r, zero) w = Gather <axis = -2> (r, one)",
}
TURNS = {
    "neg": "n = Neg (w) t = Concat <axis = -1> (n, u) a = Mul (x, cos) c = Mul (t, sin) y = Add (a, c)",
    "swapped operands": "n = Neg (w) t = Concat <axis = 3> (n, u) a = Mul (cos, x) c = Mul (sin, t) y = Add (c, a)",
    "times -1": "n = Mul (minus, w) t = Concat <axis = -1> (n, u) a = Mul (x, cos) c = Mul (t, sin) y = Add (a, c)",
    "the other way": "n = Neg (u) t = Concat <axis = -1> (w, n) a = Mul (x, cos) c = Mul (t, sin) y = Sub (a, c)",
    "halves": "a = Mul (u, hcos) c = Mul (w, hsin) p = Sub (a, c) d = Mul (hcos, w) e = Mul (u, hsin) q = Add (e, d) "
    "y = Concat <axis = -1> (p, q)",
    "halves, the other way": "a = Mul (u, hcos) c = Mul (w, hsin) p = Add (c, a) d = Mul (hcos, w) e = Mul (u, hsin) "
    "q = Sub (d, e) y = Concat <axis = -1> (p, q)",
    "joined again": "j = Concat <axis = -1> (u, w) n = Neg (w) t = Concat <axis = -1> (n, u) a = Mul (j, cos) "
    "c = Mul (t, sin) y = Add (a, c)",
    "signs in the angles": "t = Concat <axis = -1> (w, u) ns = Neg (hsin) ss = Concat <axis = -1> (ns, hsin) "
    "a = Mul (x, cos) c = Mul (t, ss) y = Add (a, c)",
    "cut angles": "c1, c2 = Split <axis = -1> (cos) s1, s2 = Split <axis = -1> (sin) a = Mul (u, c1) c = Mul (w, s1) "
    "p = Sub (a, c) d = Mul (w, c2) e = Mul (u, s2) q = Add (d, e) y = Concat <axis = -1> (p, q)",
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("turn", TURNS.values(), ids=TURNS)
def test_halves(cut: str, turn: str) -> None:
    assert ropes(f"{cut} {turn}") == 1


PARTS = {
    "split": "sz = Constant <value = int64[3] {4, 4, 8}> () u, w, o = Split <axis = -1> (x, sz)",
    "slices": "o = Slice (x, i8, all, last) w = Slice (x, i4, i8, last) u = Slice (x, i0, i4, last)",
}


@pytest.mark.parametrize("parts", PARTS.values(), ids=PARTS)
def test_the_first_part_only(parts: str) -> None:
    turn = TURNS["halves"].replace("(p, q)", "(p, q, o)")
    assert ropes(f"{parts} {turn}", INPUTS.replace("s, 8", "s, 4")) == 1


PAIR_CUTS = {
    "every second": "u = Slice (x, i0, all, last, i2) w = Slice (x, i1, all, last, i2)",
    "slices of pairs": "r = Reshape (x, pairs) u0 = Slice (r, i0, i1, last) w0 = Slice (r, i1, i2, last) "
    "u = Squeeze (u0, last) w = Squeeze (w0, last)",
    "split pairs": "r = Reshape (x, pairs) u0, w0 = Split <axis = -1> (r) "
    "u = Squeeze (u0, last) w = Squeeze (w0, last)",
    "gathered pairs": "r = Reshape (x, pairs) u = Gather <axis = -1> (r, zero) w = Gather <axis = 4> (r, one)",
}
STACK = (
    "{0}u = Unsqueeze ({0}, last) {1}u = Unsqueeze ({1}, last) {2}s = Concat <axis = -1> ({0}u, {1}u) "
    "{2} = Reshape ({2}s, flat)"
)
PAIR_TURNS = {
    "rotated": f"n = Neg (w) {STACK.format('n', 'u', 't')} a = Mul (x, cos) c = Mul (t, sin) y = Add (a, c)",
    "complex": "a = Mul (u, hcos) c = Mul (w, hsin) p = Sub (a, c) d = Mul (u, hsin) e = Mul (w, hcos) q = Add (d, e) "
    + STACK.format("p", "q", "y"),
}


@pytest.mark.parametrize("cut", PAIR_CUTS.values(), ids=PAIR_CUTS)
@pytest.mark.parametrize("turn", PAIR_TURNS.values(), ids=PAIR_TURNS)
def test_pairs(cut: str, turn: str) -> None:
    assert ropes(f"{cut} {turn}") == 1


def matrices(rows: str) -> str:
    """Pairs as columns, times matrices whose rows are these."""
    return f"""columns = Constant <value = int64[6] {{0, 0, 0, 8, 1, 2}}> ()
        squares = Constant <value = int64[4] {{0, 8, 2, 2}}> () r = Reshape (x, columns)
        u = Gather <axis = -1> (r, zero) w = Gather <axis = 5> (r, one) ns = Neg (hsin)
        c = Unsqueeze (hcos, last) si = Unsqueeze (hsin, last) mi = Unsqueeze (ns, last)
        st = Concat <axis = -1> ({rows}) m = Reshape (st, squares)
        m0 = Gather <axis = 3> (m, zero) m1 = Gather <axis = -1> (m, one) p = Mul (m0, u) q = Mul (w, m1)
        t = Add (p, q) y = Reshape (t, flat)"""


def test_pairs_times_matrices() -> None:
    assert ropes(matrices("c, mi, si, c")) == 1
    assert ropes(matrices("c, si, si, c")) == 0


@pytest.mark.parametrize("opset", [9, 10, 12, 13, 18])
def test_opsets(opset: int) -> None:
    """Bounds and sizes were attributes once; a split into halves had to say how many of them."""
    slices = CUTS["slices"]
    if opset < 10:
        slices = (
            "u = Slice <axes = [3], starts = [0], ends = [8]> (x) w = Slice <axes = [3], starts = [8], ends = [99]> (x)"
        )
    sizes = "sz = Constant <value = int64[2] {8, 8}> () u, w = Split <axis = -1> (x, sz)"
    split = "u, w = Split <axis = 3, split = [8, 8]> (x)" if opset < 13 else sizes
    if opset >= 18:
        split = "u, w = Split <axis = 3, num_outputs = 2> (x)"
    for cut in (slices, split):
        assert ropes(f"{cut} {TURNS['neg']}", opset=opset) == 1


def test_the_middle_may_be_computed() -> None:
    body = "sh = Shape (hcos) m = Gather (sh, i1) u = Slice (x, i0, m, last) w = Slice (x, m, all, last)"
    assert ropes(f"{body} {TURNS['neg']}") == 1


def test_casts_inside() -> None:
    inputs = INPUTS.replace("float[b, 4, s, 16] x", "float16[b, 4, s, 16] h")
    body = f"x = Cast <to = 1> (h) {CUTS['slices']} {TURNS['neg'].replace('y =', 'f =')} y = Cast <to = 10> (f)"
    assert ropes(body, inputs, OUT.replace("float", "float16")) == 1


OPERATORS = {
    "standard": ("y = RotaryEmbedding (x, hcos2, hsin2)", 23),
    "standard, interleaved": ("y = RotaryEmbedding <interleaved = 1> (x, tcos, tsin, positions)", 23),
    "contributed": ("y = com.microsoft.RotaryEmbedding (x, positions, tcos, tsin)", 17),
}


@pytest.mark.parametrize(("body", "opset"), OPERATORS.values(), ids=OPERATORS)
def test_operators(body: str, opset: int) -> None:
    inputs = """float[b, 4, s, 16] x, float[b, s, 8] hcos2, float[b, s, 8] hsin2, float[64, 8] tcos, float[64, 8] tsin,
        int64[b, s] positions"""
    assert ropes(body, inputs, opset=opset) == 1


NOT_ROPE = {
    "no turn": "t = Concat <axis = -1> (w, u) a = Mul (x, cos) c = Mul (t, sin) y = Add (a, c)",
    "not swapped": "n = Neg (w) t = Concat <axis = -1> (u, n) a = Mul (x, cos) c = Mul (t, sin) y = Add (a, c)",
    "another value": "n = Neg (w) t = Concat <axis = -1> (n, u) x2 = Sin (x) a = Mul (x2, cos) "
    "c = Mul (t, sin) y = Add (a, c)",
    "halves joined the other way": "j = Concat <axis = -1> (w, u) n = Neg (w) t = Concat <axis = -1> (n, u) "
    "a = Mul (j, cos) c = Mul (t, sin) y = Add (a, c)",
    "one sign in the angles": "t = Concat <axis = -1> (w, u) ns = Neg (hsin) ss = Concat <axis = -1> (ns, ns) "
    "a = Mul (x, cos) c = Mul (t, ss) y = Add (a, c)",
    "no angles": "n = Neg (w) y = Concat <axis = -1> (n, u)",
    "both plus": "a = Mul (u, hcos) c = Mul (w, hsin) p = Add (a, c) d = Mul (hcos, w) e = Mul (u, hsin) "
    "q = Add (e, d) y = Concat <axis = -1> (p, q)",
}


@pytest.mark.parametrize("turn", NOT_ROPE.values(), ids=NOT_ROPE)
def test_what_only_looks_like_it(turn: str) -> None:
    assert ropes(f"{CUTS['slices']} {turn}") == 0


def test_halves_of_another_axis() -> None:
    assert ropes(f"u = Slice (x, i0, i8, i2) w = Slice (x, i8, all, i2) {TURNS['neg']}") == 0


def test_queries_and_keys_count_one_each() -> None:
    cut, turn = "u, w = Split <axis = -1> (x)", TURNS["neg"]
    keys = cut.replace("u, w", "ku, kw").replace("(x)", "(k)") + (
        " kn = Neg (kw) kt = Concat <axis = -1> (kn, ku) ka = Mul (k, cos) kc = Mul (kt, sin) ky = Add (ka, kc)"
    )
    assert ropes(f"{cut} {turn} {keys}", f"{INPUTS}, float[b, 2, s, 16] k", f"{OUT}, float[b, 2, s, 16] ky") == 2


def test_pairs_cut_from_a_value_whose_heads_are_split_elsewhere() -> None:
    """As double reshapes are merged; the members of a pair keep their axis."""
    body = """heads = Constant <value = int64[4] {0, 0, 4, 16}> () deep = Constant <value = int64[5] {0, 0, 4, 8, 2}> ()
        x = Reshape (w, heads) r = Reshape (w, deep) o = Slice (r, i1, all, last) e = Slice (r, i0, i1, last)
        n = Neg (o) c = Concat <axis = -1> (n, e) t = Reshape (c, heads) a = Mul (x, cos) d = Mul (t, sin)
        y = Add (a, d)"""
    inputs = "float[b, s, 64] w, float[s, 1, 16] cos, float[s, 1, 16] sin"
    assert ropes(body, inputs, "float[b, s, 4, 16] y") == 1


def test_every_second_of_an_axis_of_unknown_size() -> None:
    inputs = "float[b, 4, s, n] x, float[s, n] cos, float[s, n] sin, int64[4] flat"
    body = f"{PAIR_CUTS['every second']} {PAIR_TURNS['rotated']}"
    assert ropes(body.replace("flat", "whole"), inputs.replace("flat", "whole"), "float[b, 4, s, n] y") == 1
