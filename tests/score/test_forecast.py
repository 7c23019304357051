"""What predicted times are made of, and those of whole models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
from onnx_ir.passes import common as passes

from fusion_cli.costs import Terms
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.devices.work import Work
from fusion_cli.plan import plan_region
from fusion_cli.score import Baseline, forecasts, load_profile, score_region
from fusion_cli.score.baseline import at_run_time
from fusion_cli.score.prediction import own_work
from fusion_cli.score.spans import Span, nodes_span, nodes_terms, operator_span
from fusion_cli.types import Candidate, Target
from tests.helpers.region_tools import parsed, region_of, whole

CPU, H200 = (load_profile(Target(*t)) for t in (("cpu", "cpu"), ("sm_90a", "cuda", "sm_90a")))
MB = 2.0**20

CHAIN = """g (float[b, 768] x, float[b, 768] z) => (float[b, 768] y) {
    a = Add(x, z) c = Tanh(a) d = Mul(c, z) e = Sub(d, x) y = Relu(e)
}"""


def test_terms_add_up() -> None:
    terms = Terms(1, 2, 4, 8, 16, 32)
    assert terms.total == 63
    assert (terms + terms * 0.5).total == 63 * 1.5
    assert {f.name for f in fields(Terms)} == {"compute", "memory", "cache", "tiles", "launch", "dispatch"}


@pytest.mark.parametrize(
    ("work", "term"),
    [
        (Work("Add", 512 * MB, simple=1e5), "memory"),
        (Work("Add", 3 * MB, simple=1e4), "cache"),
        (Work("Tanh", 1 * MB, special=1e9), "compute"),
        (Work("MatMul", 512 * MB, flops=1e12, dtype="float16", grid=(1, 8192, 8192)), "compute"),
        (Work("MatMul", 512 * MB, flops=1e6, dtype="float16", grid=(1, 1, 8192)), "memory"),
    ],
)
@pytest.mark.parametrize("profile", [CPU, H200], ids=lambda p: p.name)
def test_a_kernel_is_bound_by_what_takes_longest(work: Work, term: str, profile: DeviceProfile) -> None:
    terms = work.terms(profile)
    others = {f.name: getattr(terms, f.name) for f in fields(Terms) if f.name not in (term, "launch")}
    assert getattr(terms, term) > max(others.values())
    assert work.time_us(profile) == terms.total
    assert terms.launch == profile.launch(work.name)


def test_constants_are_in_the_cache_only_if_all_that_a_model_has_fit_together() -> None:
    """Each of these products' weights would fit by itself, and its activations do."""
    weights = CPU.cache_bytes / 16
    work = Work("MatMul", weights + 4096, flops=1e3, weights=weights)
    alone = work.terms(CPU)
    assert (alone.memory, alone.cache > 0) == (0, True)
    among = work.terms(replace(CPU, model_weights=int(CPU.cache_bytes)))
    assert among.memory == pytest.approx(weights / CPU.bandwidth_gbs / 1e3)
    assert 0 < among.cache < alone.cache


def test_what_a_core_s_own_cache_holds_comes_from_there() -> None:
    near = replace(CPU, near_bytes=CPU.cache_bytes / 8, near_bandwidth_gbs=2 * CPU.cache_bandwidth_gbs)
    small, large = (Work("Add", CPU.cache_bytes / part) for part in (32, 4))
    assert small.terms(near).cache == pytest.approx(small.terms(CPU).cache / 2)
    assert large.terms(near).cache == large.terms(CPU).cache > 0


@pytest.mark.parametrize("layers", [1, 8])
def test_a_model_s_constants_count_together_on_both_sides(layers: int) -> None:
    side = int((CPU.cache_bytes / 4 / 4) ** 0.5)  # each a quarter of the cache
    text = " ".join(f"p{i} = MatMul({'x' if i == 0 else f'y{i - 1}'}, w{i}) y{i} = Relu(p{i})" for i in range(layers))
    graph = onnx.parser.parse_graph(f"g (float[b, {side}] x) => (float[b, {side}] y{layers - 1}) {{ {text} }}")
    graph.initializer.extend(onnx.numpy_helper.from_array(np.zeros((side, side), "f4"), f"w{i}") for i in range(layers))
    model = ir.from_proto(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)]))
    passes.ShapeInferencePass()(model)
    ((forecast),) = forecasts(model.graph, [], CPU, {"b": 1})
    assert (forecast.before.memory > forecast.before.cache) == (layers > 1)
    baseline = Baseline(model.graph, CPU)
    region = region_of(list(model.graph)[:2])
    (work, *_), _ = baseline.work(region, {"b": 1})
    assert (work.weights, baseline.profile.model_weights) == (4 * side * side, layers * 4 * side * side)
    (own, *_) = own_work(region, plan_region(region), baseline.profile, {"b": 1})
    assert own.weights == work.weights


@pytest.mark.parametrize(
    ("grid", "least", "most"),
    [
        ((1, 8192, 8192), 1.0, 1.05),
        ((1, 128, 128 * 132), 1.0, 1.15),  # a full wave of tiles
        ((1, 128, 128 * 133), 1.2, 2.0),  # and one tile more
        ((1, 1, 4096), 30.0, 128.0),  # a row of a tile of 64
    ],
)
def test_tiles_that_are_not_full_take_as_long_as_full_ones(
    grid: tuple[float, float, float], least: float, most: float
) -> None:
    assert least <= H200.spread(*grid) <= most
    flops = 2 * grid[0] * grid[1] * grid[2] * 4096
    terms = Work("MatMul", 1.0, flops, "float16", grid=grid).terms(H200)
    assert terms.tiles == pytest.approx(terms.compute * (H200.spread(*grid) - 1))
    assert CPU.spread(*grid) == 1.0


def test_few_heads_leave_multiprocessors_idle() -> None:
    few, many = (Work("Attention", 1.0, 1e9, "float16", blocks=b).terms(H200) for b in (12.0, 1024.0))
    assert few.tiles == pytest.approx(few.compute * (132 / 12 - 1))
    assert many.tiles == 0
    assert Work("Attention", 1.0, 1e9, "float16").terms(H200).tiles == 0


def test_the_last_round_of_tiles_takes_as_long_as_a_full_one() -> None:
    """28 heads of 2,048 queries are 448 tiles, four rounds of 132 multiprocessors."""
    terms = Work("Attention", 1.0, 1e9, "float16", blocks=28 * 16, in_rounds=True).terms(H200)
    assert terms.tiles == pytest.approx(terms.compute * (4 * 132 / 448 - 1))
    assert H200.idleness(28 * 32 * 3) == 1
    assert replace(H200, multiprocessors=0).idleness(28 * 16, in_rounds=True) == 1


def test_the_host_and_a_gpu_overlap_and_a_cpu_does_both() -> None:
    span = Span(10.0, Terms(compute=4.0))
    assert span.terms(H200) == Terms(dispatch=10.0)
    assert Span(3.0, Terms(compute=4.0)).terms(H200) == Terms(compute=4.0)
    assert span.terms(CPU) == Terms(compute=4.0, dispatch=10.0)


def test_short_and_long_kernels_hide_each_other_in_a_model_but_not_by_themselves() -> None:
    works = [Work("Add", 1.0), Work("Add", 512 * MB)]
    long = works[1].terms(H200).total
    assert nodes_terms(works, H200).total == pytest.approx(H200.node_us + long)
    assert nodes_span(works, H200).terms(H200).total == pytest.approx(long + works[0].terms(H200).total)
    assert operator_span(works, H200).host == H200.op_us + H200.kernel_us


def test_many_launches_of_an_operator_take_the_host_no_longer_than_a_graph() -> None:
    graph, many = (operator_span([Work("Add", 1.0)] * n, H200).host for n in (4, 20))
    assert graph == many == H200.op_us + 3 * H200.kernel_us
    assert operator_span([Work("Add", 1.0)] * 20, CPU).host == CPU.op_us + 19 * CPU.kernel_us


def candidates(model: ir.Model, profile: DeviceProfile, rows: int) -> list[Candidate]:
    region = whole(model)
    plan = plan_region(region)
    score = score_region(region, plan, Baseline(model.graph, profile), [{"b": rows}], force=True)
    return [Candidate(region, plan, {profile.target: score}, (profile.target,))]


def times(profile: DeviceProfile, rows: int, fused: bool = True) -> Sequence[tuple[str, float, float]]:
    model = parsed(CHAIN)
    chosen = candidates(model, profile, rows) if fused else []
    found = forecasts(model.graph, chosen, profile, {"b": rows})
    return [(f.device, f.before.total, f.after.total) for f in found]


def test_a_model_of_one_fusion_is_that_fusion() -> None:
    ((device, before, after),) = times(CPU, 512)
    score = candidates(parsed(CHAIN), CPU, 512)[0].scores["cpu"]
    assert (device, before, after) == (
        "cpu",
        pytest.approx(score.before_us + CPU.run_us),
        pytest.approx(score.after_us + CPU.run_us),
    )
    ((_, before, after),) = times(CPU, 512, fused=False)
    assert before == after


def test_a_cuda_graph_takes_the_host_away() -> None:
    (way, before, after), (graph_way, graph_before, graph_after) = times(H200, 16)
    assert (way, graph_way) == ("cuda", "cuda graph")
    assert (before, after) == (H200.run_us + 5 * H200.node_us, H200.run_us + H200.op_us)  # bound by the host
    assert graph_before == graph_after == H200.graph_us  # which takes a graph a while to begin, too
    (_, before, after), (_, graph_before, graph_after) = times(H200, 1 << 20)
    assert (before, after) == (graph_before, graph_after)  # bound by the device
    assert after < before / 3


def test_nothing_is_said_of_what_loops_do_or_what_nothing_is_built_for() -> None:
    text = """g (float[b] x, bool c) => (float[b] y) {
        y = If (c) <then_branch = t () => (float[b] u) { u = Relu(x) },
                    else_branch = e () => (float[b] v) { v = Neg(x) }>
    }"""
    assert forecasts(parsed(text).graph, (), CPU, {"b": 8}) == ()
    portable = load_profile(Target("portable", "portable"))
    assert forecasts(parsed(CHAIN).graph, (), portable, {"b": 8}) == ()


@pytest.mark.parametrize(
    ("back", "others", "kept"),
    [
        ("[0, 3, 1, 2]", "", 1),
        ("[0, 2, 3, 1]", "", 3),
        ("[0, 3, 1, 2]", "u = Relu (t)", 4),
    ],
    ids=["undone", "turned on", "read in between"],
)
def test_transposes_that_undo_one_another_take_no_time(back: str, others: str, kept: int) -> None:
    outputs = "float[2, 3, 4, 5] y" + ", float[2, 4, 5, 3] u" * bool(others)
    text = f"""g (float[2, 3, 4, 5] x) => ({outputs}) {{
        t = Transpose <perm = [0, 2, 3, 1]> (x) v = Transpose <perm = {back}> (t) y = Neg (v) {others}
    }}"""
    assert len(at_run_time(parsed(text.replace("2, 3, 4, 5] y", "a, b, c, d] y")).graph)) == kept
