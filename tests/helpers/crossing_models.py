"""Models with a fusion that pays at some sizes only: up to one token beside a cache, and from some tokens on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from fusion_cli.sessions import Array
from tests.helpers.graphs import parse

DECODER = """g (float[batch, sequence, 768] x, float[batch, past, 1] cache)
        => (float[batch, sequence, 3072] y, float[batch, past, 1] grown) {
    g1 = MatMul (x, gate) s = Sigmoid (g1) a = Mul (g1, s)
    u = MatMul (x, up) y = Mul (a, u)
    grown = Neg (cache)
}"""
"""One token is likely, as there is a cache: two products of one row pay, of more rows ONNX Runtime's are faster."""
ENCODER = """g (float[seq, 16, 2048] x) => (float[seq, 16, 384] y) {
    n = LayerNormalization (x, gamma, beta)
    m = MatMul (n, w)
    y = Add (m, c)
}"""
"""128 are likely, of 16 rows each."""
BESIDE = """g (float[seq, 16, 2048] x, float[seq, 16, 2048] z) => (float[seq, 16, 384] y, float[seq, 16, 2048] e) {
    p = Tanh (z) q = Sigmoid (p) r = Mul (q, z) e = Tanh (r)
    n = LayerNormalization (x, gamma, beta)
    m = MatMul (n, w)
    y = Add (m, c)
}"""
"""The same after a fusion that pays at all sizes."""
NARROW = ENCODER.replace("2048", "256").replace("384", "192")
"""The same, so small that an If is noticed."""
_NORM = {"gamma": (2048,), "beta": (2048,), "w": (2048, 384), "c": (384,)}
_WEIGHTS = {
    DECODER: {"gate": (768, 3072), "up": (768, 3072)},
    ENCODER: _NORM,
    BESIDE: _NORM,
    NARROW: {"gamma": (256,), "beta": (256,), "w": (256, 192), "c": (192,)},
}


def write(path: Path, text: str) -> Path:
    onnx.save(parse(text, _WEIGHTS[text]), path)
    return path


def feeds(text: str, tokens: int, batch: int = 1) -> dict[str, Array]:
    """Inputs of so many tokens."""
    rng = np.random.default_rng(tokens)
    if text == ENCODER:
        return {"x": rng.standard_normal((tokens, 16, 2048), np.float32)}
    return {"x": rng.standard_normal((batch, tokens, 768), np.float32), "cache": np.ones((batch, 3, 1), np.float32)}
