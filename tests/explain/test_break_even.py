"""At which sizes a fusion that does not pay would: what is said is where the score itself turns."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest

import fusion_cli
from examples import weights
from fusion_cli.types import Rejection
from tests.helpers.cli_helpers import WEIGHTS, write_model
from tests.helpers.graphs import parse


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("small") / "model.onnx")


@pytest.fixture(scope="module")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weights.restore("transformer_ts17", tmp_path_factory.mktemp("layer") / "model.onnx")


def turned_down(model: Path, rule: str, nodes: tuple[str, ...] = (), **sizes: int) -> Rejection | None:
    """Why the rule's region, the costliest or that of these nodes, does not pay."""
    report = fusion_cli.optimize(model, targets="cpu", dims=sizes)
    return next((r for r in report.rejected if (r.rule, r.code, nodes or r.nodes) == (rule, "FUS301", r.nodes)), None)


@pytest.mark.parametrize("dim", ["batch", "seq"])
def test_it_pays_from_the_size_that_is_named_on(small: Path, dim: str) -> None:
    sizes = {"batch": 2, "seq": 16}
    reason = turned_down(small, "FeedForwardBlock", **sizes)
    assert reason is not None
    found = re.search(rf"pays .*\bfrom {dim}=(\d+)", reason.found)
    assert found is not None, reason.found
    at = lambda size: turned_down(small, "FeedForwardBlock", reason.nodes, **{**sizes, dim: size})  # noqa: E731
    assert at(int(found[1])) is None
    assert at(int(found[1]) - 1) is not None


def test_it_pays_up_to_the_size_that_is_named(layer: Path) -> None:
    reason = turned_down(layer, "AttentionHeads", batch=1, seq=128)
    assert reason is not None
    assert "larger sizes" not in reason.hint
    assert "the sizes that are named pay" in reason.hint
    found = re.search(r"pays up to seq=(\d+)", reason.found)
    assert found is not None, reason.found
    assert turned_down(layer, "AttentionHeads", reason.nodes, batch=1, seq=int(found[1])) is None
    assert turned_down(layer, "AttentionHeads", reason.nodes, batch=1, seq=int(found[1]) + 1) is not None


def test_where_no_size_helps_none_is_advised(layer: Path) -> None:
    reason = turned_down(layer, "HorizontalLinear", batch=8, seq=128)
    assert reason is not None
    assert "pays at no size of batch or seq up to 65536" in reason.found
    assert "larger sizes" not in reason.hint
    assert "--force" in reason.hint


def test_fixed_sizes_have_no_other(tmp_path: Path) -> None:
    fixed = onnx.load(write_model(tmp_path / "m.onnx"))
    for value in (*fixed.graph.input, *fixed.graph.output):
        for dim, size in zip(value.type.tensor_type.shape.dim, (1, 4, 32), strict=True):
            dim.dim_value = size
    onnx.save(fixed, tmp_path / "m.onnx")
    reason = turned_down(tmp_path / "m.onnx", "FeedForwardBlock")
    assert reason is not None
    assert "pays" not in reason.found


def test_sizes_inside_that_only_numbers_tell_grow_with_those_of_the_inputs(tmp_path: Path) -> None:
    text = """g (float[n, 64] x) => (float[m, 32] y) {
        shape = Shape (x)
        zero = Constant <value = int64[1] {0}> () two = Constant <value = float[1] {2.0}> ()
        width = Constant <value = int64[1] {32}> ()
        n = Gather (shape, zero) f = Cast <to = 1> (n) g = Mul (f, two) h = Floor (g) m = Cast <to = 7> (h)
        rows = Concat <axis = 0> (m, width)
        r = Reshape (x, rows) l = LayerNormalization (r, gamma, beta) a = MatMul (l, w1)
        b = Add (a, b1) s = Sigmoid (b) c = Mul (b, s)
        o = MatMul (c, w2) y = Add (o, r)
    }"""
    onnx.save(parse(text, WEIGHTS), tmp_path / "m.onnx")
    reason = turned_down(tmp_path / "m.onnx", "FeedForwardBlock", n=16)
    assert reason is not None
    found = re.search(r"pays from n=(\d+)", reason.found)
    assert found is not None, reason.found
    assert turned_down(tmp_path / "m.onnx", "FeedForwardBlock", reason.nodes, n=int(found[1])) is None
    assert turned_down(tmp_path / "m.onnx", "FeedForwardBlock", reason.nodes, n=int(found[1]) - 1) is not None
