"""Layers to stack, in ONNX's textual syntax.

Of a layer, the first input is what the layer before it made; other inputs are weights of its own (drawn at random) or,
with symbols in their shapes, inputs of the model that all layers read. Constants between < and > are shared as well.
"""

from __future__ import annotations

from collections.abc import Mapping

_TORCHSCRIPT = """
layer (float[B,S,32] x, float[S,8] cos, float[S,8] sin, float[S,S] mask, float[32] g1, float[32,32] wq,
       float[32,32] wk, float[32,32] wv, float[32,32] wo, float[32] g2, float[32] b2, float[32,64] wg, float[32,64] wu,
       float[64,32] wd) => (float[B,S,32] y)
<float two = {2}, float eps = {1e-5}, float root = {2.828427}, int64[1] last = {-1}, int64[1] zero = {0},
 int64[1] half = {4}, int64[1] far = {9223372036854775807}, int64 i0 = {0}, int64 i1 = {1}, int64[1] heads = {4},
 int64[1] depth = {8}, int64[1] width = {32}>
{
    p = Pow (x, two)
    m = ReduceMean (p, last)
    e = Add (m, eps)
    r = Sqrt (e)
    d = Div (x, r)
    n = Mul (d, g1)
    q0 = MatMul (n, wq)
    k0 = MatMul (n, wk)
    v0 = MatMul (n, wv)
    s0 = Shape (n)
    s1 = Gather (s0, i0)
    s2 = Shape (n)
    s3 = Gather (s2, i1)
    u1 = Unsqueeze (s1, zero)
    u3 = Unsqueeze (s3, zero)
    split = Concat <axis = 0> (u1, u3, heads, depth)
    q1 = Reshape (q0, split)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
    k1 = Reshape (k0, split)
    k = Transpose <perm = [0, 2, 1, 3]> (k1)
    v1 = Reshape (v0, split)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
    qc = Mul (q, cos)
    qa = Slice (q, zero, half, last)
    qb = Slice (q, half, far, last)
    qn = Neg (qb)
    qr = Concat <axis = -1> (qn, qa)
    qs = Mul (qr, sin)
    qe = Add (qc, qs)
    kc = Mul (k, cos)
    ka = Slice (k, zero, half, last)
    kb = Slice (k, half, far, last)
    kn = Neg (kb)
    kr = Concat <axis = -1> (kn, ka)
    ks = Mul (kr, sin)
    ke = Add (kc, ks)
    kt = Transpose <perm = [0, 1, 3, 2]> (ke)
    a0 = MatMul (qe, kt)
    a1 = Div (a0, root)
    a2 = Add (a1, mask)
    a3 = Softmax <axis = -1> (a2)
    a4 = MatMul (a3, v)
    a5 = Transpose <perm = [0, 2, 1, 3]> (a4)
    merge = Concat <axis = 0> (u1, u3, width)
    a6 = Reshape (a5, merge)
    o = MatMul (a6, wo)
    x1 = Add (x, o)
    lm = ReduceMean (x1, last)
    lc = Sub (x1, lm)
    lp = Pow (lc, two)
    lv = ReduceMean (lp, last)
    le = Add (lv, eps)
    lr = Sqrt (le)
    ld = Div (lc, lr)
    ls = Mul (ld, g2)
    l = Add (ls, b2)
    f0 = MatMul (l, wg)
    f1 = Sigmoid (f0)
    f2 = Mul (f0, f1)
    f3 = MatMul (l, wu)
    f4 = Mul (f2, f3)
    f5 = MatMul (f4, wd)
    y = Add (x1, f5)
}
"""

_DYNAMO = """
layer (float[B,S,32] x, float[S,S] mask, float[32] g1, float[32,32] wq, float[32,32] wk, float[32,32] wv,
       float[32,32] wo, float[32] bo, float[32] g2, float[32] b2, float[32,64] wu, float[64] bu, float[64,32] wd,
       float[32] bd)
=> (float[B,S,32] y)
<int64[4] split = {0, 0, 4, 8}, int64[3] merge = {0, 0, 32}, float scale = {0.5946036}>
{
    n = RMSNormalization <axis = -1, epsilon = 1e-6> (x, g1)
    q0 = MatMul (n, wq)
    k0 = MatMul (n, wk)
    v0 = MatMul (n, wv)
    q1 = Reshape (q0, split)
    q2 = Transpose <perm = [0, 2, 1, 3]> (q1)
    k1 = Reshape (k0, split)
    k2 = Transpose <perm = [0, 2, 3, 1]> (k1)
    v1 = Reshape (v0, split)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
    q = Mul (q2, scale)
    k = Mul (k2, scale)
    a0 = MatMul (q, k)
    a1 = Add (a0, mask)
    a2 = Softmax <axis = -1> (a1)
    a3 = MatMul (a2, v)
    a4 = Transpose <perm = [0, 2, 1, 3]> (a3)
    a5 = Reshape (a4, merge)
    o0 = MatMul (a5, wo)
    o = Add (o0, bo)
    x1 = Add (x, o)
    l = LayerNormalization <axis = -1, epsilon = 1e-5> (x1, g2, b2)
    h0 = MatMul (l, wu)
    h1 = Add (h0, bu)
    h2 = Gelu <approximate = "tanh"> (h1)
    h3 = MatMul (h2, wd)
    h = Add (h3, bd)
    y = Add (h, x1)
}
"""

_CONVOLUTION = """
layer (float[B,8,S,16] x, float[16,8,1,1] w1, float[16] s1, float[16] b1, float[16] m1, float[16] v1,
       float[16,1,3,3] w2, float[16] b2, float[8,16,1,1] w3, float[8] b3) => (float[B,8,S,16] y)
<float three = {3}, float zero = {0}, float six = {6}>
{
    c1 = Conv (x, w1)
    n1 = BatchNormalization (c1, s1, b1, m1, v1)
    r1 = Relu (n1)
    c2 = Conv <group = 16, pads = [1, 1, 1, 1]> (r1, w2, b2)
    a = Add (c2, three)
    p = Clip (a, zero, six)
    h = Mul (c2, p)
    r2 = Div (h, six)
    g = GlobalAveragePool (r2)
    t = Sigmoid (g)
    e = Mul (r2, t)
    c3 = Conv (e, w3, b3)
    y = Add (c3, x)
}
"""

# Everything a little wrong: softmax and means over other axes, a gate with a foreign factor, a scale that is computed.
_NEAR_MISSES = """
layer (float[B,S,32] x, float[32,32] wq, float[32,32] wk, float[32] g) => (float[B,S,32] y)
<float two = {2}, float eps = {1e-5}, float odd = {1.3}, int64[1] middle = {1}>
{
    q = MatMul (x, wq)
    k = MatMul (x, wk)
    kt = Transpose <perm = [0, 2, 1]> (k)
    a0 = MatMul (q, kt)
    a1 = Mul (a0, odd)
    a2 = Softmax <axis = 1> (a1)
    a3 = MatMul (a2, q)
    m = ReduceMean (a3, middle)
    c = Sub (a3, m)
    p = Pow (c, two)
    v = ReduceMean (p, middle)
    e = Add (v, eps)
    r = Sqrt (e)
    d = Div (c, r)
    n = Mul (d, g)
    s0 = Mul (n, odd)
    s1 = Sigmoid (s0)
    s2 = Mul (n, s1)
    e0 = Div (s2, odd)
    e1 = Erf (e0)
    e2 = Add (e1, two)
    e3 = Mul (s2, e2)
    y = Tanh (e3)
}
"""

# Every value is read twice: the number of paths doubles with each layer.
_DIAMONDS = """
layer (float[B,S,32] x) => (float[B,S,32] y) <float half = {0.5}>
{
    a = Sigmoid (x)
    b = Tanh (x)
    c = Mul (a, b)
    d = Mul (x, half)
    y = Add (c, d)
}
"""

_MOVES = """
layer (float[B,S,32] x) => (float[B,S,32] y)
<int64[1] zero = {0}, int64[1] half = {16}, int64[1] far = {9223372036854775807}, int64[1] last = {-1}>
{
    a = Slice (x, zero, half, last)
    b = Slice (x, half, far, last)
    n = Neg (b)
    y = Concat <axis = -1> (n, a)
}
"""

_CASTS = """
layer (float[B,S,32] x) => (float[B,S,32] y)
{
    a = Cast <to = 10> (x)
    y = Cast <to = 1> (a)
}
"""

LAYERS: Mapping[str, str] = {
    "torchscript": _TORCHSCRIPT,
    "dynamo": _DYNAMO,
    "convolution": _CONVOLUTION,
    "near misses": _NEAR_MISSES,
    "diamonds": _DIAMONDS,
    "moves": _MOVES,
    "casts": _CASTS,
}
