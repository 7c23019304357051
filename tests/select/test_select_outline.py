"""Choosing among overlapping regions, and naming the chosen ones without changing what the model computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from fusion_cli.costs import Score, Terms
from fusion_cli.graph.index import GraphIndex
from fusion_cli.match import find_regions, load_rules
from fusion_cli.match.make_region import make_region
from fusion_cli.outline import inline_back, outline
from fusion_cli.select import select
from fusion_cli.select.exact import best_disjoint
from fusion_cli.simplify.libraries import infer_shapes
from fusion_cli.types import Candidate, Region
from tests.helpers.graphs import RNG, parse, simplified

LAYER = """
g (float[batch, seq, 64] x) => (float[batch, seq, 64] y) {
    n = LayerNormalization <axis = -1> (x, gamma, beta)
    h = MatMul (n, w1) a = Add (h, b1) s = Sigmoid (a) m = Mul (a, s)
    o = MatMul (m, w2) p = Add (o, b2) r = Add (p, x)
    n2 = LayerNormalization <axis = -1> (r, gamma, beta)
    h2 = MatMul (n2, w1) a2 = Add (h2, b1) s2 = Sigmoid (a2) m2 = Mul (a2, s2)
    o2 = MatMul (m2, w2) p2 = Add (o2, b2) y = Add (p2, r)
}"""
WEIGHTS = {"gamma": (64,), "beta": (64,), "w1": (64, 128), "b1": (128,), "w2": (128, 64), "b2": (64,)}


def candidate(region: Region, **gains: float) -> Candidate:
    scores = {t: Score(t, Terms(g), Terms(), 0, 0, 1, 1) for t, g in gains.items()}
    return Candidate(region, None, scores, tuple(t for t, g in gains.items() if g > 0))


def run(model: ir.Model | onnx.ModelProto, tmp_path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    path = tmp_path / "m.onnx"
    proto = ir.to_proto(model) if isinstance(model, ir.Model) else model
    onnx.save(proto, path)
    onnx.checker.check_model(path, full_check=True)
    return ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)


def brute_force(sets: list[frozenset[int]], weights: list[float]) -> float:
    best = 0.0
    for bits in range(1 << len(sets)):
        chosen = [i for i in range(len(sets)) if bits >> i & 1]
        if sum(len(sets[i]) for i in chosen) == len(frozenset().union(*(sets[i] for i in chosen))):
            best = max(best, sum(weights[i] for i in chosen))
    return best


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_is_the_best_there_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sets = [frozenset(rng.choice(14, size=rng.integers(1, 5), replace=False).tolist()) for _ in range(10)]
    weights = rng.uniform(0.1, 5.0, size=10).tolist()
    chosen = best_disjoint(sets, weights)
    assert sum(len(sets[i]) for i in chosen) == len(frozenset().union(*(sets[i] for i in chosen)))
    assert sum(weights[i] for i in chosen) == pytest.approx(brute_force(sets, weights))


def test_a_thousand_overlapping_candidates_are_settled() -> None:
    chosen = best_disjoint([frozenset({i, i + 1, i + 2}) for i in range(1000)], [1.0 + (i % 7) for i in range(1000)])
    assert len(chosen) > 250


def test_equal_regions_share_a_function_and_compute_the_same(tmp_path: Path) -> None:
    proto = parse(LAYER, WEIGHTS)
    feeds = {"x": RNG.normal(size=(2, 5, 64)).astype(np.float32)}
    expected = run(proto, tmp_path, feeds)
    model = simplified(proto)
    regions = find_regions(model, load_rules(["FeedForwardBlock"])).regions
    whole = [r for r in regions if len(r.nodes) == 7]
    chosen, _ = select([candidate(r, a=float(len(r.nodes))) for r in whole], model.graph, ["a"])
    (op,) = outline(model, chosen)
    assert len(op.call_names) == 2
    assert [n.op_type for n in model.graph] == ["LayerNormalization", op.name] * 2
    assert op.name.startswith("FeedForwardBlock_")
    np.testing.assert_allclose(run(model, tmp_path, feeds)[0], expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("same", [True, False])
def test_kernels_without_a_plan_are_shared_where_as_much_is_known_of_their_results(same: bool) -> None:
    model = simplified(parse("g (float[n] x, float[n] z) => (float[n] y, float[n] w) { y = Neg (x) w = Neg (z) }"))
    if not same:
        model.graph.outputs[1].shape = ir.Shape(["m"])
    index = GraphIndex(model.graph)
    regions = [make_region(index, [node], "Own", "mine", 1) for node in model.graph]
    ops = outline(model, [candidate(r, a=1.0) for r in regions])
    assert [len(op.call_names) for op in ops] == ([2] if same else [1, 1])


def test_outlining_looks_at_each_graph_output_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 40
    lines = "".join(f"e{i} = Sin ({f'y{i - 1}' if i else 'x'}) y{i} = Neg (e{i})\n" for i in range(count))
    results = ", ".join(f"float[4] {name}{i}" for i in range(count) for name in "ey")
    model = simplified(parse(f"g (float[4] x) => ({results}) {{ {lines} }}", {}))
    index = GraphIndex(model.graph)
    pairs = [model.graph[i : i + 2] for i in range(0, 2 * count, 2)]
    outputs = type(model.graph.outputs)
    looked = []
    original = outputs.__getitem__
    monkeypatch.setattr(outputs, "__getitem__", lambda self, i: looked.append(i) or original(self, i))
    ops = outline(model, [candidate(make_region(index, pair, "Pair", "auto", 1), a=1.0) for pair in pairs])
    assert sum(len(op.call_names) for op in ops) == len(pairs)
    assert len(looked) <= 5 * len(model.graph.outputs)
    assert [v.name for v in model.graph.outputs] == [f"{name}{i}" for i in range(count) for name in "ey"]


def test_choices_of_two_targets_nest(tmp_path: Path) -> None:
    proto = parse(LAYER, WEIGHTS)
    feeds = {"x": RNG.normal(size=(1, 3, 64)).astype(np.float32)}
    expected = run(proto, tmp_path, feeds)
    model = simplified(proto)
    regions = find_regions(model, load_rules(["FeedForwardBlock", "PointwiseRegion"])).regions
    candidates = [candidate(r, gpu=5.0) if r.rule == "FeedForwardBlock" else candidate(r, cpu=1.0) for r in regions]
    chosen, _ = select(candidates, model.graph, ["gpu", "cpu"])
    ops = {op.name: op for op in outline(model, chosen)}
    outer = [op for op in ops.values() if op.rule == "FeedForwardBlock"]
    inner = {op.name for op in ops.values() if op.rule == "PointwiseRegion"}
    assert outer
    assert inner
    assert inner & {n.op_type for op in outer for n in op.function}
    np.testing.assert_allclose(run(model, tmp_path, feeds)[0], expected[0], rtol=1e-5, atol=1e-5)


def test_a_choice_may_enclose_what_an_earlier_target_chose() -> None:
    model = simplified(
        parse("g (float[n, 8] x) => (float[n, 8] y) { a = Neg (x) b = Exp (a) c = Sin (b) y = Abs (c) }")
    )
    inner, outer = region(list(model.graph)[1:3], "Inner"), region(list(model.graph), "Outer")
    crossing = region(list(model.graph)[2:], "Crossing")
    for order in (["cpu", "gpu"], ["gpu", "cpu"]):
        candidates = [candidate(inner, cpu=1.0), candidate(outer, gpu=5.0), candidate(crossing, gpu=2.0)]
        chosen, rejected = select(candidates, model.graph, order)
        assert [c.region.rule for c in chosen] == ["Outer", "Inner"]
        assert [(r.rule, r.code) for r in rejected] == [("Crossing", "FUS350")]


def test_of_equal_regions_the_one_that_saves_more_is_taken() -> None:
    model = simplified(parse("g (float[n, 8] x) => (float[n, 8] y) { a = Neg (x) y = Exp (a) }"))
    less, more = region(list(model.graph), "Less"), region(list(model.graph), "More")
    for candidates in (
        [candidate(less, a=1.0), candidate(more, a=2.0)],
        [candidate(more, a=2.0), candidate(less, a=1.0)],
    ):
        chosen, _ = select(candidates, model.graph, ["a"])
        assert [c.region.rule for c in chosen] == ["More"]


def test_a_candidate_that_cuts_across_another_targets_choice_is_turned_down() -> None:
    model = simplified(parse(LAYER, WEIGHTS))
    regions = find_regions(model, load_rules(["FeedForwardBlock", "LayerNormLinear"])).regions
    norm = next(r for r in regions if r.rule == "LayerNormLinear")
    blocks = [set(r.nodes) for r in regions if r.rule == "FeedForwardBlock"]
    part = next(nodes for nodes in blocks if nodes & set(norm.nodes) and not set(norm.nodes) <= nodes)
    crossing = next(r for r in regions if r.rule == "FeedForwardBlock" and set(r.nodes) == part)
    chosen, rejected = select([candidate(norm, gpu=1.0), candidate(crossing, cpu=9.0)], model.graph, ["gpu", "cpu"])
    assert [c.region for c in chosen] == [norm]
    assert [(r.rule, r.code) for r in rejected] == [("FeedForwardBlock", "FUS350")]


def test_regions_that_need_each_other_are_not_both_taken() -> None:
    text = """g (float[n, 8] x) => (float[n, 8] p, float[n, 8] q, float[n, 8] r) {
        a = Neg (x) p = Exp (a) b = Abs (x) c = Tanh (b) q = Sin (c) r = Softmax (q) }"""
    model = simplified(parse(text))
    neg, exp, absolute, tanh, sin, _ = model.graph
    one, two, after = region([neg, tanh], "One"), region([exp, absolute], "Two"), region([sin], "After")
    gains = {"One": 2.0, "Two": 1.0, "After": 0.5}
    chosen, rejected = select([candidate(r, a=gains[r.rule]) for r in (one, two, after)], model.graph, ["a"])
    assert {c.region.rule for c in chosen} == {"One", "After"}
    assert ("Two", "FUS351") in [(r.rule, r.code) for r in rejected]


def region(nodes: list[ir.Node], rule: str) -> Region:
    """A region of these nodes as a matcher could propose it, whatever is between them."""
    inside = set(nodes)
    inputs = tuple(dict.fromkeys(v for n in nodes for v in n.inputs if v is not None and v.producer() not in inside))
    return Region(rule, tuple(nodes), (), inputs, tuple(v for n in nodes for v in n.outputs))


def test_inlining_back_restores_the_nodes(tmp_path: Path) -> None:
    proto = parse(LAYER, WEIGHTS)
    model = simplified(proto)
    before = sorted(n.op_type for n in model.graph)
    regions = find_regions(model, load_rules(["LinearActivation"])).regions
    chosen, _ = select([candidate(r, a=float(len(r.nodes))) for r in regions], model.graph, ["a"])
    ops = outline(model, chosen)
    assert sorted(n.op_type for n in model.graph) != before
    inline_back(model, {op.name for op in ops}.__contains__)
    assert sorted(n.op_type for n in model.graph) == before
    assert not model.functions
    feeds = {"x": RNG.normal(size=(2, 3, 64)).astype(np.float32)}
    np.testing.assert_allclose(run(model, tmp_path, feeds)[0], run(proto, tmp_path, feeds)[0], rtol=1e-5, atol=1e-5)


TWO_LENGTHS = """g (float[n, 64] x, float[m, 64] z) => (float[n, 64] u, float[m, 64] v) {
    a = Sin (x) b = MatMul (a, w) c = Cos (b) d = MatMul (c, w) u = Sin (d)
    e = Sin (z) f = MatMul (e, w) h = Cos (f) i = MatMul (h, w) v = Sin (i)
}"""


def test_a_function_stays_as_it_is_where_another_with_the_same_constant_is_put_back() -> None:
    text = """g (float[n] x, float[n] z) => (float[n] y, float[n] w) {
        two = Constant <value = float {2.0}> () y = Mul (x, two) w = Add (z, two)
    }"""
    model = simplified(parse(text))
    index = GraphIndex(model.graph)
    regions = [make_region(index, [node], "Own", "mine", 1) for node in model.graph]
    ops = outline(model, [candidate(r, a=1.0) for r in regions])
    kept, gone = ops
    before = ir.to_proto(model).functions[0].SerializeToString()
    inline_back(model.clone(), lambda name: name == gone.name)
    inline_back(model, lambda name: name == gone.name)
    (function,) = ir.to_proto(model).functions
    assert function.name == kept.name
    assert function.SerializeToString() == before


def test_nodes_put_back_have_the_sizes_of_their_own_call(tmp_path: Path) -> None:
    model = simplified(parse(TWO_LENGTHS, {"w": (64, 64)}))
    halves = list(model.graph)[:5], list(model.graph)[5:]
    index = GraphIndex(model.graph)
    (op,) = outline(model, [candidate(make_region(index, half, "Half", "auto", 1), a=1.0) for half in halves])
    assert len(op.call_names) == 2
    inline_back(model, {op.name}.__contains__)
    first, second = model.graph.inputs
    lengths = {first: "n", second: "m"}
    for node in model.graph:
        (made,) = node.outputs
        lengths[made] = lengths[node.inputs[0]]
        assert made.shape is not None
        assert made.shape[0] in (lengths[made], None)
    assert [v.shape[0] for v in model.graph.outputs] == ["n", "m"]
    feeds = {name: RNG.normal(size=(size, 64)).astype(np.float32) for name, size in (("x", 3), ("z", 5))}
    assert [y.shape for y in run(model, tmp_path, feeds)] == [(3, 64), (5, 64)]


SHARED_SHAPE = """g (float[n, 6, 4] x) => (float[n, 24] y) {
    a = Exp (x) s = Shape <end = 1> (a) rest = Constant <value_ints = [24]> () to = Concat <axis = 0> (s, rest)
    r = Reshape (a, to) b = Sin (r) c = Reshape (b, to) y = Neg (c)
}"""


def proposed(model: ir.Model, rule: str, *operators: str) -> Region:
    """The region of all nodes of these operators, as the matcher makes it."""
    return make_region(GraphIndex(model.graph), [n for n in model.graph if n.op_type in operators], rule, "auto", 1)


def test_a_call_inside_another_may_hide_what_the_others_shape_arithmetic_read(tmp_path: Path) -> None:
    """The inner region has copies of the shape nodes and makes the tensor they read: the outer needs them no more."""
    proto = parse(SHARED_SHAPE.replace("c = Reshape (b, to) y = Neg (c)", "y = Neg (b)"))
    feeds = {"x": RNG.normal(size=(3, 6, 4)).astype(np.float32)}
    expected = run(proto, tmp_path, feeds)
    model = simplified(proto, algebra=False)
    inner = proposed(model, "Inner", "Exp", "Reshape", "Sin")
    outer = proposed(model, "Outer", "Exp", "Reshape", "Sin", "Neg")
    assert outer.shape_nodes
    assert [v.name for v in inner.outputs] == ["b"]
    ops = outline(model, [candidate(outer, gpu=9.0), candidate(inner, cpu=1.0)])
    assert {op.rule for op in ops} == {"Outer", "Inner"}
    np.testing.assert_allclose(run(model, tmp_path, feeds)[0], expected[0], rtol=1e-6)


def test_shape_arithmetic_that_a_region_has_copies_of_does_not_order_it() -> None:
    model = simplified(parse(SHARED_SHAPE), algebra=False)
    first = next(n for n in model.graph if n.op_type == "Reshape")
    index = GraphIndex(model.graph)
    front = make_region(index, [n for n in model.graph if n.op_type in ("Exp", "Sin")] + [first], "Front", "auto", 1)
    chosen, rejected = select([candidate(front, cpu=1.0)], model.graph, ["cpu"])
    assert front.shape_nodes
    assert [c.region.rule for c in chosen] == ["Front"]
    assert rejected == ()


def test_a_size_that_is_known_does_not_keep_what_it_was_read_of(tmp_path: Path) -> None:
    """The last size is known to shape inference, if not folded: the region has it as a constant."""
    numbers = ", ".join(f"int64[1] i{i} = {{{i}}}" for i in range(4))
    text = f"""g (float[n, 6, 4] x) => (float[n, 3, 2, 4] y) <{numbers}> {{
        a = Exp (x) s = Shape (a) first = Slice (s, i0, i1) last = Slice (s, i2, i3)
        to = Concat <axis = 0> (first, i3, i2, last) r = Reshape (a, to) y = Sin (r)
    }}"""
    proto = parse(text)
    feeds = {"x": RNG.normal(size=(3, 6, 4)).astype(np.float32)}
    expected = run(proto, tmp_path, feeds)
    model = ir.from_proto(proto)
    infer_shapes(model)
    region = proposed(model, "Region", "Exp", "Reshape", "Sin")
    assert [v.name for v in region.outputs] == ["y"]
    outline(model, [candidate(region, cpu=1.0)])
    assert not any(node.op_type == "Slice" for node in model.graph)
    np.testing.assert_allclose(run(model, tmp_path, feeds)[0], expected[0], rtol=1e-6)
