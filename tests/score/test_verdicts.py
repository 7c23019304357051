"""The cost model's verdicts where the answer is known, and the sizes and profiles they are given for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from fusion_cli.errors import FusionError, Unsupported
from fusion_cli.plan import plan_region
from fusion_cli.score import Baseline, DeviceProfile, default_sizes, load_profile, read_profile, score_region
from fusion_cli.sizes.dims import name_sizes
from fusion_cli.types import Options, Region, Target
from tests.helpers.reason_codes import explained
from tests.helpers.region_tools import parsed, region_of, whole
from tests.helpers.scores import A100, CAUSAL, CPU, H200, at, verdict

LINEAR = """g (float[b, s, 768] x, float[768, 3072] w) => (float[b, s, 3072] y) {
    h = MatMul(x, w) i = Sigmoid(h) y = Mul(h, i)
}"""
CHAIN = """g (float[b, s, 768] x, float[b, s, 768] z) => (float[b, s, 768] y) {
    a = Add(x, z) c = Tanh(a) d = Mul(c, z) e = Sub(d, x) y = Relu(e)
}"""
ATTENTION = """g (float[b, 12, s, {d}] q, float[b, 12, s, {d}] k, float[b, 12, s, {d}] v, float[b, 1, s, s] m)
=> (float[b, 12, s, {d}] y) {{
    t = Transpose <perm = [0, 1, 3, 2]> (k) a = MatMul(q, t) c = Add(a, m) p = Softmax <axis = -1> (c) y = MatMul(p, v)
}}"""


def test_chain_pays_everywhere() -> None:
    for target in (CPU, H200):
        score = verdict(CHAIN, target, at(1, 512))
        assert score.gain_us > 0
        assert (score.launches_before, score.launches_after) == (5, 1)
        assert score.bytes_after < score.bytes_before / 3
        assert score.target == target.name


@pytest.mark.parametrize("target", [CPU, H200])
def test_single_operator_does_not_pay(target: Target) -> None:
    with pytest.raises(Unsupported) as reason:
        verdict("g (float[b, s] x) => (float[b, s] y) { y = Tanh(x) }", target, at(8, 512))
    assert reason.value.code == "FUS301"
    assert reason.value.code in explained()["score"]


@pytest.mark.parametrize("rows", [8, 32, 128])
def test_linear_of_few_rows_loses_on_cpu(rows: int) -> None:
    model, region, sizes = _linear(rows)
    plan = plan_region(region)
    cpu, gpu = (Baseline(model.graph, load_profile(t)) for t in (CPU, H200))
    with pytest.raises(Unsupported) as reason:
        score_region(region, plan, cpu, sizes)
    assert reason.value.code == "FUS301"
    assert score_region(region, plan, cpu, sizes, force=True).gain_us < 0
    assert score_region(region, plan, gpu, sizes).gain_us > 0


@pytest.mark.parametrize(("dtype", "size"), [("float", 4), ("float16", 2), ("bfloat16", 2)])
def test_bytes_are_those_of_the_type(dtype: str, size: int) -> None:
    score = verdict(CHAIN.replace("float", dtype), H200, at(2, 512), force=True)
    assert score.bytes_after == 3 * 2 * 512 * 768 * size


PARTS = """g (float[b, s, 768] x) => (float[b, s, {width}] y) {{
    from = Constant <value_ints = [{first}]> () to = Constant <value_ints = [{first_end}]> ()
    axis = Constant <value_ints = [2]> () u = Slice (x, from, to, axis) a = Tanh (u)
    begin = Constant <value_ints = [{second}]> () end = Constant <value_ints = [{second_end}]> ()
    v = Slice (x, begin, end, axis) y = Mul (a, v)
}}"""


@pytest.mark.parametrize(
    ("first", "second", "width", "read"), [(0, 384, 384, 768), (0, 100, 100, 200), (0, 256, 512, 768)]
)
def test_parts_of_a_tensor_are_no_more_than_the_tensor(first: int, second: int, width: int, read: int) -> None:
    text = PARTS.format(first=first, first_end=first + width, second=second, second_end=second + width, width=width)
    score = verdict(text, H200, at(1, 512), force=True)
    assert score.bytes_after == 4 * 512 * (read + width)


def test_what_is_computed_once_a_row_costs_nothing() -> None:
    text = """g (float[b, s, 768] x) => (float[b, s, 768] y) {{
        axes = Constant <value_ints = [-1]> () m = ReduceMean (x, axes) {more} y = Sub (x, {last})
    }}"""
    more = "e0 = Exp (m) " + " ".join(f"e{i + 1} = {op} (e{i})" for i, op in enumerate(("Tanh", "Neg", "Exp") * 4))
    plain, longer = (
        verdict(text.format(more=m, last=last), CPU, at(1, 512), force=True) for m, last in (("", "m"), (more, "e12"))
    )
    assert longer.after_us == plain.after_us
    assert longer.before_us > plain.before_us


@pytest.mark.parametrize("target", [CPU, H200])
def test_the_layout_of_a_factor_does_not_change_the_work(target: Target) -> None:
    layer = (
        "g (float[768, 768] x, float[{w}] w) => (float[768, 3072] y) {{ h = Gemm <transB = {t}> (x, w) y = Tanh (h) }}"
    )
    plain, turned = (
        verdict(layer.format(w=w, t=t), target, {}, force=True) for w, t in (("768, 3072", 0), ("3072, 768", 1))
    )
    assert plain.after_us == turned.after_us
    turned_keys = ATTENTION.replace("float[b, 12, s, {d}] k", "float[b, 12, {d}, s] k").replace("t)", "k)")
    turned_keys = turned_keys.replace("t = Transpose <perm = [0, 1, 3, 2]> (k) ", "")
    scores = [verdict(text.format(d=64), target, at(1, 2048), force=True) for text in (ATTENTION, turned_keys)]
    assert scores[0].after_us == scores[1].after_us


def test_only_a_constant_factor_is_multiplied_faster_by_onnx_runtime() -> None:
    model, region, sizes = _linear(16)
    cpu = Baseline(model.graph, load_profile(CPU))
    constant = score_region(region, plan_region(region), cpu, sizes, force=True).after_us
    assert constant > 2 * verdict(LINEAR, CPU, at(1, 16), force=True).after_us


def test_a_saving_within_the_error_of_the_prediction_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion_cli.score.prediction.MARGIN", 0.99)
    with pytest.raises(Unsupported) as reason:
        verdict(CHAIN, CPU, at(1, 512))
    assert reason.value.code == "FUS301"


def test_range_in_which_it_wins_and_loses() -> None:
    text = "g (float[s, 8] x, float[s, 8] z) => (float[s, 8] y) { a = Add(x, z) y = Tanh(a) }"
    assert verdict(text, CPU, {"s": (100_000, 100_000)}).gain_us > 0
    with pytest.raises(Unsupported) as reason:
        verdict(text, CPU, {"s": (1, 100_000)})
    assert reason.value.code == "FUS302"


def _linear(rows: int) -> tuple[ir.Model, Region, list[dict[str, int]]]:
    """A linear layer with its activation; the weight is a constant, as in exported models."""
    model = parsed(LINEAR)
    region = whole(model)
    weight = next(v for v in region.inputs if v.name == "w")
    weight.const_value = ir.tensor(np.zeros((768, 3072), np.float32))
    return model, region, [{"b": 1, "s": 128}]


def test_a_pass_over_a_product_is_no_faster_outside_of_its_fusion() -> None:
    """Else a product would be left to ONNX Runtime for a pass that looked faster by itself."""
    model = parsed(LINEAR.replace("float", "float16"))
    product, sigmoid, gate = whole(model).nodes

    def after_us(model: ir.Model, *nodes: ir.Node) -> float:
        region, baseline = region_of(nodes), Baseline(model.graph, load_profile(H200))
        return score_region(region, plan_region(region), baseline, [{"b": 4, "s": 2048}], force=True).after_us

    assert after_us(model, product, sigmoid, gate) < after_us(model, product) + after_us(model, sigmoid, gate)
    read = parsed("g (float16[b, s, 3072] h) => (float16[b, s, 3072] y) { i = Sigmoid(h) y = Mul(h, i) }")
    assert after_us(model, sigmoid, gate) > after_us(read, *read.graph)


def test_chains_of_convolutions_in_float32_pay_on_gpu() -> None:
    text = """g (float[8, 64, 56, 56] x, float[64, 64, 3, 3] w, float[64, 64, 1, 1] v) => (float[8, 64, 56, 56] y) {
        c = Conv <pads = [1, 1, 1, 1]> (x, w) r = Relu(c) d = Conv (r, v) y = Relu(d)
    }"""
    model = parsed(text)
    region = replace(whole(model), channels_last=True)
    score = score_region(region, plan_region(region), Baseline(model.graph, load_profile(H200)), [{}])
    assert score.before_us > 1.2 * score.after_us


def test_attention_pays_on_gpu_and_counts_the_scores() -> None:
    score = verdict(ATTENTION.format(d=64).replace("float", "float16"), H200, at(1, 2048))
    assert score.gain_us > 0
    assert score.bytes_before - score.bytes_after > 4 * 2 * 12 * 2048 * 2048


@pytest.mark.parametrize("target", [H200, A100])
def test_attention_of_float32_runs_on_tensor_cores(target: Target) -> None:
    single, half = (
        verdict(ATTENTION.format(d=64).replace("float", d), target, at(1, 4096)).after_us for d in ("float", "float16")
    )
    assert half < single < 5 * half


def test_a_causal_attention_costs_half_where_its_kernel_skips_later_keys() -> None:
    whole, half = (verdict(CAUSAL.format(c), H200, at(1, 8192), opset=23, force=True).after_us for c in (0, 1))
    assert 0.45 < half / whole < 0.52  # what begins and ends it is not halved; later keys are hidden in few tiles
    whole, half = (verdict(CAUSAL.format(c), CPU, at(1, 512), opset=23, force=True).after_us for c in (0, 1))
    assert half > whole


CACHED = """g (float16[b, 4, 4, s, 128] q, float16[b, 4, 1, k, 128] key, float16[b, 4, 1, k, 128] v,
float16[b, 1, 1, s, k] m) => (float16[b, 4, 4, s, 128] y) {
    t = Transpose <perm = [0, 1, 2, 4, 3]> (key) f = Constant <value_float = 0.088> () c = Cast <to = 10> (f)
    a = MatMul(q, t) z = Mul(a, c) x = Add(z, m) p = Softmax <axis = -1> (x) y = MatMul(p, v)
}"""


@pytest.mark.parametrize("keys", [1, 512, 65536])
def test_a_step_over_a_cache_is_bound_by_reading_it(keys: int) -> None:
    def time(queries: int) -> float:
        return verdict(CACHED, H200, {**at(1, queries), "k": (keys, keys)}).after_us

    profile, moved = load_profile(H200), 2 * 4 * keys * 128 * 2
    reading = moved / profile.bandwidth(moved) / 1e3 / profile.share("DecodeAttention") + profile.launch(
        "DecodeAttention"
    )
    assert time(1) <= max(profile.op_us, 1.05 * reading)
    assert time(1) <= time(16) <= time(64)


def test_attention_with_enormous_heads_does_not_fit() -> None:
    with pytest.raises(Unsupported) as reason:
        verdict(ATTENTION.format(d=1024), H200, at(1, 64))
    assert reason.value.code == "FUS303"


def test_sizes_follow_from_shape_arithmetic() -> None:
    model = parsed("""g (float[b, s, 8] x) => (float[u, v] y) {
        shape = Shape(x) zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
        b = Gather <axis = 0> (shape, zero) s = Gather <axis = 0> (shape, one)
        eight = Constant <value_ints = [8]> () n = Mul(b, s) t = Concat <axis = 0> (n, eight) y = Reshape(x, t)
    }""")
    low, high = default_sizes(model, Options(dims={"s": (4, 32)}))
    assert (low["b"], low["s"], high["s"]) == (1, 4, 32)
    dims = model.graph.outputs[0].shape
    assert dims is not None
    assert default_sizes(model, Options(shapes={"x": (3, 5, 8)}))[0]["s"] == 5


def test_a_size_that_would_be_less_than_nothing_counts_as_one() -> None:
    model = parsed("g (float[n, 4] x) => (float[n, 4] y) { e = Exp (x) y = Mul (e, x) }")
    name_sizes(model, lambda _: "n - 2")  # of a batch, which is likely 1
    region = whole(model)
    baseline = Baseline(model.graph, load_profile(CPU))
    score = score_region(region, plan_region(region), baseline, default_sizes(model, Options()), force=True)
    assert (score.bytes_after, score.operations > 0) == (2 * 4 * 4, True)


@pytest.mark.parametrize(("arch", "name"), [("sm_90a", "h200"), ("sm_80", "a100"), ("sm_89", "a100"), ("sm_70", "a100"),
                                            ("sm_100a", "h200"), ("sm_120a", "h200")])  # fmt: skip
def test_profile_of_architecture(arch: str, name: str) -> None:
    assert load_profile(Target(arch, "cuda", arch)).name == name


def test_profile_interpolates_gemm_slowdown() -> None:
    cpu = load_profile(CPU)
    assert cpu.gemm_slowdown(1) == pytest.approx(0.93)
    assert 4.5 < cpu.gemm_slowdown(16) < 7.7
    assert cpu.gemm_slowdown(100_000) == 1.02


def test_portable_target_turns_nothing_down() -> None:
    profile: DeviceProfile = load_profile(Target("portable", "portable"))
    assert profile.advisory
    assert verdict("g (float[b, s] x) => (float[b, s] y) { y = Tanh(x) }", Target("portable", "portable"), at(1, 4))


def test_bad_profile(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("name = 'x'")
    with pytest.raises(FusionError, match="not a device profile"):
        read_profile(path)
