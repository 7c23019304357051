"""Pieces of ONNX text that norms are written with, and a norm of what a product adds to."""

from __future__ import annotations

from tests.helpers.slice_graphs import Graph

NUMBERS = {
    "one": 1.0,
    "zero": 0.0,
    "two": 2.0,
    "half": 0.5,
    "minus_half": -0.5,
    "eps": 1e-5,
    "big": 0.5,
    "n": 64.0,
    "n1": 63.0,
    "inverse_n": 1 / 64,
    "root_n": 8.0,
    "inverse_root_n": 0.125,
}
CONSTANTS = " ".join(f"{name} = Constant <value = float {{{value!r}}}> ()" for name, value in NUMBERS.items())


def reduce(body: str, opset: int, axes: str = "-1") -> str:
    """The body with `Mean (x)`, `Total (x)`, `Squares (x)` and `Length (x)` as reductions in the form of the opset."""
    constant = f"axes = Constant <value = int64[{axes.count(',') + 1}] {{{axes}}}> () "
    new = {"Mean": "ReduceMean", "Total": "ReduceSum", "Squares": "ReduceSumSquare", "Length": "ReduceL2"}
    for word, op in new.items():
        as_input = opset >= 18 or op == "ReduceSum"
        while (at := body.find(f"= {word} (")) >= 0:
            end = body.index(")", at)
            value = body[at + len(word) + 4 : end]
            call = f"= {op} ({value}, axes)" if as_input else f"= {op} <axes = [{axes}]> ({value})"
            body = body[:at] + call + body[end + 1 :]
    return constant + body


CENTRED = "m = Mean (x) d = Sub (x, m) q = Mul (d, d) v = Mean (q) "
ROOT = "e = Add (v, eps) s = Sqrt (e) "

KEPT_SUM = Graph("kept_sum", """
    g (float[B, S, 64] x, float[64, 72] w, float[B, S, 72] r, float[72] g)
    => (float[B, S, 72] t, float [B, S, 72] y) {
    p = MatMul (x, w)  t = Add (p, r)  f = Cast <to = 1> (t)  q = Mul (f, f)  v = ReduceMean <axes = [-1]> (q)
    e = Constant <value = float {0.00001}> ()  a = Add (v, e)  s = Sqrt (a)  n = Div (f, s)
    h = Cast <to = 1> (g)  y = Mul (n, h)
}""", 2, ({"B": 2, "S": 5}, {"B": 3, "S": 1}, {"B": 1, "S": 0}, {"B": 1, "S": 70}), 17)  # fmt: skip
"""The sum is kept, and normed in float32."""
