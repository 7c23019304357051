"""Attention between views of all kinds, with grouped heads and a cache, and as one operator."""

from __future__ import annotations

import pytest

from tests.helpers.attention_texts import HEADS, OUT, SCORES, attentions, plain

FOLDED = "three = Constant <value = int64[3] {-1, 8, 8}> () four = Constant <value = int64[4] {-1, 4, 8, 8}> ()"

SHAPES = {
    "one head": (
        "float[s, 16] q, float[t, 16] k, float[t, 16] v",
        "float[s, 16] y",
        "kt = Transpose <perm = [1, 0]> (k) s = MatMul (q, kt) p = Softmax (s) y = MatMul (p, v)",
    ),
    "Gemm": (
        "float[s, 16] q, float[t, 16] k, float[t, 16] v",
        "float[s, 16] y",
        "s = Gemm <transB = 1, alpha = 0.25> (q, k) p = Softmax (s) y = Gemm (p, v)",
    ),
    "Gemm with a mask": (
        "float[s, 16] q, float[t, 16] k, float[16, t] vt, float[s, t] mask",
        "float[16, s] y",
        "s = Gemm <transB = 1> (q, k, mask) p = Softmax (s) y = Gemm <transB = 1> (vt, p)",
    ),
    "heads in the batch": (
        "float[n, s, 16] q, float[n, t, 16] k, float[n, t, 16] v",
        "float[n, s, 16] y",
        "kt = Transpose <perm = [0, 2, 1]> (k) s = MatMul (q, kt) p = Softmax (s) y = MatMul (p, v)",
    ),
    "heads unfolded for the mask": (
        "float[n, 8, 16] q, float[n, 8, 16] k, float[n, 8, 16] v, float[b, 1, 8, 8] mask",
        "float[n, 8, 16] y",
        f"{FOLDED} kt = Transpose <perm = [0, 2, 1]> (k) s = MatMul (q, kt) u = Reshape (s, four) m = Add (u, mask) "
        "f = Reshape (m, three) p = Softmax (f) pu = Reshape (p, four) h = Mul (pu, d) r = Reshape (h, three) "
        "y = MatMul (r, v)",
    ),
    "a size of run time that a product settles": (
        "float[b, 4, s, 16] q, float[b, 4, t, 16] k, float[b, 4, t, 16] v, float[b, 1, s, u] mask, int64[4] four",
        "float[b, 4, s, 16] y",
        "kt = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, kt) z = Reshape (s, four) m = Add (z, mask) "
        "p = Softmax (m) y = MatMul (p, v)",
    ),
    "sizes that multiply to the same": (
        "float[b, 4, s, 16] q, float[b, 4, t, 16] k, float[b, 4, t, 16] v, float[b, 4, s, t] bias",
        "float[b, 4, s, 16] y",
        "kt = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, kt) i0 = Constant <value = int64[1] {0}> () "
        "i2 = Constant <value = int64[1] {2}> () i3 = Constant <value = int64[1] {3}> () last = Constant <value = "
        "int64[1] {-1}> () heads = Constant <value = int64[1] {4}> () sh = Shape (q) b = Slice (sh, i0, heads) "
        "n = Gather (sh, i0) w = Mul (n, heads) l = Slice (sh, i2, i3) three = Concat <axis = 0> (w, l, last) "
        "z = Reshape (s, three) p = Softmax (z) ss = Shape (s) r = Reshape (p, ss) y = MatMul (r, v)",
    ),
    "softmax on two axes": (
        "float[n, 8, 16] q, float[n, 8, 16] k, float[n, 8, 16] v",
        "float[n, 8, 16] y",
        "rows = Constant <value = int64[2] {-1, 8}> () three = Constant <value = int64[3] {-1, 8, 8}> () "
        "kt = Transpose <perm = [0, 2, 1]> (k) s = MatMul (q, kt) f = Reshape (s, rows) p = Softmax <axis = 1> (f) "
        "u = Reshape (p, three) y = MatMul (u, v)",
    ),
    "groups": (
        "float[b, 2, 4, s, 16] q, float[b, 2, 1, t, 16] k, float[b, 2, 1, t, 16] v",
        "float[b, 2, 4, s, 16] y",
        "kt = Transpose <perm = [0, 1, 2, 4, 3]> (k) s = MatMul (q, kt) p = Softmax (s) y = MatMul (p, v)",
    ),
    "groups by Einsum": (
        "float[b, 2, 4, s, 16] q, float[b, 2, t, 16] k, float[b, 2, t, 16] v",
        "float[b, 2, 4, s, 16] y",
        's = Einsum <equation = "bhgqd,bhkd->bhgqk"> (q, k) p = Softmax (s) '
        'y = Einsum <equation = "bhgqk,bhkd->bhgqd"> (p, v)',
    ),
    "heads third": (
        "float[b, s, 4, 16] q, float[b, t, 4, 16] k, float[b, t, 4, 16] v",
        "float[b, s, 4, 16] y",
        's = Einsum <equation = "bqhd,bkhd->bhqk"> (q, k) p = Softmax (s) '
        'y = Einsum <equation = "bhqk,bkhd->bqhd"> (p, v)',
    ),
    "keys second": (
        "float[s, b, 4, 16] q, float[t, b, 4, 16] k, float[t, b, 4, 16] v",
        "float[s, b, 4, 16] y",
        's = Einsum <equation = "ibnd,jbnd->ijbn"> (q, k) p = Softmax <axis = 1> (s) '
        'y = Einsum <equation = "ijbn,jbnd->ibnd"> (p, v)',
    ),
    "sequence first": (
        "float[s, b, 4, 16] q, float[t, b, 4, 16] k, float[t, b, 4, 16] v",
        "float[s, b, 4, 16] y",
        's = Einsum <equation = "ibnd,jbnd->bnij"> (q, k) p = Softmax (s) '
        'y = Einsum <equation = "bnij,jbnd->ibnd"> (p, v)',
    ),
}


@pytest.mark.parametrize(("inputs", "outputs", "body"), SHAPES.values(), ids=SHAPES)
def test_shapes(inputs: str, outputs: str, body: str) -> None:
    assert attentions(body, inputs, outputs) == 1


REPEATS = {
    "expand": "ku = Unsqueeze (k2, two) ke = Expand (ku, five) k = Reshape (ke, four)",
    "tile": "ku = Unsqueeze (k2, two) ke = Tile (ku, five) k = Reshape (ke, four)",
    "concat": "ku = Unsqueeze (k2, two) ke = Concat <axis = 2> (ku, ku) k = Reshape (ke, four)",
    "gather": "k = Gather <axis = 1> (k2, heads)",
}


@pytest.mark.parametrize("repeat", REPEATS.values(), ids=REPEATS)
def test_grouped_heads(repeat: str) -> None:
    body = f"""two = Constant <value = int64[1] {{2}}> () five = Constant <value = int64[5] {{1, 1, 2, 1, 1}}> ()
        four = Constant <value = int64[4] {{0, 4, -1, 16}}> () heads = Constant <value = int64[4] {{0, 0, 1, 1}}> ()
        {repeat} {plain(f"{SCORES} s = Mul (s0, d)")}"""
    assert attentions(body, HEADS.replace("[b, 4, t, 16] k", "[b, 2, t, 16] k2")) == 1


def test_cache() -> None:
    """Keys and values joined with those of earlier steps, and given back."""
    body = f"k = Concat <axis = 2> (pk, nk) v = Concat <axis = 2> (pv, nv) {plain(f'{SCORES} s = Mul (s0, d)')}"
    inputs = ", ".join(["float[b, 4, s, 16] q", *(f"float[b, 4, {n}, 16] {n}{x}" for x in "kv" for n in "pn")])
    outputs = f"{OUT}, float[b, 4, t, 16] k, float[b, 4, t, 16] v"
    assert attentions(body, inputs, outputs) == 1


def test_casts_inside() -> None:
    body = f"""{SCORES} f = Cast <to = 1> (s0) s = Mul (f, d) p = Softmax (s) h = Cast <to = 10> (p)
        y = MatMul (h, v)"""
    assert attentions(body, HEADS.replace("float[", "float16["), OUT.replace("float[", "float16[")) == 1


STANDARD = {
    "three inputs": (HEADS, OUT, "y = Attention <scale = 0.3> (q, k, v)"),
    "mask": (f"{HEADS}, float[s, t] mask", OUT, "y = Attention <is_causal = 1> (q, k, v, mask)"),
    "cache": (
        f"{HEADS}, float[b, 4, z, 16] pk, float[b, 4, z, 16] pv",
        f"{OUT}, float[b, 4, t2, 16] nk, float[b, 4, t2, 16] nv",
        'y, nk, nv = Attention (q, k, v, "", pk, pv)',
    ),
    "heads merged": (
        "float[b, s, 64] q, float[b, t, 64] k, float[b, t, 64] v",
        "float[b, s, 64] y",
        "y = Attention <q_num_heads = 4, kv_num_heads = 4> (q, k, v)",
    ),
}


@pytest.mark.parametrize(("inputs", "outputs", "body"), STANDARD.values(), ids=STANDARD)
@pytest.mark.parametrize("opset", [23, 24])
def test_standard_operator(inputs: str, outputs: str, body: str, opset: int) -> None:
    assert attentions(body.replace('""', ""), inputs, outputs, opset) == 1


CONTRIBUTED = {
    "Attention": "x, w, bias, mask",
    "MultiHeadAttention": "x",
    "GroupQueryAttention": "x, x, x, , , lengths, lengths",
    "PackedAttention": "x, w, bias, mask, lengths",
    "PackedMultiHeadAttention": "x, x, x, bias, mask, lengths",
    "DecoderAttention": "x, x, w, w, bias, mask, , , flag, flag, flag, flag",
    "DecoderMaskedMultiHeadAttention": "x, x, x, mask",
    "DecoderMaskedSelfAttention": "x, w, bias, mask, x, lengths",
    "PagedAttention": "x, x, x, x, x, lengths, lengths, lengths",
    "SparseAttention": "x, x, x, x, x, mask, mask, lengths, lengths",
    "LongformerAttention": "x, w, bias, x, w, bias, mask",
    "QAttention": "x, w, bias, scale, scale",
    "QOrderedAttention": "x, scale, scale",
    "QOrderedLongformerAttention": "x, scale, w, scale",
}


@pytest.mark.parametrize(("op", "inputs"), CONTRIBUTED.items(), ids=CONTRIBUTED)
def test_contributed_operators(op: str, inputs: str) -> None:
    values = """float[b, s, 64] x, float[64, 192] w, float[192] bias, int32[b] lengths, int32[b, s] mask, float scale,
        bool flag"""
    assert attentions(f"y = com.microsoft.{op} <num_heads = 4> ({inputs})", values, "float[b, s, 64] y") == 1
