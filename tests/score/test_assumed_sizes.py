"""Which sizes times are predicted at."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from fusion_cli.pipeline import explain
from fusion_cli.types import Options
from tests.helpers.graphs import parse


def assumed(text: str, folder: Path) -> Mapping[str, int]:
    onnx.save(parse(text), folder / "m.onnx")
    return explain(folder / "m.onnx", Options(targets=("portable",)))[0].assumed


def test_what_becomes_constant_at_the_likeliest_sizes_makes_others_no_better(tmp_path: Path) -> None:
    text = """g (float[batch, 3, height, width] x) => (float[batch, 3, 1, 1] y)
        <float many = {16.0}, int64 zero = {0}, int64 one = {1}> {
            w = Shape <start = 3, end = 4> (x) wide = Squeeze (w) f = Cast <to = 1> (wide) m = Mul (f, many)
            n = Cast <to = 7> (m) r = Range (zero, n, one) c = Cast <to = 1> (r) z = Relu (c)
            s = ReduceMax <keepdims = 0> (z) p = GlobalAveragePool (x) y = Add (p, s)
        }"""
    assert assumed(text, tmp_path) == {"batch": 1, "height": 224, "width": 224}
