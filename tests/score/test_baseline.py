"""What ONNX Runtime makes of a region without its fusion: what it fuses by itself, and the time that takes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusion_cli.errors import Unsupported
from fusion_cli.plan import plan_region
from fusion_cli.score import Baseline, default_sizes, load_profile, score_region
from fusion_cli.score.vendor_fusions import fused_kernels
from fusion_cli.types import Options, Target
from tests.helpers.graphs import parse, simplified
from tests.helpers.region_tools import parsed, whole
from tests.helpers.scores import CAUSAL, CPU, H200, at, verdict

RMS_NORM = """g (float[b, s, 768] x, float[768] w) => (float[b, s, 768] y) {
    two = Constant <value_float = 2.0> () eps = Constant <value_float = 0.00001> ()
    axes = Constant <value_ints = [-1]> ()
    p = Pow(x, two) m = ReduceMean(p, axes) e = Add(m, eps) q = Sqrt(e) i = Reciprocal(q) n = Mul(x, i) y = Mul(n, w)
}"""


def test_norm_that_onnx_runtime_leaves_decomposed_pays_on_cpu() -> None:
    assert verdict(RMS_NORM, CPU, at(1, 128)).gain_us > 0


def test_norm_that_onnx_runtime_fuses_itself_does_not_pay_on_cpu() -> None:
    with pytest.raises(Unsupported):
        verdict(RMS_NORM.replace("i = Reciprocal(q) n = Mul(x, i)", "n = Div(x, q)"), CPU, at(1, 128))


NORM_BY_HAND = """g (float[b, s, 768] x, float[768] w) => (float[b, s, 768] y) {
    two = Constant <value_float = 2.0> () eps = Constant <value_float = 0.00001> ()
    axes = Constant <value_ints = [-1]> () m = ReduceMean(x, axes) d = Sub(x, m) p = Pow(d, two)
    v = ReduceMean(p, axes) e = Add(v, eps) q = Sqrt(e)
    n = Div(d, q) y = Mul(n, w)
}"""


def test_breaking_up_what_onnx_runtime_fuses_is_charged_for_the_pieces() -> None:
    model = parsed(NORM_BY_HAND)
    region = whole(model)
    first, last = (next(n for n in region.nodes if n.op_type == op) for op in ("Sub", "Pow"))
    piece = replace(region, nodes=(first, last), inputs=tuple(first.inputs), outputs=(*first.outputs, *last.outputs))
    baseline = Baseline(model.graph, load_profile(H200))
    sizes = [{"b": 1, "s": 128}]
    score = score_region(piece, plan_region(piece), baseline, sizes, force=True)
    assert score.launches_before == 1
    assert score.launches_after > 4
    assert score.gain_us < 0
    with pytest.raises(Unsupported):
        score_region(piece, plan_region(piece), baseline, sizes)


@pytest.mark.parametrize(("dtype", "size", "times"), [("float16", 2, 2), ("float", 4, 1)])
def test_a_convolution_on_tensor_cores_turns_its_image_over(dtype: str, size: int, times: int) -> None:
    """By ONNX Runtime, and within a region that leaves the channels where they are."""
    model = parsed(f"""g ({dtype}[8, 64, 56, 56] x, {dtype}[64, 64, 1, 1] w) => ({dtype}[8, 64, 56, 56] y) {{
        c = Conv(x, w) y = Relu(c)
    }}""")
    profile, region = load_profile(H200), whole(model)
    free = replace(profile, bandwidth_share=profile.bandwidth_share | {"Turning": 1e9})
    as_it_is, without = (
        score_region(region, plan_region(region), Baseline(model.graph, p), [{}], force=True) for p in (profile, free)
    )
    moved = float(times * 2 * 8 * 64 * 56 * 56 * size)
    turning = moved / profile.bandwidth(moved) / profile.share("Turning") / 1e3
    assert as_it_is.before_us - without.before_us == pytest.approx(turning, rel=1e-6)
    assert as_it_is.after_us - without.after_us == pytest.approx(turning, rel=1e-6)


def test_onnx_runtimes_causal_attention_leaves_later_keys_out_too() -> None:
    def before(causal: int, tokens: int) -> float:
        return verdict(CAUSAL.format(causal), H200, at(1, tokens), opset=23, force=True).before_us

    assert 0.45 < before(1, 8192) / before(0, 8192) < 0.65
    assert before(1, 1) == before(0, 1)


@pytest.mark.parametrize("causal", [0, 1])
def test_hidden_keys_cost_more_where_exponentials_that_underflow_do(causal: int) -> None:
    model = parsed(CAUSAL.format(causal), 23)
    region, sizes = whole(model), default_sizes(model, Options(dims=at(1, 512)))

    def before(specials: float) -> float:
        profile = replace(load_profile(CPU), vendor_hidden_specials=specials)
        return score_region(region, plan_region(region), Baseline(model.graph, profile), sizes, force=True).before_us

    assert (before(15) > 1.5 * before(0)) == bool(causal)
    assert causal or before(15) == before(0)


def test_onnx_runtime_fusions_are_counted_as_one_kernel() -> None:
    model = parsed("""g (float[b, s, 8] x) => (float[b, s, 8] y) {
        r = Constant <value_float = 1.4142135> () one = Constant <value_float = 1.0> ()
        half = Constant <value_float = 0.5> ()
        d = Div(x, r) e = Erf(d) a = Add(e, one) m = Mul(x, a) y = Mul(m, half)
    }""")
    assert [k.op for k in fused_kernels(tuple(model.graph), load_profile(CPU))] == ["Gelu"]


TANH_GELU = """g (float[b, s, 8] x) => (float[b, s, 8] y) {
    three = Constant <value_float = 3.0> () k = Constant <value_float = 0.044715> ()
    one = Constant <value_float = 1.0> () c = Constant <value_float = 0.7978845> ()
    half = Constant <value_float = 0.5> ()
    p = Pow(x, three) q = Mul(p, k) i = Add(x, q) j = Mul(i, c) t = Tanh(j) u = Add(t, one) v = Mul(x, u)
    y = Mul(v, half)
}"""


@pytest.mark.parametrize(("target", "count"), [(CPU, 8), (H200, 1)])
def test_onnx_runtime_has_no_fast_gelu_for_cpus(target: Target, count: int) -> None:
    assert len(fused_kernels(tuple(parsed(TANH_GELU).graph), load_profile(target))) == count


NORMED = "y = LayerNormalization <axis = -1> (a, gamma, beta)"
TWO = "float[b, s, 8] x, float[b, s, 8] r"


@pytest.mark.parametrize(
    ("text", "kernels"),
    [
        (f"g ({TWO}) => (float[b, s, 8] y) {{ a = Add(x, r) {NORMED} }}", ["SkipLayerNormalization"]),
        (f"g ({TWO}) => (float[b, s, 8] y) {{ t = Add(x, beta) a = Add(t, r) {NORMED} }}", ["SkipLayerNormalization"]),
        (f"g ({TWO}) => (float[b, s, 8] z) {{ a = Add(x, r) {NORMED} z = Mul(y, a) }}",
         ["Add", "LayerNormalization", "Mul"]),
        (f"g (float[b, 8] x, float[b, 8] r) => (float[b, 8] y) {{ a = Add(x, r) {NORMED} }}",
         ["Add", "LayerNormalization"]),
        (f"g (float[b, s, 8] x, float[1, s, 8] r) => (float[b, s, 8] y) {{ a = Add(x, r) {NORMED} }}",
         ["Add", "LayerNormalization"]),
    ],
)  # fmt: skip
def test_onnx_runtime_merges_some_residuals_and_norms(text: str, kernels: list[str]) -> None:
    model = simplified(parse(text, {"gamma": (8,), "beta": (8,)}))
    assert [k.op for k in fused_kernels(tuple(model.graph), load_profile(H200))] == kernels


@pytest.mark.parametrize(("width", "apart_us"), [(768, 50), (256, 19)])
def test_a_residual_and_norm_are_charged_as_they_are_written(width: int, apart_us: float) -> None:
    """On CPUs the two are kept apart: 128 rows take so long there, and a SkipLayerNormalization 500 and 160 us."""
    text = f"g ({TWO}) => (float[b, s, 8] y) {{ a = Add(x, r) {NORMED} }}".replace("8", str(width))
    model = simplified(parse(text, {"gamma": (width,), "beta": (width,)}))
    region = whole(model)
    baseline, sizes = Baseline(model.graph, load_profile(CPU)), [{"b": 1, "s": 128}]
    score = score_region(region, plan_region(region), baseline, sizes, force=True)
    assert score.launches_before == 2
    assert apart_us / 1.5 < score.before_us < apart_us * 1.5
    assert score.gain_us > 0


@pytest.mark.parametrize(("factor", "kernels"), [("x", ["QuickGelu"]), ("z", ["Sigmoid", "Mul"])])
def test_a_gate_of_something_else_is_no_quick_gelu(factor: str, kernels: list[str]) -> None:
    model = parsed(f"g (float[b, s] x, float[b, s] z) => (float[b, s] y) {{ g = Sigmoid(x) y = Mul({factor}, g) }}")
    assert [k.op for k in fused_kernels(tuple(model.graph), load_profile(CPU))] == kernels
