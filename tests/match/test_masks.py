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
from fusion_cli.graph.index import GraphIndex
from fusion_cli.match.make_region import make_region
from fusion_cli.plan import plan_region
from fusion_cli.planir.attention_sort import AttentionKind
from fusion_cli.planir.stages import Attention
from fusion_cli.types import Region
from tests.helpers.graphs import matches, parse
from tests.helpers.region_tools import parsed

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


def test_positions_of_every_sequence_of_a_batch_are_positions() -> None:
    """As torch.export writes them for several sequences: each has its own row of the same."""
    batch = np.broadcast_to
    for region in attentions(model(CAUSAL, key=batch(KEY, (2, 1, 1, TOKENS)), query=batch(QUERY, (2, 1, TOKENS, 1)))):
        assert [n.op_type for n in region.remade] == ["LessOrEqual", "Where"]
        operands, found = kind(region)
        assert (operands, found.masking, found.causal, found.later) == (2, "none", True, -65504.0)


def test_positions_that_differ_by_sequence_are_read() -> None:
    key = np.concatenate([KEY, KEY + 1])
    for region in attentions(model(CAUSAL, key=key)):
        assert region.remade == ()


INTS = "int64 none = {0}, int64 one = {1}, int64 two = {2}, int64[3] ahead = {0, 1, 2}, int64[3] around = {0, 1, 3}"
SEEN = """shape = Shape (x) n = Gather (shape, two) places = Range ({first}, {end}, one)
    key = Unsqueeze (places, ahead) query = Unsqueeze (places, around)
    seen = LessOrEqual (key, query) mask = Where (seen, zero, low)"""
SPREAD = SEEN.replace(
    "key = Unsqueeze (places, ahead)",
    """batch = Slice (shape, axis, ones) sizes = Concat <axis = 0> (batch, ones) row = Unsqueeze (places, axis)
    rows = Expand (row, sizes) key = Unsqueeze (rows, between)""",
)


PACKED = SEEN.replace(
    "mask = Where (seen",
    """end = Unsqueeze (n, axis) next = Add (n, one) last = Unsqueeze (next, axis)
    head = Slice (places, axis, ones, axis) ahead_of = Sub (head, one) longer = Concat <axis = 0> (ahead_of, places)
    later = Slice (longer, ones, last, axis) earlier = Slice (longer, axis, end, axis)
    step = Sub (later, earlier) goes = Equal (step, one) begins = Not (goes) counted = Cast <to = 7> (begins)
    sums = CumSum (counted, none) each = Gather (sums, places) rows = Unsqueeze (each, around)
    columns = Unsqueeze (each, ahead) same = Equal (rows, columns) both = And (seen, same) mask = Where (both""",
)
"""As transformers asks whether several sequences are packed in one."""


def open_model(mask: str = SEEN, first: str = "none", end: str = "n", keys: str = "n") -> onnx.ModelProto:
    """An attention to as many keys as there are queries, of which the number is open."""
    made = mask.format(first=first, end=end)
    text = f"""g (float[b, 2, n, 16] x, float[b, 2, {keys}, 16] k, int64 m) => (float[b, 2, n, 16] y)
    <{INTS}, int64[1] axis = {{0}}, int64[1] ones = {{1}}, int64[2] between = {{1, 2}}, float zero = {{0.0}},
     float low = {{-65504.0}}, float scale = {{0.25}}>
    {{
        {made} t = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (x, t) f = Mul (s, scale)
        a = Add (f, mask) p = Softmax <axis = -1> (a) y = MatMul (p, k)
    }}"""
    return parse(text)


def whole(proto: onnx.ModelProto) -> Region:
    return max(matches(proto, "AttentionHeads").regions, key=lambda r: len(r.nodes))


def test_positions_of_an_open_number_are_not_read() -> None:
    """They come from the host, where shapes are, and the kernel asks for their sizes alone."""
    region = whole(open_model())
    assert [(v.name, *of) for v, *of in region.positions] == [("key", -1, True), ("query", -2, True)]
    plan = plan_region(region)
    slots = [i for i, v in enumerate(region.inputs) if v.name in ("key", "query")]
    assert [plan.inputs[i] for i in slots] == [-1, -1]
    assert list(plan.host_inputs) == slots
    assert kind(region) == (2, AttentionKind("none", True, later=-65504.0, added=True))


def test_positions_that_are_spread_over_a_batch_are_not_read_either() -> None:
    region = whole(open_model(SPREAD))
    assert [(v.name, *of) for v, *of in region.positions] == [("key", -1, True), ("query", -2, True)]
    assert kind(region)[1].causal


@pytest.mark.parametrize(
    "changes",
    [{"first": "one", "end": "m"}, {"end": "m"}, {"keys": "l"}],
    ids=["from one on", "of a number that is given", "other keys"],
)
def test_what_may_be_other_positions_is_read(changes: dict[str, str]) -> None:
    """A mask of which nobody knows that it is as large as the scores could be of one key for all."""
    region = whole(open_model(**changes))
    assert region.positions == ()
    assert not kind(region)[1].causal


def test_positions_that_more_than_masks_are_made_of_are_read() -> None:
    body = SEEN.format(first="none", end="n").partition("mask =")[0] + "m = Mul (x, two) y = Where (seen, m, key)"
    text = f"g (int64[b, 2, n, n] x) => (int64[b, 2, n, n] y) <{INTS}> {{ {body} }}"
    index = GraphIndex(parsed(text).graph)
    region = make_region(index, [n for n in index.nodes if n.op_type in ("Mul", "Where")], "Rule", "auto", 1)
    assert [n.op_type for n in region.remade] == ["LessOrEqual"]
    assert [v.name for v, *_ in region.positions] == ["query"]
    assert "key" in {v.name for v in region.inputs}


@pytest.mark.parametrize("mask", [SEEN, SPREAD, PACKED], ids=["one row", "a row for each sequence", "packed"])
@pytest.mark.parametrize(("batch", "length"), [(1, 1), (2, 2), (1, 33), (3, 70), (2, 0)])
def test_open_numbers_are_those_of_the_mask(mask: str, batch: int, length: int, tmp_path: Path) -> None:
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    onnx.save(open_model(mask), path)
    fusion_cli.optimize(path, out, targets=["cpu"], force=True)
    left = {n.op_type for n in ir.load(out).graph}
    assert left.isdisjoint({"Where", "LessOrEqual", "Softmax", "CumSum", "Equal"})
    rng = np.random.default_rng(0)
    feeds = {n: 3 * rng.standard_normal((batch, 2, length, 16)).astype(np.float32) for n in ("x", "k")} | {
        "m": np.array(1)
    }
    (want,) = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)
    session = fusion_cli.session(out, providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {i.name: feeds[i.name] for i in session.get_inputs()})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
