"""The models whose plans are kept as golden files: every kind of stage, and every form that the planner knows."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx_ir as ir

from examples import weights
from fusion_cli.match import find_regions, load_rules
from fusion_cli.plan import plan_region
from fusion_cli.planir.printer import show
from tests.goldens import Goldens
from tests.helpers import slice_graphs
from tests.helpers.graphs import simplified_file
from tests.helpers.region_tools import parsed, whole

_QKV = "float[B, 4, S, 16] q, float[B, 4, T, 16] k, float[B, 4, T, 16] v"
_SCORES = """kt = Transpose <perm = [0, 1, 3, 2]> (k) s0 = MatMul (q, kt) d = Constant <value = float {0.25}> ()
          s = Mul (s0, d)"""
_SPLIT = "{0}1 = Reshape ({0}, heads) {0}2 = Transpose <perm = [0, 2, 1, 3]> ({0}1)"

GRAPHS = {
    "pointwise": """
        (float16[B, S, 8] x, float16[8] bias, float16[8, B, S] z, bool[S, 1] mask)
        => (float16[B, S, 8] y, float[B, S, 8] w)
        { t = Transpose <perm = [1, 2, 0]> (z) a = Add (x, bias) b = Mul (a, t) w = Cast <to = 1> (b)
          g = Sigmoid (a) y = Where (mask, g, b) }""",
    "integers": """
        (int64[B, S] x, int64[B, S] y) => (bool[B, S] z, float[B, S] w)
        { two = Constant <value = int64 {2}> () h = Div (x, two) m = Mod (h, y) z = Equal (m, y)
          w = Cast <to = 1> (z) }""",
    "layer_norm": """
        (float[B, S, 32] x, float[32] g, float[32] b) => (float[B, S, 32] y)
        { y = LayerNormalization <axis = -1> (x, g, b) }""",
    "rms_norm_float16": """
        (float16[B, S, 32] x, float16[32] g) => (float16[B, S, 32] y)
        { e = Constant <value = float {1e-6}> () last = Constant <value = int64[1] {-1}> () c = Cast <to = 1> (x)
          q = Mul (c, c) m = ReduceMean (q, last) a = Add (m, e) s = Sqrt (a) n = Div (c, s) h = Cast <to = 10> (n)
          y = Mul (h, g) }""",
    "residual_norm_both_outputs": """
        (float[B, S, 32] x, float[B, S, 32] r, float[32] g, float[32] b) => (float[B, S, 32] y, float[B, S, 32] t)
        { t = Add (x, r) y = LayerNormalization <axis = -1> (t, g, b) }""",
    "group_norm": """
        (float[B, 8, H, W] x, float[8] g, float[8] b) => (float[B, 8, H, W] y)
        { y = GroupNormalization <num_groups = 2> (x, g, b) }""",
    "softmax_masked": """
        (float[B, H, S, T] x, float[B, 1, 1, T] mask) => (float[B, H, S, T] y)
        { s = Add (x, mask) y = Softmax <axis = -1> (s) }""",
    "softmax_over_columns": """
        (float[B, S, T] x) => (float[B, S, T] y) { y = Softmax <axis = 1> (x) }""",
    "reductions": """
        (float[B, S, T] x) => (float[B] y, float[B, S, 1] z)
        { axes = Constant <value = int64[2] {1, 2}> () last = Constant <value = int64[1] {2}> ()
          y = ReduceMax <keepdims = 0> (x, axes) z = ReduceSum (x, last) }""",
    "linear_epilogue": """
        (float[B, S, 32] x, float[32, 64] w, float[64] b, float[B, S, 64] r) => (float[B, S, 64] y)
        { m = MatMul (x, w) a = Add (m, b) g = Gelu (a) y = Add (g, r) }""",
    "linear_transposed_alpha": """
        (float[K, M] x, float[N, K] w, float[N] b) => (float[M, N] y)
        { y = Gemm <transA = 1, transB = 1, alpha = 0.5, beta = 2.0> (x, w, b) }""",
    "linear_norm_between": """
        (float[B, S, 32] x, float[32, 32] w, float[32] g, float[32, 32] v) => (float[B, S, 32] y)
        { m = MatMul (x, w) n = RMSNormalization <axis = -1> (m, g) y = MatMul (n, v) }""",
    "linear_horizontal": """
        (float[B, S, 32] x, float[32] g, float[32, 32] wq, float[32, 32] wk, float[32, 32] wv, float[32] b)
        => (float[B, S, 32] q, float[B, S, 32] k, float[B, S, 32] v)
        { n = LayerNormalization <axis = -1> (x, g) q0 = MatMul (n, wq) q = Add (q0, b) k = MatMul (n, wk)
          v0 = MatMul (n, wv) v = Add (v0, b) }""",
    "linear_float16": """
        (float16[B, S, 64] x, float16[64, 128] w, float16[128] b) => (float16[B, S, 128] y)
        { m = MatMul (x, w) a = Add (m, b) y = Relu (a) }""",
    "linear_pair": """
        (float[B, S, 32] x, float[32, 32] w, float[32, 32] v, float[32] b, float[32] c)
        => (float[B, S, 32] y, float[B, S, 32] z)
        { m = MatMul (x, w) y = Add (m, b) n = MatMul (x, v) z = Add (n, c) }""",
    "gated_by_two_products": """
        (float[B, S, 32] x, float[32, 64] wg, float[32, 64] wu, float[64, 32] wd) => (float[B, S, 32] y)
        { g = MatMul (x, wg) u = MatMul (x, wu) s = Sigmoid (g) a = Mul (g, s) h = Mul (a, u) y = MatMul (h, wd) }""",
    "gated_float16": """
        (float16[B, S, 64] x, float16[64, 128] wg, float16[64, 128] wu) => (float16[B, S, 128] y)
        { g = MatMul (x, wg) u = MatMul (x, wu) s = Sigmoid (g) a = Mul (g, s) y = Mul (a, u) }""",
    "einsum": """
        (float[B, S, H, 16] q, float[B, T, H, 16] k) => (float[B, H, S, T] y)
        { y = Einsum <equation = "bshd,bthd->bhst"> (q, k) }""",
    "attention_plain": f"""
        ({_QKV}) => (float[B, 4, S, 16] y) {{ {_SCORES} p = Softmax (s) y = MatMul (p, v) }}""",
    "attention_causal": """
        (float[B, 4, S, 16] q, float[B, 4, T, 16] k, float[B, 4, T, 16] v) => (float[B, 4, S, 16] y)
        { y = Attention <is_causal = 1> (q, k, v) }""",
    "attention_masked": f"""
        ({_QKV}, bool[B, 1, S, T] mask) => (float[B, 4, S, 16] y)
        {{ {_SCORES} low = Constant <value = float {{-inf}}> () zero = Constant <value = float {{0}}> ()
          c = Where (mask, s, low) p = Softmax (c) n = IsNaN (p) w = Where (n, zero, p) y = MatMul (w, v) }}""",
    "attention_float16": """
        (float16[B, 4, S, 64] q, float16[B, 4, T, 64] k, float16[B, 4, T, 64] v) => (float16[B, 4, S, 64] y)
        { y = Attention <is_causal = 1> (q, k, v) }""",
    "attention_biased": f"""
        ({_QKV}, float[1, 4, S, T] bias) => (float[B, 4, S, 16] y)
        {{ {_SCORES} c = Add (s, bias) p = Softmax (c) y = MatMul (p, v) }}""",
    "attention_of_which_the_scores_are_stored": f"""
        ({_QKV}) => (float[B, 4, S, 16] y, float[B, 4, S, T] p) {{ {_SCORES} p = Softmax (s) y = MatMul (p, v) }}""",
    "attention_grouped": """
        (float[B, 8, S, 16] q, float[B, 2, T, 16] k, float[B, 2, T, 16] v) => (float[B, 8, S, 16] y)
        { y = Attention (q, k, v) }""",
    "attention_heads_split_and_merged": f"""
        (float[B, S, 64] q, float[B, T, 64] k, float[B, T, 64] v) => (float[B, S, 64] y)
        {{ heads = Constant <value = int64[4] {{0, 0, 4, 16}}> () back = Constant <value = int64[3] {{0, 0, 64}}> ()
          {_SPLIT.format("q")} {_SPLIT.format("k")} {_SPLIT.format("v")} kt = Transpose <perm = [0, 1, 3, 2]> (k2)
          s = MatMul (q2, kt) p = Softmax (s) o = MatMul (p, v2) o1 = Transpose <perm = [0, 2, 1, 3]> (o)
          y = Reshape (o1, back) }}""",
    "rotary": """
        (float[B, 3, S, 8] x, float[B, S, 4] c, float[B, S, 4] s) => (float[B, 3, S, 8] y)
        { y = RotaryEmbedding (x, c, s) }""",
    "conv_norm_relu": """
        (float[N, 3, H, W] x, float[8, 3, 3, 3] w, float[8] g, float[8] b, float[8] m, float[8] u)
        => (float[N, 8, P, Q] y)
        { c = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (x, w) n = BatchNormalization (c, g, b, m, u)
          y = Relu (n) }""",
    "conv_block": """
        (float[N, 8, H, W] x, float[8, 1, 3, 3] w, float[8] b, float[8, 8, 1, 1] v) => (float[N, 8, H, W] y)
        { c = Conv <auto_pad = "SAME_UPPER", group = 8> (x, w, b) r = HardSwish (c) p = Conv (r, v) y = Add (p, x) }""",
}
"""Whole models as ONNX text, of the newest operator set."""

REGIONS = (
    ("transformer_ts17", "AttentionFFN"),
    ("transformer_ts17", "HorizontalLinear"),
    ("transformer_dyn23_fp16_d768", "AttentionFFN"),
    ("transformer_dyn23_fp16_d768", "FeedForwardBlock"),
    ("conv_stack", "ConvBatchNormRelu"),
)
"""Example models, and rules: the largest region of each is planned."""


def model_of(text: str) -> ir.Model:
    """A model of one of the texts."""
    return parsed(f"g {text}", 23)


def _of_example(model: str, rule: str) -> str:
    regions = find_regions(_example(model), load_rules((rule,))).regions
    return show(plan_region(max(regions, key=lambda r: len(r.nodes))))


@cache
def _example(model: str) -> ir.Model:
    with TemporaryDirectory() as folder:
        return simplified_file(weights.restore(model, Path(folder, "model.onnx")))


GOLDENS: Goldens = {
    **{f"{name}.txt": lambda text=text: show(plan_region(whole(model_of(text)))) for name, text in GRAPHS.items()},
    **{f"{g.name}.txt": lambda g=g: show(plan_region(whole(g.model()))) for g in slice_graphs.GRAPHS},
    **{f"{model}.{rule}.txt": lambda of=(model, rule): _of_example(*of) for model, rule in REGIONS},
}
