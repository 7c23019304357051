"""How a model is written down does not change what is recognised in it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from random import Random

import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.runs import default_folder
from fusion_cli.match import MatchResult, find_regions, load_rules
from tests.helpers import mutations
from tests.helpers.graphs import parse, simplified

CORPUS = default_folder()
EXPORTED = sorted(CORPUS.glob("*.onnx"))[:: max(len(list(CORPUS.glob("*.onnx"))) // 6, 1)] if CORPUS.is_dir() else []
EXAMPLES = int(os.environ.get("FUSION_PROPERTY_EXAMPLES", "8"))

NUMBERS = {
    "half": 0.5, "one": 1.0, "two": 2.0, "three": 3.0, "six": 6.0, "eps": 1e-5, "root2": 1.41421356, "k": 0.044715,
    "root": 0.79788456, "k1702": 1.702, "quarter": 0.25, "low": -1e9, "cap": 30.0,
}  # fmt: skip
INTEGERS = {
    "heads": [0, 0, 4, 16], "merged": [0, 0, 64], "i0": [0], "i8": [8], "i16": [16], "last": [-1], "groups": [0, 4, -1],
    "channels": [0, 8, 6, 6],
}  # fmt: skip
RMS = "{o}2 = Mul ({x}, {x}) {o}m = ReduceMean <axes = [-1]> ({o}2) {o}e = Add ({o}m, eps) {o}s = Sqrt ({o}e) "
RMS += "{o}n = Div ({x}, {o}s) {o} = Mul (gamma, {o}n) "
LAYER = "{o}m = ReduceMean <axes = [-1]> ({x}) {o}d = Sub ({x}, {o}m) {o}p = Pow ({o}d, two) "
LAYER += "{o}v = ReduceMean <axes = [-1]> ({o}p) {o}e = Add ({o}v, eps) {o}s = Sqrt ({o}e) {o}n = Div ({o}d, {o}s) "
LAYER += "{o}g = Mul ({o}n, gamma) {o} = Add ({o}g, beta) "
HEAD = "{o}r = Reshape ({x}, heads) {o} = Transpose <perm = [0, 2, 1, 3]> ({o}r) "
TURN = "{o}a = Slice ({x}, i0, i8, last) {o}b = Slice ({x}, i8, i16, last) {o}nb = Neg ({o}b) "
TURN += "{o}h = Concat <axis = -1> ({o}nb, {o}a) {o}c = Mul ({x}, cos) {o}t = Mul ({o}h, sin) {o} = Add ({o}c, {o}t) "
ATTEND = "kt = Transpose <perm = [0, 1, 3, 2]> (kh) sc = MatMul (qh, kt) sd = Mul (sc, quarter) {mask} "
ATTEND += "pr = Softmax <axis = -1> (sm) at = MatMul (pr, vh) am = Transpose <perm = [0, 2, 1, 3]> (at) "
ATTEND += "ar = Reshape (am, merged) ao = MatMul (ar, wo) "
GELU = "{o}i = Div ({x}, root2) {o}e = Erf ({o}i) {o}a = Add ({o}e, one) {o}h = Mul ({x}, half) {o} = Mul ({o}h, {o}a) "
GELU_TANH = "{o}c = Pow ({x}, three) {o}k = Mul ({o}c, k) {o}i = Add ({x}, {o}k) {o}j = Mul ({o}i, root) "
GELU_TANH += "{o}t = Tanh ({o}j) {o}a = Add ({o}t, one) {o}h = Mul ({x}, {o}a) {o} = Mul ({o}h, half) "
GATES = {
    "a": "g1 = Sigmoid (ga) gs = Mul (ga, g1) ",
    "b": "gs = Relu (ga) ",
    "c": "gs = Sigmoid (ga) ",
    "d": GELU.format(o="gs", x="ga"),
    "e": "gs = Identity (ga) ",
}
GATED = "ga = MatMul (x, wa) ub = MatMul (x, wb) {gate} y = Mul (gs, ub)"

DECODER = (
    RMS.format(o="n1", x="x")
    + "q = MatMul (n1, wq) k1 = MatMul (n1, wk) v = MatMul (n1, wv) "
    + HEAD.format(o="qt", x="q") + HEAD.format(o="kk", x="k1") + HEAD.format(o="vh", x="v")
    + TURN.format(o="qh", x="qt") + TURN.format(o="kh", x="kk")
    + ATTEND.format(mask="sm = Where (mask, sd, low)")
    + "r = Add (ao, x) " + RMS.format(o="n2", x="r")
    + "ga = MatMul (n2, wa) ub = MatMul (n2, wb) g1 = Sigmoid (ga) gs = Mul (ga, g1) gu = Mul (gs, ub) "
    "dn = MatMul (gu, wd) y = Add (r, dn)"
)  # fmt: skip
ENCODER = (
    "packed = MatMul (x, wp) pb = Add (packed, bp) q, k1, v = Split <axis = -1> (pb) "
    + HEAD.format(o="qh", x="q") + HEAD.format(o="kh", x="k1") + HEAD.format(o="vh", x="v")
    + ATTEND.format(mask="sm = Add (sd, bias)")
    + "r1 = Add (ao, x) " + LAYER.format(o="n1", x="r1")
    + "f1 = MatMul (n1, wa) fb = Add (ba, f1) " + GELU.format(o="fa", x="fb")
    + "f2 = MatMul (fa, wd) fc = Add (f2, gamma) r2 = Add (n1, fc) " + LAYER.format(o="y", x="r2")
)  # fmt: skip
ACTIVATIONS = (
    GELU_TANH.format(o="a", x="x") + GELU.format(o="b", x="a")
    + "c1 = Mul (b, k1702) c2 = Sigmoid (c1) c = Mul (b, c2) d1 = Softplus (c) d2 = Tanh (d1) d = Mul (c, d2) "
    "e1 = Add (d, three) e2 = Relu (e1) e3 = Min (e2, six) e4 = Mul (d, e3) e = Div (e4, six) "
    "f1 = Exp (e) f2 = Add (f1, one) f = Log (f2) g1 = Sigmoid (f) g = Mul (f, g1) "
    "h1 = Div (g, cap) h2 = Tanh (h1) y = Mul (h2, cap)"
)  # fmt: skip
CONVOLUTIONS = (
    "c1 = Conv <pads = [1, 1, 1, 1]> (x, w1, b1) g0 = Reshape (c1, groups) g1 = InstanceNormalization (g0, sg, sb) "
    "g2 = Reshape (g1, channels) g3 = Mul (g2, cg) g4 = Add (g3, cb) s1 = Sigmoid (g4) s = Mul (g4, s1) "
    "c2 = Conv <pads = [1, 1, 1, 1]> (s, w2, b1) n = InstanceNormalization (c2, ig, ib) r = Relu (n) y = Add (r, x)"
)  # fmt: skip
CHANNELS = (
    "cm = ReduceMean <axes = [1]> (x) cd = Sub (x, cm) cp = Pow (cd, two) cv = ReduceMean <axes = [1]> (cp) "
    "ce = Add (cv, eps) cs = Sqrt (ce) cn = Div (cd, cs) cg2 = Mul (cn, cg) z = Add (cg2, cb) "
    "t = Transpose <perm = [0, 2, 3, 1]> (z) " + LAYER.format(o="n", x="t") + "u = Transpose <perm = [0, 3, 1, 2]> (n) "
    "c = Conv (u, w1, b1) y = Relu (c)"
)

SQUARE = ("wq", "wk", "wv", "wo", "wa", "wb", "wd")
WEIGHTS = {**dict.fromkeys(SQUARE, (64, 64)), "wp": (64, 192), "bp": (192,), "gamma": (64,), "beta": (64,), "ba": (64,)}
SEQUENCE = "g (float[batch, seq, 64] x{more}) => (float[batch, seq, 64] y) {{ {body} }}"
IMAGE = "g (float[batch, 8, 6, 6] x) => (float[batch, 8, 6, 6] y) {{ {body} }}"
IMAGE_WEIGHTS = {
    "w1": (8, 8, 3, 3), "w2": (8, 8, 3, 3), "b1": (8,), "sg": (4,), "sb": (4,), "cg": (8, 1, 1), "cb": (8, 1, 1),
    "ig": (8,), "ib": (8,),
}  # fmt: skip
CHANNEL_WEIGHTS = {"gamma": (8,), "beta": (8,), "w1": (8, 8, 1, 1), "b1": (8,), "cg": (8, 1, 1), "cb": (8, 1, 1)}
IDIOMS = {
    "Attention", "Bilinear", "ChannelNorm", "FeedForward", "GEGLU", "GLU", "GeluErf", "GeluTanh", "GroupNorm",
    "HardSwish", "InstanceNorm", "LayerNorm", "Linear", "Mish", "PackedQKV", "QuickGelu", "RMSNorm", "ReGLU",
    "RotaryEmbedding", "Silu", "Softcap", "Softplus", "SwiGLU",
}  # fmt: skip
ROPE = ", float[1, 1, seq, 16] cos, float[1, 1, seq, 16] sin, bool[1, 1, seq, seq] mask"
SEEDS: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "decoder": (SEQUENCE.format(more=ROPE, body=DECODER), WEIGHTS),
    "encoder": (SEQUENCE.format(more=", float[batch, 1, 1, seq] bias", body=ENCODER), WEIGHTS),
    "activations": (SEQUENCE.format(more="", body=ACTIVATIONS), {}),
    **{f"gate {n}": (SEQUENCE.format(more="", body=GATED.format(gate=g)), WEIGHTS) for n, g in GATES.items()},
    "convolutions": (IMAGE.format(body=CONVOLUTIONS), IMAGE_WEIGHTS),
    "channels": (IMAGE.format(body=CHANNELS), CHANNEL_WEIGHTS),
}


@cache
def seed(name: str) -> onnx.ModelProto:
    if name not in SEEDS:
        return onnx.load(CORPUS / name)
    text, weights = SEEDS[name]
    constants = [f"{n} = Constant <value = float {{{x!r}}}> ()" for n, x in NUMBERS.items()]
    constants += [
        f"{n} = Constant <value = int64[{len(x)}] {{{', '.join(map(str, x))}}}> ()" for n, x in INTEGERS.items()
    ]
    body = text.replace("{ ", "{ " + " ".join(constants) + " ", 1)
    model = parse(body, {n: s for n, s in weights.items() if f"{n})" in text or f"{n}," in text}, opset=13)
    read = {n for node in model.graph.node for n in node.input}
    unused = [n for n in model.graph.node if not read & set(n.output) and n.op_type == "Constant"]
    for node in unused:
        model.graph.node.remove(node)
    return model


@cache
def rules():  # type: ignore[no-untyped-def]
    return load_rules()


def found(model: onnx.ModelProto) -> MatchResult:
    return find_regions(simplified(model), rules())


@cache
def expected(name: str) -> tuple[dict[str, int], Counter[tuple[str, tuple[str, ...]]]]:
    result = found(seed(name))
    return dict(result.idioms), proposed(result)


def proposed(result: MatchResult) -> Counter[tuple[str, tuple[str, ...]]]:
    """The regions by rule and operators, whatever their names and order."""
    return Counter((r.rule, tuple(sorted(n.op_type for n in r.nodes))) for r in result.regions)


def changed(name: str, rng: Random, *steps: Callable[[onnx.ModelProto, Random], None]) -> MatchResult:
    model = onnx.ModelProto()
    model.CopyFrom(seed(name))
    for step in steps:
        step(model, rng)
    onnx.checker.check_model(model)
    return found(model)


NAMES = st.sampled_from([*SEEDS, *(p.name for p in EXPORTED)])
RANDOM = st.integers(0, 2**32 - 1).map(Random)
bounded = settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


def test_the_seeds_hold_every_idiom() -> None:
    counts: Counter[str] = Counter()
    for name in SEEDS:
        counts.update(expected(name)[0])
    assert set(counts) >= IDIOMS


@bounded
@given(NAMES, RANDOM)
def test_names(name: str, rng: Random) -> None:
    result = changed(name, rng, mutations.rename)
    assert (dict(result.idioms), proposed(result)) == expected(name)


@bounded
@given(NAMES, RANDOM)
def test_order_of_nodes(name: str, rng: Random) -> None:
    result = changed(name, rng, mutations.reorder)
    assert (dict(result.idioms), proposed(result)) == expected(name)


@pytest.mark.parametrize(
    "step",
    [mutations.swap_operands, mutations.insert_no_ops, mutations.rewrite_constants, mutations.add_outputs],
    ids=lambda f: f.__name__,
)
@bounded
@given(name=NAMES, rng=RANDOM)
def test_recognition(step: Callable[[onnx.ModelProto, Random], None], name: str, rng: Random) -> None:
    assert dict(changed(name, rng, step).idioms) == expected(name)[0]


@bounded
@given(NAMES, RANDOM)
def test_everything_at_once(name: str, rng: Random) -> None:
    steps = [
        mutations.insert_no_ops, mutations.rewrite_constants, mutations.swap_operands, mutations.reorder,
        mutations.rename,
    ]  # fmt: skip
    assert dict(changed(name, rng, *steps).idioms) == expected(name)[0]
