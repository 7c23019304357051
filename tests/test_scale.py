"""Nothing grows faster than the model: operations are counted, never timed. And weights stay out of memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from benchmarks import scale
from benchmarks.scale_models import KINDS, build
from fusion_cli import pipeline
from fusion_cli.errors import ModelError
from fusion_cli.graph.index import MAX_PASSED, GraphIndex
from fusion_cli.load import load_model
from fusion_cli.load.weights import LARGE, InModelFile, without_weights
from fusion_cli.match import find_regions, load_rules
from fusion_cli.match.grow import Grower
from fusion_cli.match.make_region import make_region
from fusion_cli.match.search import MOST_STEPS, Search
from fusion_cli.plan import Planner
from fusion_cli.plan import compile as plan_module
from fusion_cli.save.stream import write_model
from fusion_cli.select.exact import best_disjoint
from fusion_cli.types import Options
from tests.helpers.graphs import rejections, simplified_file

SMALL = 240
EXPENSIVE = (
    *("_assign", "_unify", "_extend", "_grow", "consumers", "predecessors", "readers", "root", "_between", "_whole"),
)
"""The inner functions of matching."""


class Counter:
    """How often functions run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = 0
        self.monkeypatch = monkeypatch

    def watch(self, owner: object, name: str) -> None:
        original: Callable[..., object] = getattr(owner, name)

        def counted(*args: object, **kwargs: object) -> object:
            self.calls += 1
            return original(*args, **kwargs)

        self.monkeypatch.setattr(owner, name, counted)


def simplified(kind: str, nodes: int, folder: Path) -> ir.Model:
    path = folder / f"{nodes}.onnx"
    onnx.save(build(kind, nodes), path)
    return simplified_file(path)


@pytest.mark.parametrize("shared", ["weight", "result"])
def test_who_reads_a_value_is_not_listed_for_each_that_reads_it(
    shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = 0
    uses = ir.Value.uses

    def counted(value: ir.Value) -> object:
        nonlocal listed
        found = uses(value)
        listed += len(found)
        return found

    monkeypatch.setattr(ir.Value, "uses", counted)
    taken = []
    for nodes in (200, 400):
        if shared == "weight":
            names = ["x", *(f"v{i}" for i in range(nodes - 1)), "y"]
            body = [helper.make_node("MatMul", [names[i], "w"], [names[i + 1]]) for i in range(nodes)]
        else:
            ops = [helper.make_node("Clip", ["h", "", f"w{i}"], [f"v{i}"]) for i in range(nodes)]
            body = [helper.make_node("Relu", ["x"], ["h"]), *ops]
            body.append(helper.make_node("Max", [f"v{i}" for i in range(nodes)], ["y"]))
        bounds = [numpy_helper.from_array(np.float32(i + 1), f"w{i}") for i in range(nodes)]
        tensors = [numpy_helper.from_array(np.eye(4, dtype=np.float32), "w")] if shared == "weight" else bounds
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "xy"]
        graph = helper.make_graph(body, "g", ends[:1], ends[1:], tensors)
        path = tmp_path / f"{nodes}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        listed = 0
        simplified_file(path)
        taken.append(listed)
    assert taken[1] < 3 * taken[0], taken


@pytest.mark.parametrize("kind", KINDS)
def test_matching_twice_the_nodes_takes_twice_the_steps(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = Counter(monkeypatch)
    for owner in (Search, GraphIndex, Grower):
        for name in EXPENSIVE:
            if hasattr(owner, name):
                counter.watch(owner, name)
    rules = load_rules()
    taken = []
    for nodes in (400, 800, 1_600):
        model = simplified(kind, nodes, tmp_path)
        counter.calls = 0
        find_regions(model, rules)
        taken.append(counter.calls)
    assert taken[0] > 0
    assert taken[2] - taken[1] <= 2.1 * (taken[1] - taken[0]), taken


@pytest.mark.parametrize("kind", ["torchscript", "dynamo"])
def test_equal_layers_are_planned_once(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counter = Counter(monkeypatch)
    counter.watch(plan_module, "assemble")
    made = []
    for nodes in (SMALL, 3 * SMALL):
        found = find_regions(simplified(kind, nodes, tmp_path), load_rules())
        planner = Planner()
        counter.calls = 0
        for region in found.regions:
            planner.plan(region)
        made.append(counter.calls)
    assert made[0] == made[1] > 0


def test_plans_are_told_apart_by_what_they_depend_on(tmp_path: Path) -> None:
    text = """<ir_version: 10, opset_import: ["": 17]>
    g (float[N, 8] x, float[N, 8] z) => (float[N, 8] y, float[N, 8] u, float[N, 8] v, float[N, 8] w)
    <float two = {2}, float three = {3}> {
        a = Mul (x, two) y = Exp (a)
        b = Mul (x, three) u = Exp (b)
        c = Mul (z, two) v = Exp (c)
        d = Mul (x, z) w = Exp (d)
    }"""
    onnx.save(onnx.parser.parse_model(text), tmp_path / "m.onnx")
    model = load_model(tmp_path / "m.onnx")
    index = GraphIndex(model.graph)
    pairs = [model.graph[i : i + 2] for i in range(0, 8, 2)]
    planner = Planner()
    first, other_number, same, two_inputs = (planner.plan(make_region(index, nodes, "R", "auto", 1)) for nodes in pairs)
    assert first is same
    assert len({id(p) for p in (first, other_number, two_inputs)}) == 3


def test_patterns_see_through_few_casts_only(tmp_path: Path) -> None:
    index = GraphIndex(simplified("casts", 3_000, tmp_path).graph)
    value = index.graph.outputs[0]
    assert len(index.root(value)[1]) < MAX_PASSED
    assert sum(len(index.root(v)[1]) for n in index.nodes for v in n.outputs) <= MAX_PASSED * len(index.nodes)


def test_a_search_among_too_many_candidates_is_given_up_and_said_so(tmp_path: Path) -> None:
    (tmp_path / "pair.rule").write_text(
        """# summary: for a test
<domain: "fusion.rules", opset_import: ["": 23, "pattern": 1]>
Pair (x) => (y)
{
    e = Exp (x)
    s = Sin (x)
    c = Cos (s)
    t = Tan (c)
    y = Sum (e, t)
}
"""
    )
    branches = "\n".join(f"s{i} = Sin (x) c{i} = Cos (s{i}) t{i} = Tan (x)" for i in range(MOST_STEPS))
    text = f"""<ir_version: 10, opset_import: ["": 23]>
    g (float[4] x) => (float[4] y) {{ e = Exp (x) {branches} z = Abs (t1) y = Sub (e, c0) w = Sum (x, x) }}"""
    model = ir.from_proto(onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text)))
    found = find_regions(model, load_rules(["Pair"], [tmp_path]))
    assert ("Pair", "FUS108") in [(r.rule, r.code) for r in rejections(found)]


def test_the_choice_among_thousands_of_overlapping_regions_is_exact() -> None:
    rng = np.random.default_rng(0)
    starts = np.sort(rng.integers(0, 12_000, size=9_000))
    sets = [
        frozenset(range(start, start + length)) for start, length in zip(starts, rng.integers(1, 9, 9_000), strict=True)
    ]
    weights = [len(s) * w for s, w in zip(sets, rng.uniform(0.5, 1.5, 9_000), strict=True)]
    chosen = best_disjoint(sets, weights)
    assert sum(len(sets[i]) for i in chosen) == len(frozenset().union(*(sets[i] for i in chosen)))
    # Intervals have a simple solution: the best up to each point.
    best = [0.0] * 12_020
    ends = {i: max(s) + 1 for i, s in enumerate(sets)}
    by_end: dict[int, list[int]] = {}
    for i, end in ends.items():
        by_end.setdefault(end, []).append(i)
    for point in range(1, len(best)):
        best[point] = max([best[point - 1], *(best[min(sets[i])] + weights[i] for i in by_end.get(point, ()))])
    assert sum(weights[i] for i in chosen) == pytest.approx(best[-1])


def weighted(folder: Path, external: bool = False) -> Path:
    """y = x W + b, the weight larger than what is read at load."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((128, 64), dtype=np.float32)
    assert weight.nbytes >= LARGE
    tensors = [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(np.ones(64, np.float32), "b")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", d]) for n, d in (("x", 128), ("y", 64)))
    model = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], tensors), ir_version=10, opset_imports=[helper.make_opsetid("", 17)]
    )
    path = folder / "weighted.onnx"
    onnx.save(model, path, save_as_external_data=external, size_threshold=0, location="weighted.data")
    return path


def test_large_weights_stay_in_the_model_file_and_small_ones_are_read(tmp_path: Path) -> None:
    path = weighted(tmp_path)
    assert len(without_weights(path)) < LARGE
    tensors = {n: v.const_value for n, v in load_model(path).graph.initializers.items()}
    assert isinstance(tensors["w"], InModelFile)
    assert isinstance(tensors["b"], ir.TensorProtocol)
    assert not isinstance(tensors["b"], ir.ExternalTensor)
    original = {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    for name, array in original.items():
        np.testing.assert_array_equal(tensors[name].numpy(), array)


def test_small_external_data_is_read_so_that_no_file_stays_open(tmp_path: Path) -> None:
    tensors = {n: v.const_value for n, v in load_model(weighted(tmp_path, external=True)).graph.initializers.items()}
    assert isinstance(tensors["w"], ir.ExternalTensor)
    assert not isinstance(tensors["w"], InModelFile)
    np.testing.assert_array_equal(tensors["b"].numpy(), np.ones(64, np.float32))
    assert not isinstance(tensors["b"], ir.ExternalTensor)


def test_a_model_is_written_from_the_file_it_came_from(tmp_path: Path) -> None:
    path = weighted(tmp_path)
    write_model(load_model(path), tmp_path / "copy.onnx")
    onnx.checker.check_model(tmp_path / "copy.onnx", full_check=True)
    x = np.ones((3, 128), np.float32)
    results = [ort.InferenceSession(p).run(None, {"x": x})[0] for p in (path, tmp_path / "copy.onnx")]
    np.testing.assert_array_equal(*results)
    before, after = ({t.name: t for t in onnx.load(p).graph.initializer} for p in (path, tmp_path / "copy.onnx"))
    assert {n: numpy_helper.to_array(t).tolist() for n, t in before.items()} == {
        n: numpy_helper.to_array(t).tolist() for n, t in after.items()
    }
    assert not any(t.external_data for t in after.values())


def test_weights_that_are_too_many_for_one_file_get_one_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusion_cli.save._EXTERNAL_FROM", LARGE)
    path = weighted(tmp_path)
    pipeline.optimize(path, tmp_path / "out.onnx", Options(targets=("portable",), verify=False))
    (data,) = tmp_path.glob("out.onnx-*.data")
    assert data.stat().st_size >= 128 * 64 * 4
    x = np.ones((3, 128), np.float32)
    results = [ort.InferenceSession(p).run(None, {"x": x})[0] for p in (path, tmp_path / "out.onnx")]
    np.testing.assert_array_equal(*results)


def test_a_model_behind_a_link_is_optimized_in_place(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "models").mkdir()
    weighted(tmp_path / "blobs")
    link = tmp_path / "models" / "m.onnx"
    link.symlink_to(tmp_path / "blobs" / "weighted.onnx")
    pipeline.optimize(link, tmp_path / "out.onnx", Options(targets=("portable",)))
    assert (tmp_path / "out.onnx").is_file()


def test_a_weight_of_the_wrong_size_is_an_error(tmp_path: Path) -> None:
    path = weighted(tmp_path)
    model = onnx.load(path)
    model.graph.initializer[0].dims[0] += 1
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match="the tensor is 32768 bytes where its shape needs 33024"):
        load_model(path)


@pytest.mark.parametrize("cut", [1, 100, 20_000])
def test_a_model_cut_short_is_an_error(tmp_path: Path, cut: int) -> None:
    path = weighted(tmp_path)
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(ModelError, match="cut short or damaged"):
        load_model(path)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_model_of_that_many_nodes(kind: str) -> None:
    model = build(kind, SMALL)
    onnx.checker.check_model(model, full_check=True)
    assert SMALL <= len(model.graph.node) < SMALL + 100


def test_the_benchmark_tells_seconds_growth_and_memory(tmp_path: Path) -> None:
    arguments = ["--kind", "dynamo", "--nodes", "60", "--nodes", "120", "--json", str(tmp_path / "r.json")]
    done = CliRunner().invoke(scale.main, [*arguments, "--markdown", str(tmp_path / "r.md")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "| dynamo | 84 |" in (tmp_path / "r.md").read_text()
    assert scale.growth([(1_000, 0.5), (10_000, 5.0), (50_000, 25.0)]) == pytest.approx(1.0)
    assert scale.growth([(1_000, 0.5), (2_000, 2.0)]) == pytest.approx(2.0)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="resident memory is read from /proc")
def test_ten_thousand_nodes_take_no_more_than_twice_the_model_and_200_mb() -> None:
    """In each of the two processes; of that, the libraries alone take more than 100 MB."""
    case = scale.run_case("torchscript", 10_000, "portable", timeout=600)
    allowed = 2 * case["model_bytes"] + 200e6
    assert 0 < case["peak_bytes"] <= allowed
    assert 0 < case["runtime_peak_bytes"] <= allowed


def test_a_case_that_fails_is_told_and_fails_the_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "run_case", lambda *_: {"kind": "chain", "asked": 5, "failure": "boom"})
    done = CliRunner().invoke(scale.main, ["--kind", "chain", "--nodes", "5"])
    assert done.exit_code == 1
    assert "chain, 5 nodes: boom" in done.output
