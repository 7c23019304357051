"""Graphs of an attention, in their text: what tests put together, and what is found there."""

from __future__ import annotations

from fusion_cli.match import MatchResult
from tests.helpers.graphs import matches, parse

HEADS = "float[b, 4, s, 16] q, float[b, 4, t, 16] k, float[b, 4, t, 16] v"

OUT = "float[b, 4, s, 16] y"

KT = "kt = Transpose <perm = [0, 1, 3, 2]> (k)"

SCORES = f"{KT} s0 = MatMul (q, kt)"

NUMBERS = {"d": 0.25, "cap": 30.0, "low": -1e9, "zero": 0.0, "one": 1.0, "eps": 1e-9, "most": 3.4e38}


def found(body: str, inputs: str = HEADS, outputs: str = OUT, opset: int = 17) -> MatchResult:
    """What is found in a graph that may use the numbers above by name."""
    constants = " ".join(f"{n} = Constant <value = float {{{x:.9f}}}> ()" for n, x in NUMBERS.items())
    model = parse(f"g ({inputs}) => ({outputs}) {{ {constants} {body} }}", opset=opset)
    return matches(model, "AttentionHeads")


def attentions(body: str, inputs: str = HEADS, outputs: str = OUT, opset: int = 17) -> int:
    return found(body, inputs, outputs, opset).idioms.get("Attention", 0)


def plain(scores: str, out: str = "y = MatMul (p, v)") -> str:
    return f"{scores} p = Softmax <axis = -1> (s) {out}"
