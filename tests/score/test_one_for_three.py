"""A large fusion that is better than the smaller ones that stand for it, and that the score says so."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from fusion_cli.analyse import Analysis, analyse
from fusion_cli.clock import Clock
from fusion_cli.types import Options

BLOCK = """block (float16[1, 28, s, 128] q, float16[1, 28, s, 128] k, float16[1, 28, s, 128] v, float16[1, s, 3584] x)
    => (float16[1, s, 3584] y) {
    rows = Constant <value_ints = [0, 0, 3584]> ()
    a = Attention (q, k, v) t = Transpose <perm = [0, 2, 1, 3]> (a) r = Reshape (t, rows)
    p = MatMul (r, o) h = Add (x, p)
    c = Cast <to = 1> (h) two = Constant <value_float = 2.0> () sq = Pow (c, two)
    axes = Constant <value_ints = [-1]> () m = ReduceMean (sq, axes)
    eps = Constant <value_float = 0.000001> () e = Add (m, eps) root = Sqrt (e) inv = Reciprocal (root)
    scaled = Mul (c, inv) half = Cast <to = 10> (scaled) n = Mul (half, scale)
    g = MatMul (n, gate) sg = Sigmoid (g) sl = Mul (g, sg) u = MatMul (n, up) f = Mul (sl, u)
    d = MatMul (f, down) y = Add (h, d)
}"""
WEIGHTS = {"o": (3584, 3584), "scale": (3584,), "gate": (3584, 18944), "up": (3584, 18944), "down": (18944, 3584)}
SILU = """silu (float16[1, 2048, 4096] x) => (float16[1, 2048, 16384] y) {
    p = MatMul (x, w) z = Add (p, b) s = Sigmoid (z) y = Mul (z, s)
}"""
HEADS = """heads (float16[1, s, 768] x) => (float16[1, s, 768] q, float16[1, s, 768] k, float16[1, s, 768] v) {
    q = MatMul (x, a) k = MatMul (x, b) v = MatMul (x, c)
}"""


def test_the_product_before_a_norm_writes_no_more_for_it_than_three_operators_would(tmp_path: Path) -> None:
    """At 2048 tokens the sum in float32 and its squares, written and read, would cost more than one operator saves."""
    rules = ("AttentionFFN", "AttentionProjection", "ResidualNorm", "GatedLinear")
    found = analysed(BLOCK, WEIGHTS, tmp_path, rules=rules, dims={"s": (2048, 2048)})
    assert chosen(found) == ["AttentionFFN"]
    gains = {rule: most_saved(found, rule) for rule in rules}
    assert gains.pop("AttentionFFN") > sum(gains.values()) > max(gains.values())


def test_a_large_product_ends_with_its_activation(tmp_path: Path) -> None:
    """On an H200 it takes 365 us, the vendor's bare product and a pass 359 and 32."""
    rules = ("LinearActivation", "BiasedLinear", "PointwiseRegion")
    found = analysed(SILU, {"w": (4096, 16384), "b": (16384,)}, tmp_path, rules=rules)
    assert chosen(found) == ["LinearActivation"]
    assert min(most_saved(found, rule) for rule in rules) > 0


@pytest.mark.parametrize(("rows", "launches"), [(128, 1), (2048, 1), (32, 3)])
def test_products_side_by_side_are_one_launch(rows: int, launches: int, tmp_path: Path) -> None:
    """From 64 rows on, as Hopper's kernel takes them."""
    weights = dict.fromkeys("abc", (768, 768))
    found = analysed(HEADS, weights, tmp_path, rules=("HorizontalLinear",), dims={"s": (rows, rows)}, force=True)
    (score,) = (c.scores["sm_90a"] for c in found.candidates)
    assert score.launches_after == launches


def chosen(found: Analysis) -> list[str]:
    return [c.region.rule for c in found.chosen]


def most_saved(found: Analysis, rule: str) -> float:
    """By a fusion of the rule on an H200."""
    return max(c.scores["sm_90a"].gain_us for c in found.candidates if c.region.rule == rule)


def analysed(text: str, weights: Mapping[str, tuple[int, ...]], folder: Path, **options: Any) -> Analysis:
    """A graph with constant weights, for an H200."""
    graph = onnx.parser.parse_graph(text)
    start = 0
    for name, shape in weights.items():
        if len(shape) == 1:
            graph.initializer.append(onnx.numpy_helper.from_array(np.ones(shape, np.float16), name))
            continue
        tensor = onnx.TensorProto(name=name, dims=shape, data_type=onnx.TensorProto.FLOAT16, data_location="EXTERNAL")
        size = 2 * math.prod(shape)
        for key, value in {"location": "weights", "offset": start, "length": size}.items():
            tensor.external_data.add(key=key, value=str(value))
        graph.initializer.append(tensor)
        start += size
    (folder / "weights").touch()
    os.truncate(folder / "weights", start)  # zeros that take no room on the disk
    opset = [onnx.helper.make_opsetid("", 23)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=11), folder / "model.onnx")
    asked = Options(targets=("sm_90a",), **options)
    return analyse(folder / "model.onnx", asked, Clock(asked))
