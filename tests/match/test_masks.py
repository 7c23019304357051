"""Masks that constants alone make are made anew, of positions, in every region that reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper

import fusion_cli
from fusion_cli.plan import plan_region
from fusion_cli.planir.attention_sort import AttentionKind
from fusion_cli.planir.stages import Attention
from fusion_cli.types import Region
from tests.helpers.graphs import matches, parse

TOKENS = 300
"""Of more than 256 not even the comparison is folded."""
KEY = np.arange(TOKENS).reshape(1, 1, 1, -1)
QUERY = KEY.reshape(1, 1, -1, 1)
CAUSAL = "seen = LessOrEqual (key, query) mask = Where (seen, zero, low)"
WINDOW = """ahead = Sub (query, key) near = Less (ahead, width) before = LessOrEqual (key, query)
    seen = And (near, before) mask = Where (seen, zero, low)"""


def layer(n: int, x: str, y: str) -> str:
    """Heads that share keys, as torch.export repeats them; a guard behind the softmax."""
    return f"""
    e{n} = Expand ({x}k, groups) r{n} = Reshape (e{n}, heads) t{n} = Transpose <perm = [0, 1, 3, 2]> (r{n})
    s{n} = MatMul ({x}, t{n}) f{n} = Mul (s{n}, scale) m{n} = Add (f{n}, mask) p{n} = Softmax <axis = -1> (m{n})
    i{n} = IsNaN (p{n}) g{n} = Where (i{n}, zero, p{n}) {y} = MatMul (g{n}, r{n})"""


def model(mask: str, low: float = -65504.0, key: np.ndarray = KEY, query: np.ndarray = QUERY) -> onnx.ModelProto:
    """Two layers with one mask."""
    text = f"""g (float[1, 4, {TOKENS}, 16] x, float[1, 2, 1, {TOKENS}, 16] xk,
    float[1, 2, 1, {TOKENS}, 16] zk) => (float[1, 4, {TOKENS}, 16] y)
    <float zero = {{0.0}}, float scale = {{0.25}}, int64 width = {{70}}, int64[5] groups = {{1, 2, 2, {TOKENS}, 16}},
     int64[4] heads = {{1, 4, {TOKENS}, 16}}>
    {{
        {mask} {layer(1, "x", "z")} {layer(2, "z", "y")}
    }}"""
    proto = parse(text)
    numbers = {"key": key, "query": query, "low": np.float32(low)}
    proto.graph.initializer.extend(numpy_helper.from_array(np.asarray(a), n) for n, a in numbers.items())
    return proto


def attentions(proto: onnx.ModelProto) -> list[Region]:
    regions = matches(proto, "AttentionHeads").regions
    return [max((r for r in regions if r.outputs[0].name == end), key=lambda r: len(r.nodes)) for end in "zy"]


def kind(region: Region) -> tuple[int, AttentionKind]:
    """How many operands the attention has, and of which kind it is."""
    (stage,) = [s for s in plan_region(region).stages if isinstance(s, Attention)]
    return len(stage.operands), stage.kind


def test_a_shared_causal_mask_is_positions_in_every_layer() -> None:
    for low, added in ((-65504.0, True), (-np.inf, False)):
        regions = attentions(model(CAUSAL, low))
        assert len(regions) == 2
        for region in regions:
            assert [n.op_type for n in region.remade] == ["LessOrEqual", "Where"]
            assert kind(region) == (2, AttentionKind("none", True, "zero_nan", True, low, added))


@pytest.mark.parametrize(
    ("low", "query", "masking"),
    [
        (-65504.0, QUERY + 1, "additive"),  # positions from another place on
        (-100.0, QUERY, "additive"),  # a bias
    ],
)
def test_other_positions_and_numbers_are_a_mask_by_positions(low: float, query: np.ndarray, masking: str) -> None:
    for region in attentions(model(CAUSAL, low, query=query)):
        assert kind(region) == (2, AttentionKind(masking, False, "zero_nan", True))


def test_a_window_is_a_mask_by_positions() -> None:
    for region in attentions(model(WINDOW)):
        assert [n.op_type for n in region.remade] == ["Sub", "Less", "LessOrEqual", "And", "Where"]
        assert kind(region) == (2, AttentionKind("additive", False, "zero_nan", True))
    for region in attentions(model(WINDOW, -np.inf)):
        assert kind(region) == (2, AttentionKind("additive", True, "zero_nan", True))


@pytest.mark.parametrize("key", [KEY[..., ::-1].copy(), KEY * 2, KEY.astype(np.int64) % 256])
def test_a_mask_of_other_numbers_is_read(key: np.ndarray) -> None:
    for region in attentions(model(CAUSAL, key=key)):
        assert region.remade == ()
        assert kind(region)[0] == 3


@pytest.mark.parametrize("mask", [CAUSAL, WINDOW])
@pytest.mark.parametrize("low", [-65504.0, -np.inf])
def test_numbers_are_those_of_the_mask(mask: str, low: float, tmp_path: Path) -> None:
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    onnx.save(model(mask, low), path)
    report = fusion_cli.optimize(path, out, targets=["cpu"], force=True)
    assert report.verification is not None
    left = {n.op_type for n in ir.load(out).graph}
    assert left.isdisjoint({"Where", "LessOrEqual", "Softmax"})
    rng = np.random.default_rng(0)
    shapes = {"x": (1, 4, TOKENS, 16), **dict.fromkeys(("xk", "zk"), (1, 2, 1, TOKENS, 16))}
    feeds = {n: 3 * rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    (want,) = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    (got,) = fusion_cli.session(out, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
