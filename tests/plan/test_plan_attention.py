"""Every attention that is recognised gets an attention kernel, or a reason why it has none; the kernels' numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from fusion_cli.errors import Unsupported
from fusion_cli.match import find_regions, load_rules
from fusion_cli.plan import Planner, plan_region
from fusion_cli.planir.attention_sort import AttentionKind
from fusion_cli.planir.stages import Attention, Plan
from fusion_cli.types import Region
from tests.helpers.attention_graphs import recognised
from tests.helpers.emit_helpers import library, open_session, run
from tests.helpers.graphs import matches, parse, simplified
from tests.helpers.plan_builder import fused_op
from tests.helpers.plan_interpreter import interpret
from tests.helpers.region_tools import all_values, check_region, largest_error, parsed, whole

GRAPHS = recognised()
MIXED = [f"heads_mixed_before_and_after_the_softmax[{i}-{j}]" for i in range(3) for j in range(3)]
OTHERS: dict[str, str | Sequence[str]] = {
    "two_products_with_one_softmax_are_two_attentions": "FUS213",  # the weights leave the region of each
    **dict.fromkeys(MIXED, "FUS213"),
    "shapes[a size of run time that a product settles]": "FUS213",
    "dropout_as_in_training": "FUS205",
    "standard_operator[0-cache]": "FUS205",
    "standard_operator[1-cache]": "FUS205",
    "scores_of_which_a_part_is_written_over": "FUS202",
    "weights_blended_with_others[0]": ["Rowwise", "Attention"],
}
"""What becomes of the largest region, where that is not one attention stage."""


def outcome(region: Region) -> str | list[str]:
    try:
        return [type(s).__name__ for s in plan_region(region).stages]
    except Unsupported as reason:
        return reason.code


def attention_of(plan: Plan) -> Attention:
    (stage,) = [s for s in plan.stages if isinstance(s, Attention)]
    return stage


def test_the_stages_of_every_attention() -> None:
    assert set(OTHERS) <= set(GRAPHS)
    assert len(GRAPHS) >= 106
    wrong = {
        name: found
        for name, graph in GRAPHS.items()
        if (found := outcome(graph.regions[0])) != OTHERS.get(name, ["Attention"])
    }
    assert not wrong


@pytest.mark.parametrize("name", [n for n in GRAPHS if not isinstance(OTHERS.get(n), str)])
def test_numbers(name: str) -> None:
    """In double precision against ONNX Runtime, in every reading."""
    graph = GRAPHS[name]
    values = all_values(graph.model, graph.feeds(), graph.regions)
    for region in graph.regions:
        half = any(v.dtype == ir.DataType.FLOAT16 for v in region.inputs)
        check_region(region, values, 2e-3 if half else 1e-5)


def test_roles_arrive_with_the_region() -> None:
    (roles,) = GRAPHS["masks[add]"].regions[0].attentions
    found = (roles.queries, roles.keys, roles.values, roles.scores, roles.weights, roles.result)
    assert [v and v.name for v in found] == ["q", "kt", "v", "s0", "p", "y"]
    (roles,) = GRAPHS["softmax_written_out[sinks]"].regions[0].attentions
    assert roles.weights is not None
    assert roles.weights.name == "p"  # of the keys, without the sink's
    (roles,) = GRAPHS["standard_operator[0-mask]"].regions[0].attentions
    assert (roles.scores, roles.weights, roles.result.name) == (None, None, "y")


KINDS = {
    "scores[1]": AttentionKind(),
    "masks[add]": AttentionKind("additive"),
    "masks[where]": AttentionKind("boolean"),
    "masks[soft cap]": AttentionKind("general"),
    "weighted_values[1]": AttentionKind(probabilities="zero_nan"),
    "weighted_values[4]": AttentionKind(probabilities="general"),
    "shapes[groups]": AttentionKind(grouped=True),
    "shapes[groups by Einsum]": AttentionKind(grouped=True),
    "shapes[heads unfolded for the mask]": AttentionKind("additive", probabilities="general"),
    "standard_operator[0-mask]": AttentionKind("additive", causal=True, probabilities="zero_empty"),
}


def test_kinds() -> None:
    found = {name: attention_of(plan_region(GRAPHS[name].regions[0])).kind for name in KINDS}
    assert found == KINDS


NEW = ["values_on_the_left[0]", "transposed_attention[0-axis]", "weighted_values_as_any_einsum[3]",
       "softmax_written_out[plus one]", "softmax_written_out[sinks]", "shapes[heads unfolded for the mask]",
       "shapes[groups by Einsum]", "shapes[keys second]"]  # fmt: skip


def test_cpu_kernels(tmp_path: Path) -> None:
    """Those forms that took more than one kernel once, compiled."""
    regions = [GRAPHS[name].regions[0] for name in NEW]
    ops = [fused_op(f"Attention{i}", plan_region(r)) for i, r in enumerate(regions)]
    path = library(ops, tmp_path).path
    for name, region, op in zip(NEW, regions, ops, strict=True):
        graph = GRAPHS[name]
        values = all_values(graph.model, graph.feeds(), [region])
        (found,) = run(open_session(op, path), *(values[str(v.name)] for v in region.inputs))
        assert largest_error(found, values[str(region.outputs[0].name)]) < 1e-5, name


HEADS = "float[b, 4, s, 16] q, float[b, 4, t, 16] k, float[b, 4, t, 16] v"
PROJECTED = f"""g ({HEADS}) => (float[b, s, 64] y, float[b, 4, s, t] p) {{
    kt = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, kt) p = Softmax (s) o = MatMul (p, v)
    m = Transpose <perm = [0, 2, 1, 3]> (o) shape = Constant <value = int64[3] {{0, 0, 64}}> () r = Reshape (m, shape)
    y = MatMul (r, w) }}"""


def test_weights_that_are_an_output_are_stored_only_in_a_larger_region() -> None:
    found = matches(parse(PROJECTED, {"w": (64, 64)}), "AttentionHeads", "AttentionProjection").regions
    codes = {r.rule: outcome(r) for r in found}
    assert codes["AttentionHeads"] == "FUS213"
    assert codes["AttentionProjection"] == ["Linear", "Rowwise", "Linear", "Pointwise", "Linear"]
    (reason,) = {_reason(r) for r in found if r.rule == "AttentionHeads"}
    assert reason == "weights that are a result of their own"


def _reason(region: Region) -> str:
    with pytest.raises(Unsupported) as reason:
        plan_region(region)
    return reason.value.found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (MIXED[0], "scores mixed with one another after their product"),
        (MIXED[1], "weights that are summed over another axis than that of the keys"),
        (MIXED[7], "weights that Conv->r reads"),
        ("shapes[a size of run time that a product settles]", "scores reshaped to sizes that are not provably"),
    ],
)
def test_reasons(name: str, found: str) -> None:
    assert _reason(GRAPHS[name].regions[0]).startswith(found)


def test_equal_nodes_in_which_less_was_recognised_are_planned_on_their_own() -> None:
    region = GRAPHS[MIXED[0]].regions[0]
    planner = Planner()
    assert [type(s).__name__ for s in planner.plan(replace(region, attentions=())).stages].count("Linear") > 1
    with pytest.raises(Unsupported, match="FUS213"):
        planner.plan(region)


def test_the_matcher_says_which_of_several_products_makes_the_scores() -> None:
    graph = GRAPHS["sums_of_products[two products]"]
    region = replace(whole(graph.model), attentions=graph.regions[0].attentions)
    plan = check_region(region, all_values(graph.model, graph.feeds(), [region]), 1e-5)
    assert [type(s).__name__ for s in plan.stages] == ["Linear", "Attention"]
    assert attention_of(plan).kind.masking == "additive"
    assert not any(isinstance(s, Attention) for s in plan_region(replace(region, attentions=())).stages)


BLOOM = """g (float[n, s, 16] q, float[n, s, 16] k, float[n, s, 16] v, float[n, 1, s] alibi, float[b, 1, s, s] mask)
    => (float[n, s, 16] y) { d = Constant <value = float {0.25}> () i0 = Constant <value = int64[1] {0}> ()
    i1 = Constant <value = int64[1] {1}> () i2 = Constant <value = int64[1] {2}> ()
    four = Constant <value = int64[1] {4}> () ms = Shape (mask) b = Slice (ms, i0, i1) qs = Shape (q)
    n = Slice (qs, i0, i1) s = Slice (qs, i1, i2) apart = Concat <axis = 0> (b, four, s, s)
    one = Concat <axis = 0> (n, s, s) kt = Transpose <perm = [0, 2, 1]> (k) x = MatMul (q, kt) xs = Mul (x, d)
    xa = Add (alibi, xs) u = Reshape (xa, apart) um = Add (u, mask) p = Softmax (um) f = Reshape (p, one)
    y = MatMul (f, v) }"""


def test_biases_of_folded_heads_and_masks_of_unfolded_ones() -> None:
    """As in Bloom: nothing says how n and b belong together, but that the one is read as the other."""
    model = simplified(parse(BLOOM))
    (region, *_) = find_regions(model, load_rules(("AttentionHeads",))).regions
    rng = np.random.default_rng(3)
    shapes = {"q": (8, 5, 16), "k": (8, 5, 16), "v": (8, 5, 16), "alibi": (8, 1, 5), "mask": (2, 1, 5, 5)}
    feeds = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    plan = check_region(region, all_values(model, feeds, [region]), 1e-5)
    assert [type(s).__name__ for s in plan.stages] == ["Attention"]
    assert attention_of(plan).kind.masking == "additive"
    arrays = [feeds[str(v.name)] for v in region.inputs]
    short = [a[:1] if v.name == "mask" else a for v, a in zip(region.inputs, arrays, strict=True)]
    with pytest.raises(ValueError, match="reshape"):
        interpret(plan, short)


def test_sinks_that_turn_out_to_be_several_are_an_error() -> None:
    region = GRAPHS["one_sink_whose_number_is_not_told"].regions[0]
    plan = plan_region(region)
    feeds = GRAPHS["one_sink_whose_number_is_not_told"].feeds()
    arrays = [np.repeat(feeds[str(v.name)], 2, -1) if v.name == "sink" else feeds[str(v.name)] for v in region.inputs]
    with pytest.raises(ValueError, match="inner dimensions are 8 and 7"):
        interpret(plan, arrays)


WRITTEN = """g (float[s, 16] q, float[t, 16] k, float[t, 16] v) => (float[s, 16] y) {{
    last = Constant <value = int64[1] {{-1}}> () eps = Constant <value = float {{{eps}}}> ()
    kt = Transpose <perm = [1, 0]> (k) x = MatMul (q, kt) m = ReduceMax <axes = [-1]> (x) c = Sub (x, m) e = Exp (c)
    z = ReduceSum (e, last) d = Add (z, eps) p = Div (e, d) y = MatMul (p, v) }}"""


@pytest.mark.parametrize(("eps", "stages"), [("1e-9", ["Attention"]), ("0.5", "FUS213")])
def test_a_number_added_to_a_sum_of_one_or_more_must_be_too_small_to_count(eps: str, stages: object) -> None:
    region, *_ = matches(parse(WRITTEN.format(eps=eps)), "AttentionHeads").regions
    assert outcome(region) == stages


def test_only_what_is_a_multiple_by_its_own_reshape_is_taken_for_one() -> None:
    """-1 stands for a whole number: n is a multiple of 4 where [n, 6] is read as [-1, 4, 6], else the model fails."""
    text = """g (float[n, 6] x, float[m, 6] y) => (float[a, 4, 6] z, float[c, 4, 6] w) {
        four = Constant <value = int64[3] {-1, 4, 6}> () z = Reshape (x, four) e = Exp (y) w = Reshape (e, four) }"""
    model = parsed(text)
    plan = plan_region(whole(model))
    feeds = {name: np.ones((8, 6), np.float32) for name in "xy"}
    check_region(whole(model), all_values(model, feeds, [whole(model)]), 1e-6)
    with pytest.raises(ValueError, match="reshape"):
        interpret(plan, [np.ones((7, 6), np.float32)] * 2)
