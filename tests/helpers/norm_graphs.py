"""Pieces of ONNX text that norms are written with."""

from __future__ import annotations

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
