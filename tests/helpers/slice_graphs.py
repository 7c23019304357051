"""Graphs that slice, split and join tensors, with sizes to run them at: what exporters make of packed projections,
gates, rotary embedding and caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tests.helpers.region_tools import parsed

_CONSTANTS = {
    "zero": [0], "one": [1], "two": [2], "minus": [-1], "least": [-(2**63)], "most": [2**63 - 1], "half": [4],
    "middle": [24], "eight": [8], "back": [0, 0, -1], "back_two": [-2], "heads": [0, 0, 2, -1],
}  # fmt: skip


@dataclass(frozen=True)
class Graph:
    """`kernels` is the number of stages that it must take, `sizes` what its dimensions are in turn."""

    name: str
    text: str
    kernels: int
    sizes: tuple[Mapping[str, int], ...] = ({"B": 2, "S": 5},)
    opset: int = 20

    def model(self, dtype: str = "float") -> ir.Model:
        used = {n: v for n, v in _CONSTANTS.items() if n in self.text.replace(",", " ").replace(")", " ").split()}
        lines = "\n".join(f"{n} = Constant <value_ints = {v}> ()" for n, v in used.items())
        head, body = self.text.replace("float[", f"{dtype}[").split("{", 1)
        return parsed(f"{head} {{ {lines} {body}", self.opset)


def feeds(model: ir.Model, sizes: Mapping[str, int], rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random inputs; a few of them NaN and infinite where they are floats. Those of two axes, weights, are small and
    finite: ONNX Runtime's Sigmoid is 0 below -18, and whether 18 is reached must not decide what meets an infinity."""
    found = {}
    for value in model.graph.inputs:
        assert value.shape is not None
        assert value.dtype is not None
        shape = tuple(d if isinstance(d, int) else sizes[str(d)] for d in value.shape)
        dtype = value.dtype.numpy()
        if value.dtype.is_floating_point():
            weights = len(shape) == 2
            array = (rng.standard_normal(shape) * (0.25 if weights else 1.0)).astype(dtype)
            special = rng.random(shape) < (0.0 if weights else 0.01)
            found[str(value.name)] = np.where(special, rng.choice([np.nan, np.inf, -np.inf], shape), array).astype(
                dtype
            )
        else:
            found[str(value.name)] = rng.integers(0, 2, shape).astype(dtype)
    return found


_ODD = ({"B": 2, "S": 5}, {"B": 3, "S": 1}, {"B": 1, "S": 0})

ROPE_HALVES = Graph("rope_halves", """
    g (float[B, 3, S, 8] x, float[S, 8] c, float[S, 8] s) => (float[B, 3, S, 8] y) {
    a = Slice (x, zero, half, minus)  b = Slice (x, half, most, minus)
    n = Neg (b)  r = Concat <axis = -1> (n, a)  p = Mul (x, c)  q = Mul (r, s)  y = Add (p, q)
}""", 1, _ODD)  # fmt: skip

ROPE_PAIRS = Graph("rope_pairs", """
    g (float[B, S, 3, 8] x, float[S, 1, 4] c, float[S, 1, 4] s) => (float[B, S, 3, 8] y) {
    a = Slice (x, zero, most, minus, two)  b = Slice (x, one, most, minus, two)
    ac = Mul (a, c)  bs = Mul (b, s)  bc = Mul (b, c)  as = Mul (a, s)  e = Sub (ac, bs)  o = Add (bc, as)
    ue = Unsqueeze (e, minus)  uo = Unsqueeze (o, minus)  w = Concat <axis = -1> (ue, uo)
    d = Shape (x)  y = Reshape (w, d)
}""", 1, _ODD)  # fmt: skip

ROPE_SWAPPED_PAIRS = Graph("rope_swapped_pairs", """
    g (float[B, S, 8] x, float[S, 8] c, float[S, 8] s) => (float[B, S, 8] y) {
    a = Slice (x, zero, most, minus, two)  b = Slice (x, one, most, minus, two)  n = Neg (b)
    un = Unsqueeze (n, minus)  ua = Unsqueeze (a, minus)  w = Concat <axis = -1> (un, ua)
    d = Shape (x)  r = Reshape (w, d)  p = Mul (x, c)  q = Mul (r, s)  y = Add (p, q)
}""", 1, _ODD)  # fmt: skip

ROPE_PARTIAL = Graph("rope_partial", """
    g (float[B, S, 2, 12] x, float[S, 1, 8] c, float[S, 1, 8] s) => (float[B, 2, S, 12] y) {
    t = Slice (x, zero, eight, minus)  rest = Slice (x, eight, most, minus)
    a = Slice (t, zero, half, minus)  b = Slice (t, half, most, minus)  n = Neg (b)  r = Concat <axis = 3> (n, a)
    p = Mul (t, c)  q = Mul (r, s)  u = Add (p, q)  j = Concat <axis = 3> (u, rest)
    y = Transpose <perm = [0, 2, 1, 3]> (j)
}""", 2, _ODD)  # fmt: skip

ROPE_TABLES = Graph("rope_tables", """
    g (float[B, 3, S, 8] x, float[B, S, 4] f) => (float[B, 3, S, 8] y) {
    e = Concat <axis = -1> (f, f)  cos = Cos (e)  sin = Sin (e)  c = Unsqueeze (cos, one)  s = Unsqueeze (sin, one)
    a = Slice (x, zero, half, minus)  b = Slice (x, half, most, minus)
    n = Neg (b)  r = Concat <axis = -1> (n, a)  p = Mul (x, c)  q = Mul (r, s)  y = Add (p, q)
}""", 2, _ODD)  # fmt: skip

# (Without Tanh the scores of random inputs are so far apart that a rounding in float16 decides which key is read.)
PACKED_ATTENTION = Graph("packed_attention", """
    g (float[B, S, 48] x, float[48, 96] w, float[96] bias) => (float[B, S, 32] y) {
    h = MatMul (x, w)  b = Add (h, bias)  p = Tanh (b)  q, k, v = Split <axis = -1, num_outputs = 3> (p)
    q1 = Reshape (q, heads)  k1 = Reshape (k, heads)  v1 = Reshape (v, heads)
    q2 = Transpose <perm = [0, 2, 1, 3]> (q1)  k2 = Transpose <perm = [0, 2, 3, 1]> (k1)
    v2 = Transpose <perm = [0, 2, 1, 3]> (v1)  t = MatMul (q2, k2)  a = Softmax <axis = -1> (t)
    o = MatMul (a, v2)  o1 = Transpose <perm = [0, 2, 1, 3]> (o)  y = Reshape (o1, back)
}""", 2, ({"B": 2, "S": 5}, {"B": 1, "S": 1}))  # fmt: skip

STACKED_ATTENTION = Graph("stacked_attention", """
    g (float[B, S, 96] x) => (float[B, 2, S, 16] y) {
    five = Constant <value_ints = [0, 0, 3, 2, 16]> ()  h = Reshape (x, five)
    r = Transpose <perm = [2, 0, 3, 1, 4]> (h)
    i = Constant <value_int = 0> ()  j = Constant <value_int = 1> ()  l = Constant <value_int = -1> ()
    q = Gather (r, i)  k = Gather (r, j)  v = Gather (r, l)  kt = Transpose <perm = [0, 1, 3, 2]> (k)
    t = MatMul (q, kt)  a = Softmax <axis = -1> (t)  y = MatMul (a, v)
}""", 1, ({"B": 2, "S": 5}, {"B": 1, "S": 1}))  # fmt: skip

GATED = Graph("gated", """
    g (float[B, S, 16] x, float[16, 24] w, float[12, 16] v) => (float[B, S, 16] y) {
    h = MatMul (x, w)  a, c = Split <axis = -1, num_outputs = 2> (h)  e = Sigmoid (a)  f = Mul (e, a)
    g = Mul (f, c)  y = MatMul (g, v)
}""", 3, ({"B": 2, "S": 5}, {"B": 1, "S": 1}))  # fmt: skip

GATED_PARTS = Graph("gated_parts", """
    g (float[B, S, 40] x, float[40, 48] w, float[48] bias, float[24, 16] v) => (float[B, S, 16] y) {
    h = MatMul (x, w)  b = Add (h, bias)  a, c = Split <axis = -1, num_outputs = 2> (b)
    e = Sigmoid (a)  f = Mul (e, a)  g = Mul (f, c)  y = MatMul (g, v)
}""", 3, ({"B": 2, "S": 5}, {"B": 1, "S": 1}, {"B": 3, "S": 50}))  # fmt: skip

TURNED_PARTS = Graph("turned_parts", """
    g (float[R, 40] x, float[48, 40] w, float[48] bias) => (float[R, 24] y) {
    h = Gemm <transB = 1> (x, w, bias)  a = Slice (h, zero, middle, minus)  c = Slice (h, middle, most, minus)
    t = Tanh (c)  y = Mul (a, t)
}""", 2, ({"R": 5}, {"R": 1}, {"R": 150}))  # fmt: skip

CACHE = Graph("cache", """
    g (float[B, 2, P, 8] k, float[B, S, 2, 8] n) => (float[B, 2, T, 8] y) {
    t = Transpose <perm = [0, 2, 1, 3]> (n)  y = Concat <axis = -2> (k, t)
}""", 2, ({"B": 2, "P": 3, "S": 1}, {"B": 1, "P": 0, "S": 4}, {"B": 3, "P": 2, "S": 0}))  # fmt: skip

CACHED_ATTENTION = Graph("cached_attention", """
    g (float[B, 2, S, 8] q, float[B, 2, P, 8] kp, float[B, 2, S, 8] kn,
    float[B, 2, P, 8] vp, float[B, 2, S, 8] vn) => (float[B, 2, S, 8] y, float[B, 2, T, 8] k, float[B, 2, T, 8] v) {
    k = Concat <axis = 2> (kp, kn)  v = Concat <axis = 2> (vp, vn)  kt = Transpose <perm = [0, 1, 3, 2]> (k)
    t = MatMul (q, kt)  a = Softmax <axis = -1> (t)  y = MatMul (a, v)
}""", 3, ({"B": 2, "S": 1, "P": 5}, {"B": 1, "S": 3, "P": 0}))  # fmt: skip

NORM_OF_PARTS = Graph("norm_of_parts", """
    g (float[B, S, 20] x, float[10] w) => (float[B, S, 10] y, float[B, S, 10] z) {
    a, b = Split <axis = 2, num_outputs = 2> (x)
    y = LayerNormalization <axis = -1> (a, w)  z = Softmax <axis = -1> (b)
}""", 1, _ODD)  # fmt: skip

NORMED_ROPE = Graph("normed_rope", """
    g (float[B, 3, S, 8] x, float[8] w, float[S, 8] c, float[S, 8] s) => (float[B, 3, S, 8] y) {
    h = LayerNormalization <axis = -1> (x, w)
    a = Slice (h, zero, half, minus)  b = Slice (h, half, most, minus)
    n = Neg (b)  r = Concat <axis = -1> (n, a)  p = Mul (h, c)  q = Mul (r, s)  y = Add (p, q)
}""", 2, _ODD)  # fmt: skip

NORMED_PAIRS = Graph("normed_pairs", """
    g (float[B, 3, S, 8] x, float[8] w, float[S, 8] c, float[S, 8] s) => (float[B, 3, S, 8] y) {
    pairs = Constant <value_ints = [0, 3, -1, 4, 2]> ()
    h = LayerNormalization <axis = -1> (x, w)  p = Reshape (h, pairs)
    a, b = Split <axis = -1, num_outputs = 2> (p)  n = Neg (b)  t = Concat <axis = -1> (n, a)
    d = Shape (h)  r = Reshape (t, d)  f = Mul (h, c)  q = Mul (r, s)  y = Add (f, q)
}""", 2, ({"B": 2, "S": 5}, {"B": 3, "S": 1}))  # fmt: skip

ROPE_BEHIND = Graph("rope_behind", """
    g (float[B, 3, S, 8] x, float[R, 8] c, float[R, 8] s) => (float[B, 3, S, 8] y) {
    h = Slice (x, zero, one, back_two)  t = Slice (x, one, most, back_two)
    a = Slice (t, zero, half, minus)  b = Slice (t, half, most, minus)
    n = Neg (b)  r = Concat <axis = -1> (n, a)  p = Mul (t, c)  q = Mul (r, s)  o = Add (p, q)
    y = Concat <axis = 2> (h, o)
}""", 2, ({"B": 2, "S": 5, "R": 4}, {"B": 1, "S": 2, "R": 1}))  # fmt: skip

REVERSED = Graph("reversed", """
    g (float[B, S, 9] x) => (float[B, R, C] y) {
    from = Constant <value_ints = [-1, 7]> ()  to = Constant <value_ints = [-9223372036854775807, -20]> ()
    on = Constant <value_ints = [1, 2]> ()  by = Constant <value_ints = [-1, -3]> ()  z = Slice (x, from, to, on, by)
    y = Relu (z)
}""", 1, _ODD)  # fmt: skip

RUN_TIME_BOUNDS = Graph("run_time_bounds", """
    g (float[B, S, 9] x, float[Q, 4] m) => (float[B, R, 9] y) {
    d = Shape <start = 0, end = 1> (m)  z = Slice (x, d, most, one)  y = Exp (z)
}""", 1, ({"B": 2, "S": 5, "Q": 2}, {"B": 1, "S": 3, "Q": 7}, {"B": 2, "S": 4, "Q": 0}))  # fmt: skip

NESTED = Graph("nested", """
    g (float[B, 4] a, float[B, 6] b, float[B, 10] c, float[10] d) => (float[B, 10] y, float[B, 14] z) {
    t = Tanh (a)  j = Concat <axis = 1> (t, b)  k = Concat <axis = -1> (j, a)  q = Mul (j, c)  y = Add (q, d)
    z = Sigmoid (k)
}""", 2, ({"B": 3}, {"B": 1}, {"B": 0}))  # fmt: skip

ALONG_TWO_AXES = Graph("along_two_axes", """
    g (float[B, 4] a, float[B, 3] b, float[2, 7] c) => (float[D, 7] y, float[4, D] z) {
    j = Concat <axis = 1> (a, b)  k = Concat <axis = 0> (j, c)  y = Neg (k)  l = Slice (k, zero, half, one)
    z = Transpose <perm = [1, 0]> (l)
}""", 6, ({"B": 3}, {"B": 1}))  # fmt: skip

TILED = Graph("tiled", """
    g (float[B, 1, 3] x) => (float[D, 4, 6] y) {
    r = Constant <value_ints = [3, 4, 2]> ()  t = Tile (x, r)  y = Neg (t)
}""", 2, ({"B": 2}, {"B": 0}))  # fmt: skip

OLD_FORMS = Graph("old_forms", """
    g (float[B, 10] x) => (float[B, 3] y, float[B, 2] z) {
    a, b, c = Split <axis = 1, split = [3, 5, 2]> (x)  e = Exp (a)
    s = Slice <starts = [1], ends = [100], axes = [1]> (b)  y = Add (e, a)
    u = Slice <starts = [-2], ends = [100], axes = [-1]> (s)  z = Mul (u, c)
}""", 2, ({"B": 3}, {"B": 0}), 9)  # fmt: skip

GRAPHS = (
    ROPE_HALVES, ROPE_PAIRS, ROPE_SWAPPED_PAIRS, ROPE_PARTIAL, ROPE_TABLES, PACKED_ATTENTION, STACKED_ATTENTION, GATED,
    GATED_PARTS, TURNED_PARTS, CACHE, CACHED_ATTENTION, NORM_OF_PARTS, NORMED_ROPE, NORMED_PAIRS, ROPE_BEHIND, REVERSED,
    RUN_TIME_BOUNDS, NESTED, ALONG_TWO_AXES, TILED, OLD_FORMS,
)  # fmt: skip
