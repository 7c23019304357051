"""Softmax attention in the forms that exporters and people write it, and what only looks like it."""

from __future__ import annotations

import pytest

from tests.helpers.attention_texts import HEADS, KT, OUT, SCORES, attentions, found, plain
from tests.helpers.graphs import matches, operators, parse


@pytest.mark.parametrize(
    "scores",
    [
        f"{SCORES} s = Identity (s0)",
        f"{SCORES} s = Mul (d, s0)",
        f"{SCORES} s = Div (s0, d)",
        f"{KT} c = Mul (q, d) s = MatMul (c, kt)",
        f"{KT} c = Mul (d, kt) s = MatMul (q, c)",
        f"{KT} a = Mul (q, d) c = Div (kt, d) s = MatMul (a, c)",
        "kt = Transpose <perm = [0, 1, 3, 2]> (k) qt = Identity (q) s0 = MatMul (qt, kt) r = Sqrt (d) s = Mul (s0, r)",
        "s = com.microsoft.FusedMatMul <transB = 1, alpha = 0.25> (q, k)",
        'e = Einsum <equation = "bhqd, bhkd -> bhqk"> (q, k) s = Mul (e, d)',
        'e = Einsum <equation = "zjkm,zjim->zjik"> (k, q) s = Mul (e, d)',
        "qt = Transpose <perm = [0, 1, 3, 2]> (q) r = MatMul (k, qt) s = Transpose <perm = [0, 1, 3, 2]> (r)",
    ],
)
def test_scores(scores: str) -> None:
    assert attentions(plain(scores)) == 1


def test_two_products_with_one_softmax_are_two_attentions() -> None:
    out = "w = Mul (v, d) o1 = MatMul (p, v) o2 = MatMul (p, w) y = Sub (o1, o2)"
    assert attentions(plain(f"{SCORES} s = Mul (s0, d)", out)) == 2


CAUSAL = """sh = Shape (s0) i2 = Constant <value = int64 {2}> () i3 = Constant <value = int64 {3}> ()
    n = Gather (sh, i2) m = Gather (sh, i3) i0 = Constant <value = int64 {0}> () i1 = Constant <value = int64 {1}> ()
    rows = Range (i0, n, i1) cols = Range (i0, m, i1) ax = Constant <value = int64[1] {1}> ()
    rc = Unsqueeze (rows, ax) future = Greater (cols, rc) s = Where (future, low, s0)"""

TRILU = """sh = Shape (s0) f = ConstantOfShape <value = float[1] {-10000.0}> (sh) u = Trilu <upper = 1> (f)
    s = Add (s0, u)"""


@pytest.mark.parametrize(
    "mask",
    [
        "s = Add (mask, s0)",
        "low2 = Mul (mask, low) s = Add (s0, low2)",
        "bm = Cast <to = 9> (mask) s = Where (bm, low, s0)",
        "bm = Cast <to = 9> (mask) nm = Not (bm) s = Where (nm, s0, low)",
        "m1 = Sub (one, mask) m2 = Mul (m1, low) sc = Mul (s0, d) s = Add (sc, m2)",
        "a = Div (s0, cap) h = Tanh (a) c = Mul (h, cap) s = Add (c, mask)",
        "s = Max (s0, low)",
        CAUSAL,
        TRILU,
    ],
    ids=["add", "scaled", "where", "where not", "one minus", "soft cap", "clip", "range", "trilu"],
)
def test_masks(mask: str) -> None:
    assert attentions(plain(f"{SCORES} {mask}"), f"{HEADS}, float[b, 1, s, t] mask") == 1


@pytest.mark.parametrize(
    "bias",
    [
        "rt = Transpose <perm = [0, 1, 3, 2]> (r) c = MatMul (q, rt) s = Add (c, s0)",
        "rt = Transpose <perm = [0, 1, 3, 2]> (r) c = MatMul (q, rt) g = GatherElements <axis = 3> (c, index) "
        "e = MatMul (k, rt) h = GatherElements <axis = 3> (e, index) a = Add (s0, g) s = Add (a, h)",
        'e = Einsum <equation = "bhqd,bhkd->bhqk"> (q, r) p0 = Pad (e, pads) '
        "z = Slice (p0, i0, i9, i3) s = Add (s0, z)",
    ],
    ids=["two products", "three products", "shifted"],
)
def test_sums_of_products(bias: str) -> None:
    inputs = f"{HEADS}, float[b, 4, t, 16] r, int64[b, 4, s, t] index"
    constants = """pads = Constant <value = int64[8] {0, 0, 0, 0, 0, 0, 0, 1}> ()
        i0 = Constant <value = int64[1] {1}> () i9 = Constant <value = int64[1] {9999}> ()
        i3 = Constant <value = int64[1] {3}> ()"""
    assert attentions(plain(f"{constants} {SCORES} {bias}"), inputs) == 1


@pytest.mark.parametrize(
    "out",
    [
        "y = MatMul (p, v)",
        "i = IsNaN (p) w = Where (i, zero, p) y = MatMul (w, v)",
        "o = Dropout (p) y = MatMul (o, v)",
        "n = IsNaN (p) w = Where (n, zero, p) i = IsInf (w) o = Where (i, most, w) y = MatMul (o, v)",
        "h = Mul (p, mask) c = Mul (h, d) y = MatMul (c, v)",
        "y = com.microsoft.FusedMatMul (p, v)",
        'y = Einsum <equation = "bhqk,bhkd->bhqd"> (p, v)',
        'y = Einsum <equation = "bhkd,bhqk->bhqd"> (v, p)',
    ],
)
def test_weighted_values(out: str) -> None:
    assert attentions(plain(f"{SCORES} s = Mul (s0, d)", out), f"{HEADS}, float[b, 1, s, t] mask") == 1


def test_an_expansion_to_the_shape_that_is_there() -> None:
    """As exporters write it where the sizes are not known before the model runs."""
    out = """i0 = Constant <value = int64[1] {0}> ()
        i3 = Constant <value = int64[1] {3}> () i4 = Constant <value = int64[1] {4}> ()
        qs = Shape (q) first = Slice (qs, i0, i3) ks = Shape (kt) last = Slice (ks, i3, i4)
        sh = Concat <axis = 0> (first, last) e = Expand (p, sh) y = MatMul (e, v)"""
    assert attentions(plain(f"{SCORES} s = Mul (s0, d)", out)) == 1


@pytest.mark.parametrize(
    "out",
    [
        "pt = Transpose <perm = [0, 1, 3, 2]> (p) y = MatMul (vt, pt)",
        "y = com.microsoft.FusedMatMul <transB = 1> (vt, p)",
        'y = Einsum <equation = "bhdk,bhqk->bhdq"> (vt, p)',
    ],
)
def test_values_on_the_left(out: str) -> None:
    inputs = HEADS.replace("[b, 4, t, 16] v", "[b, 4, 16, t] vt")
    assert attentions(plain(f"{SCORES} s = Mul (s0, d)", out), inputs, "float[b, 4, 16, s] y") == 1


@pytest.mark.parametrize("lead", ["", "n, ", "b, 4, ", "b, 2, 2, "])
def test_transposes_of_any_rank(lead: str) -> None:
    rank = 2 + lead.count(",")
    perm = [*range(rank - 2), rank - 1, rank - 2]
    swap = "{} = Transpose <perm = " + str(perm) + "> ({})"
    inputs = f"float[{lead}s, 16] q, float[{lead}t, 16] k, float[{lead}16, t] vt"
    body = f"{swap.format('kt', 'k')} s = MatMul (q, kt) p = Softmax (s) {swap.format('pt', 'p')} y = MatMul (vt, pt)"
    assert attentions(body, inputs, f"float[{lead}16, s] y") == 1


COLUMNS = "qt = Transpose <perm = [0, 1, 3, 2]> (q) s0 = MatMul (k, qt) s = Mul (s0, d)"

COLUMN_SOFTMAX = {
    "axis": "p = Softmax <axis = -2> (s)",
    "transposes": "st = Transpose <perm = [0, 1, 3, 2]> (s) pt = Softmax (st) p = Transpose <perm = [0, 1, 3, 2]> (pt)",
}

TURNED = [
    "vt = Transpose <perm = [0, 1, 3, 2]> (v) y = MatMul (vt, p)",
    "vt = Transpose <perm = [0, 1, 3, 2]> (v) y = com.microsoft.FusedMatMul (vt, p)",
    "pr = Transpose <perm = [0, 1, 3, 2]> (p) y = MatMul (pr, v)",
    "y = com.microsoft.FusedMatMul <transA = 1> (p, v)",
    'y = Einsum <equation = "bhkq,bhkd->bhqd"> (p, v)',
    'y = Einsum <equation = "bhkd,bhkq->bhqd"> (v, p)',
]


@pytest.mark.parametrize("softmax", COLUMN_SOFTMAX.values(), ids=COLUMN_SOFTMAX)
@pytest.mark.parametrize("out", TURNED)
def test_transposed_attention(softmax: str, out: str) -> None:
    assert attentions(f"{COLUMNS} {softmax} {out}", outputs="float[b, 4, m, n] y") == 1


AXIS = "last = Constant <value = int64[1] {-1}> ()"

SOFTMAX = {
    "plain": "e = Exp (s) z = ReduceSum (e, last) p = Div (e, z)",
    "shifted": "m = ReduceMax <axes = [-1]> (s) c = Sub (s, m) e = Exp (c) z = ReduceSum (e, last) p = Div (e, z)",
    "reciprocal": "e = Exp (s) z = ReduceSum (e, last) r = Reciprocal (z) p = Mul (r, e)",
    "plus epsilon": "e = Exp (s) z = ReduceSum (e, last) a = Add (z, eps) p = Div (e, a)",
    "plus one": "e = Exp (s) z = ReduceSum (e, last) a = Add (one, z) p = Div (e, a)",
    "log": "l = LogSoftmax <axis = -1> (s) p = Exp (l)",
    "sinks": "c = Concat <axis = -1> (s, sink) q0 = Softmax (c) p = Slice (q0, first, end, last)",
    "shifted sinks": "c = Concat <axis = -1> (s, sink) m = ReduceMax <axes = [-1]> (c) c2 = Sub (c, m) "
    "q0 = Softmax (c2) p = Slice (q0, first, end, last)",
}


@pytest.mark.parametrize("softmax", SOFTMAX.values(), ids=SOFTMAX)
def test_softmax_written_out(softmax: str) -> None:
    ends = "first = Constant <value = int64[1] {0}> () end = Constant <value = int64[1] {-1}> ()"
    body = f"{AXIS} {ends} {SCORES} s = Mul (s0, d) {softmax} y = MatMul (p, v)"
    result = found(body, f"{HEADS}, float[b, 4, s, 1] sink")
    assert result.idioms["Attention"] == 1
    whole = max(operators(result, "AttentionHeads"), key=len)
    assert len(whole) == 4 + softmax.count("=") - softmax.count("<")


def test_one_sink_whose_number_is_not_told() -> None:
    ends = "first = Constant <value = int64[1] {0}> () end = Constant <value = int64[1] {-1}> ()"
    body = f"{AXIS} {ends} {SCORES} s = Mul (s0, d) {SOFTMAX['shifted sinks']} y = MatMul (p, v)"
    assert attentions(body, f"{HEADS}, float[b, 4, s, n] sink") == 1
    assert attentions(body, f"{HEADS}, float[b, 4, s, 2] sink") == 0


@pytest.mark.parametrize("opset", [9, 11, 12])
def test_older_opsets(opset: int) -> None:
    """Softmax over the last axis was the same before opset 13; over an earlier one it ran over all that follow."""
    body = f"{SCORES} s = Mul (s0, d) p = Softmax <axis = {{}}> (s) y = MatMul (p, v)"
    assert attentions(body.format(3), opset=opset) == 1
    assert attentions(body.format(1), opset=opset) == 0
    columns = f"{COLUMNS} p = Softmax <axis = 2> (s) {TURNED[0]}"
    assert attentions(columns, outputs="float[b, 4, m, n] y", opset=opset) == 0


@pytest.mark.parametrize(
    ("equation", "first"),
    [
        ("bhij,bhdj->bhid", "p, vt"),
        ("bhij,bhdj->bihd", "p, vt"),
        ("bhdj,bhij->bdhi", "vt, p"),
        ("bhdj,bhij->dbhi", "vt, p"),
    ],
)
def test_weighted_values_as_any_einsum(equation: str, first: str) -> None:
    """The keys have to be what is summed over, wherever they stand."""
    inputs = HEADS.replace("[b, 4, t, 16] v", "[b, 4, 16, t] vt")
    out = f'y = Einsum <equation = "{equation}"> ({first})'
    assert attentions(plain(f"{SCORES} s = Mul (s0, d)", out), inputs, "float[n0, n1, n2, n3] y") == 1


@pytest.mark.parametrize("equation", ["bhij,bhid->bhjd", "bhij,bhid->bhd", "bhij,bhjd->bid"])
def test_what_sums_over_something_else_weights_no_values(equation: str) -> None:
    inputs = "float[b, 4, s, 16] q, float[b, 4, s, 16] k, float[b, 4, s, 16] v"
    rank = len(equation.partition("->")[2])
    outputs = f"float[{', '.join(f'n{i}' for i in range(rank))}] y"
    out = f'y = Einsum <equation = "{equation}"> (p, v)'
    assert attentions(plain(f"{SCORES} s = Mul (s0, d)", out), inputs, outputs) == 0


def test_dropout_as_in_training() -> None:
    out = """ratio = Constant <value = float {0.1}> () train = Constant <value = bool {1}> ()
        o = Dropout (p, ratio, train) y = MatMul (o, v)"""
    assert attentions(plain(f"{SCORES} s = Mul (s0, d)", out)) == 1


HEADS_MIXED = {
    "einsum": '{1} = Einsum <equation = "bhij,gh->bgij"> ({0}, w)',
    "linear": "{1}t = Transpose <perm = [0, 2, 3, 1]> ({0}) {1}l = MatMul ({1}t, w) {1}b = Add ({1}l, c) "
    "{1} = Transpose <perm = [0, 3, 1, 2]> ({1}b)",
    "convolution": "{1} = Conv (k4, w4)",
}


@pytest.mark.parametrize("places", ["before", "after", "both"])
@pytest.mark.parametrize("mixed", ["einsum", "linear", "convolution"])
def test_heads_mixed_before_and_after_the_softmax(mixed: str, places: str) -> None:
    mix = HEADS_MIXED[mixed].replace("k4", "{0}")
    before = mix.format("s1", "s") if places != "after" else "s = Identity (s1)"
    after = mix.format("p", "r") if places != "before" else "r = Identity (p)"
    weights = """w = Constant <value = float[4, 4] {1, 2, 3, 4, 5, 6, 7, 8, 9, 8, 7, 6, 5, 4, 3, 2}> ()
        four = Constant <value = int64[4] {4, 4, 1, 1}> () w4 = Reshape (w, four)
        c = Constant <value = float[4] {1, 2, 3, 4}> ()"""
    body = f"{weights} {SCORES} s1 = Mul (s0, d) {before} p = Softmax (s) {after} y = MatMul (r, v)"
    assert attentions(body) == 1


@pytest.mark.parametrize("normal", ["y = MatMul (t, v)", "z = ReduceSum (t, last) n = Div (t, z) y = MatMul (n, v)"])
def test_weights_blended_with_others(normal: str) -> None:
    """As in ConViT: a share for what the tokens say, a share for where they are."""
    body = f"""{AXIS} {SCORES} s = Mul (s0, d) p = Softmax (s) a = Mul (p, d) r = Softmax (where) c = Mul (share, r)
        t = Add (c, a) {normal}"""
    assert attentions(body, f"{HEADS}, float[1, 4, s, t] where, float[4, 1, 1] share") == 1


def test_scores_of_which_a_part_is_written_over() -> None:
    """As in-place additions to a part of the scores are exported."""
    body = f"{SCORES} s1 = Mul (s0, d) s = ScatterND (s1, index, update) p = Softmax (s) y = MatMul (p, v)"
    assert attentions(body, f"{HEADS}, int64[n, 4] index, float[n] update") == 1


NOT_ATTENTION = {
    "softmax over the queries": f"{SCORES} p = Softmax <axis = -2> (s0) y = MatMul (p, v)",
    "softmax over the queries, transposed": f"{SCORES} st = Transpose <perm = [0, 1, 3, 2]> (s0) pt = Softmax (st) "
    "p = Transpose <perm = [0, 1, 3, 2]> (pt) y = MatMul (p, v)",
    "softmax over the heads": f"{SCORES} p = Softmax <axis = 1> (s0) y = MatMul (p, v)",
    "no softmax": f"{SCORES} p = Mul (s0, d) y = MatMul (p, v)",
    "sigmoid": f"{SCORES} p = Sigmoid (s0) y = MatMul (p, v)",
    "linear attention": "a = Softmax (q) c = Softmax <axis = -2> (k) ct = Transpose <perm = [0, 1, 3, 2]> (c) "
    "m = MatMul (ct, v) y = MatMul (a, m)",
    "softmax in groups": f"{SCORES} g = Constant <value = int64[5] {{0, 4, 8, -1, 4}}> () r = Reshape (s0, g) "
    "p0 = Softmax (r) f = Constant <value = int64[4] {0, 4, 8, 8}> () p = Reshape (p0, f) y = MatMul (p, v)",
    "softmax is the result": f"{SCORES} y = Softmax (s0)",
    "sum over another axis": f"{SCORES} e = Exp (s0) r = Constant <value = int64[1] {{2}}> () z = ReduceSum (e, r) "
    "p = Div (e, z) y = MatMul (p, v)",
    "values summed over another axis": f'{SCORES} p = Softmax (s0) y = Einsum <equation = "bhqk,bhqd->bhkd"> (p, v)',
}


@pytest.mark.parametrize("body", NOT_ATTENTION.values(), ids=NOT_ATTENTION)
def test_what_only_looks_like_attention(body: str) -> None:
    square = HEADS.replace("s, 16", "8, 16").replace("t, 16", "8, 16")
    assert attentions(body, square, "float[b, n, m, o] y") == 0


def test_a_layer_with_softmax_as_its_activation_is_not_attention() -> None:
    """A router or a classifier: the keys are a weight matrix."""
    text = "g (float[b, s, 16] x, float[b, 8, 16] v) => (float[b, s, 16] y) {{ {} p = Softmax (h) y = MatMul (p, v) }}"
    for layer in ("h = MatMul (x, w)", 'h = Einsum <equation = "bsi,io->bso"> (x, w)'):
        assert "Attention" not in matches(parse(text.format(layer), {"w": (16, 8)})).idioms


def test_an_attention_is_counted_once_and_is_one_region() -> None:
    text = f"g ({HEADS}) => ({OUT}) {{ {plain(f'{SCORES} s = Identity (s0)')} }}"
    result = matches(parse(text), "AttentionHeads")
    assert result.idioms["Attention"] == 1
    assert ["Transpose", "MatMul", "Softmax", "MatMul"] in operators(result, "AttentionHeads")
