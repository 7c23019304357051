"""Bodies of If, Loop and Scan: fused like the main graph, each by itself, with values of outer graphs as inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import fusion_cli
from fusion_cli.load import load_model
from fusion_cli.report import Report
from fusion_cli.simplify import simplify
from tests.helpers.graphs import RNG, matches, operators, parse

LAYER = "{o}m = MatMul ({x}, w) {o}a = Add ({o}m, b) {o}s = Sigmoid ({o}a) {o} = Mul ({o}a, {o}s) "
IF = f"""g (float[batch, 64] x, bool c) => (float[batch, 64] y) {{
    {LAYER.format(o="z", x="x")}
    y = If (c) <
        then_branch: graph = yes () => (t) {{ {LAYER.format(o="t", x="z")} }},
        else_branch: graph = no () => (e) {{ e = Neg (z) }}
    >
}}"""
LOOP = f"""g (float[batch, 64] x, int64 n) => (float[batch, 64] y, float[k, batch, 64] all) {{
    yes = Constant <value = bool {{1}}> ()
    y, all = Loop (n, yes, x) <body: graph = step (int64 i, bool c, float[batch, 64] s) => (o, t, p) {{
        o = Identity (c) {LAYER.format(o="t", x="s")} p = Add (t, x)
    }}>
}}"""
SCAN = f"""g (float[batch, 64] x, float[seq, batch, 64] steps) => (float[batch, 64] y, float[seq, batch, 64] all) {{
    y, all = Scan (x, steps) <num_scan_inputs = 1,
        body: graph = step (float[batch, 64] s, float[batch, 64] v) => (t, p) {{
        u = Add (s, v) {LAYER.format(o="t", x="u")} p = Identity (t)
    }}>
}}"""
NESTED = f"""g (float[batch, 64] x, bool c, int64 n) => (float[batch, 64] y) {{
    y = If (c) <
        then_branch: graph = yes () => (r) {{
            go = Constant <value = bool {{1}}> ()
            r = Loop (n, go, x) <body: graph = step (int64 i, bool d, float[batch, 64] s) => (o, t) {{
                o = Identity (d) {LAYER.format(o="t", x="s")}
            }}>
        }},
        else_branch: graph = no () => (e) {{ {LAYER.format(o="e", x="x")} }}
    >
}}"""
X = RNG.normal(size=(3, 64)).astype(np.float32)
STEPS = RNG.normal(size=(4, 3, 64)).astype(np.float32)
CASES = {
    "if": (IF, 2, [{"x": X, "c": np.array(True)}, {"x": X, "c": np.array(False)}]),
    "loop": (LOOP, 1, [{"x": X, "n": np.array(3)}, {"x": X, "n": np.array(0)}]),
    "scan": (SCAN, 1, [{"x": X, "steps": STEPS}]),
    "nested": (NESTED, 2, [{"x": X, "c": np.array(c), "n": np.array(2)} for c in (True, False)]),
}


def model(text: str) -> onnx.ModelProto:
    made = parse(text, {"w": (64, 64), "b": (64,)})
    for tensor in made.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) / 8, tensor.name))
    return made


def fused(text: str, tmp_path: Path, **options: object) -> tuple[Path, Path, Report]:
    source, output = tmp_path / "m.onnx", tmp_path / "fused.onnx"
    onnx.save(model(text), source)
    return source, output, fusion_cli.optimize(source, output, **options)


@pytest.mark.parametrize(("text", "layers", "feeds"), CASES.values(), ids=CASES)
def test_idioms_in_bodies_count(text: str, layers: int, feeds: object) -> None:
    found = matches(model(text), "LinearActivation")
    assert found.idioms["Linear"] == found.idioms["Silu"] == layers
    assert len(operators(found, "LinearActivation")) == layers


@pytest.mark.parametrize("target", ["portable", "cpu"])
@pytest.mark.parametrize(("text", "layers", "feeds"), CASES.values(), ids=CASES)
def test_bodies_are_fused(
    text: str, layers: int, feeds: list[dict[str, np.ndarray]], target: str, tmp_path: Path
) -> None:
    source, output, report = fused(text, tmp_path, targets=[target], force=True, rules=["LinearActivation"])
    assert report.verification is not None
    assert report.verification.ok
    assert not report.verification.skipped
    onnx.checker.check_model(output, full_check=True)
    plain = ort.InferenceSession(source, providers=["CPUExecutionProvider"])
    stock = ort.InferenceSession(output, providers=["CPUExecutionProvider"])
    ours = fusion_cli.session(output, providers=["CPUExecutionProvider"])
    assert len(report.fusions) == layers
    for feed in feeds:
        for expected, a, b in zip(plain.run(None, feed), stock.run(None, feed), ours.run(None, feed), strict=True):
            np.testing.assert_allclose(a, expected, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(b, expected, rtol=1e-4, atol=1e-5)


def test_a_path_through_a_body_keeps_a_region_apart() -> None:
    text = """g (float[batch, 64] x, bool c) => (float[batch, 64] y) {
        a = Relu (x)
        r = If (c) <
            then_branch: graph = yes () => (t) { t = Neg (a) }, else_branch: graph = no () => (e) { e = Abs (a) }
        >
        y = Add (a, r)
    }"""
    assert not operators(matches(parse(text), "PointwiseRegion"), "PointwiseRegion")


def test_a_value_that_a_body_reads_stays_an_output_of_its_region(tmp_path: Path) -> None:
    text = """g (float[batch, 64] x, bool c) => (float[batch, 64] y, float[batch, 64] r) {
        a = Relu (x) d = Tanh (a) y = Mul (d, a)
        r = If (c) <
            then_branch: graph = yes () => (t) { t = Neg (d) }, else_branch: graph = no () => (e) { e = Abs (d) }
        >
    }"""
    found = matches(parse(text), "PointwiseRegion")
    assert sorted(v.name for r in found.regions for v in r.outputs) == ["d", "y"]
    _, _, report = fused(text, tmp_path, targets=["portable"])
    assert report.verification is not None
    assert report.verification.ok


@pytest.mark.parametrize("state", ["s", "float[u, 64] s"], ids=["undeclared", "declared"])
def test_what_a_loop_carries_may_grow(state: str, tmp_path: Path) -> None:
    text = f"""g (float[2, 64] x, int64 n) => (float[k, 64] y, int64[2] shape) {{
        go = Constant <value = bool {{1}}> ()
        z = Loop (n, go, x) <body: graph = step (int64 i, bool c, {state}) => (o, t) {{
            o = Identity (c) a = Sigmoid (s) m = Mul (a, s) t = Concat <axis = 0> (m, x)
        }}>
        e = Tanh (z) y = Mul (e, z) shape = Shape (z)
    }}"""
    source, output, _ = fused(text, tmp_path, targets=["portable"])
    plain, stock = (ort.InferenceSession(p, providers=["CPUExecutionProvider"]) for p in (source, output))
    for n in (0, 1, 3):
        feed = {"x": X[:2], "n": np.array(n)}
        for expected, found in zip(plain.run(None, feed), stock.run(None, feed), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_loop_carries_a_sequence(tmp_path: Path) -> None:
    text = """g (float[2, 64] x) => (float[6, 64] y) {
        n = Constant <value = int64 {3}> () go = Constant <value = bool {1}> () none = SequenceEmpty ()
        s = Loop (n, go, none) <body: graph = step (int64 i, bool c, q) => (o, r) {
            o = Identity (c) a = Sigmoid (x) m = Mul (a, x) r = SequenceInsert (q, m)
        }>
        y = ConcatFromSequence <axis = 0> (s)
    }"""
    _, _, report = fused(text, tmp_path, targets=["portable"])
    assert report.verification is not None
    assert report.verification.ok
    assert not report.verification.skipped


def test_a_state_may_follow_another_that_changes(tmp_path: Path) -> None:
    """Which of them change shows one iteration, and one state, after the other."""
    text = """g (float[1, b] x, int64 n) => (float[k, b] y, float[k, b] z) {
        go = Constant <value = bool {1}> ()
        y, z = Loop (n, go, x, x) <body: graph = step (int64 i, bool c, float[1, b] s, float[1, b] t) => (o, u, v) {
            o = Identity (c) u = Concat <axis = 0> (s, x) m = Exp (s) v = Sqrt (m)
        }>
    }"""
    source = tmp_path / "m.onnx"
    onnx.save(parse(text), source)
    simplified = simplify(load_model(source), lambda: load_model(source)).model
    body = next(n for n in simplified.graph if n.op_type == "Loop").attributes["body"].as_graph()
    rows, columns = zip(*(v.shape for v in body.inputs[2:]), strict=True)
    assert columns == ("b", "b")
    assert not {1, "b"} & set(rows)
    assert rows[0] != rows[1]


def test_what_a_loop_changes_the_rank_of_costs_the_rest_no_shapes(tmp_path: Path) -> None:
    text = """g (float[a, b] x, int64 n) => (y, float[a, b] z) {
        go = Constant <value = bool {1}> () front = Constant <value = int64[1] {0}> ()
        y = Loop (n, go, x) <body: graph = step (int64 i, bool c, s) => (o, t) {
            o = Identity (c) t = Unsqueeze (s, front)
        }>
        z = Exp (x)
    }"""
    source = tmp_path / "m.onnx"
    onnx.save(parse(text), source)
    simplified = simplify(load_model(source), lambda: load_model(source)).model
    y, z = simplified.graph.outputs
    body = next(n for n in simplified.graph if n.op_type == "Loop").attributes["body"].as_graph()
    assert [v.shape for v in (y, body.inputs[2], body.outputs[1])] == [None] * 3
    assert z.shape == ["a", "b"]


@pytest.mark.parametrize("declared", ["p", "float[u, v] p", "float[u, 3] p", "float[u] p"])
def test_what_comes_of_no_iteration_is_of_the_shape_that_is_declared(declared: str, tmp_path: Path) -> None:
    text = f"""g (float[n, m] x) => (y, z) {{
        go = Constant <value = bool {{1}}> () rows = Shape <start = 0, end = 1> (x) n = Squeeze (rows)
        y, z = Loop (n, go, x) <body: graph = step (int64 i, bool c, s) => (o, t, {declared}) {{
            o = Identity (c) t = Identity (s) q = Squeeze (x) p = Sin (q)
        }}>
    }}"""
    source, output, _ = fused(text, tmp_path, targets=["portable"])
    plain, stock = (ort.InferenceSession(p, providers=["CPUExecutionProvider"]) for p in (source, output))
    for rows in (0, 2):
        feed = {"x": np.ones((rows, 3), np.float32)}
        assert [a.shape for a in stock.run(None, feed)] == [a.shape for a in plain.run(None, feed)]


def test_scan_keeps_the_shapes_that_onnx_runtime_asks_for(tmp_path: Path) -> None:
    """Nothing else tells how many axes are left by a Squeeze of all that are one."""
    text = """g (float[4, a] x) => (float[b] y, float[c, b] z) {
        s = Squeeze (x) zero = Constant <value = int64 {0}> () first = Gather <axis = 0> (s, zero)
        y, z = Scan (first, s) <num_scan_inputs = 1,
            body: graph = step (float[b] p, float[b] q) => (float[b] r, float[b] t) { t = Sin (q) r = Max (p, t) }>
    }"""
    _, _, report = fused(text, tmp_path, targets=["portable"])
    assert report.verification is not None
    assert report.verification.ok
    assert not report.verification.skipped


def test_branches_of_the_same_names_of_which_one_is_decided(tmp_path: Path) -> None:
    """The nodes of that branch are then nodes of the graph around the other."""
    text = """g (float[2] x, float[n] v) => (y, z) {
        two = Constant <value = int64 {2}> () axis = Constant <value = int64 {0}> ()
        size = Size (v) open = Less (size, two)
        y = If (open) <then_branch: graph = a () => (t) { s = CumSum (x, axis) t = CumSum (s, axis) },
                       else_branch: graph = b () => (t) { t = Exp (x) }>
        own = Size (x) decided = Less (own, two)
        z = If (decided) <then_branch: graph = c () => (t) { t = Tan (x) },
                          else_branch: graph = d () => (t) { s = CumSum (x, axis) t = Sin (s) }>
    }"""
    source, output, _ = fused(text, tmp_path, targets=["portable"])
    plain, stock = (ort.InferenceSession(p, providers=["CPUExecutionProvider"]) for p in (source, output))
    for size in (1, 3):
        feed = {"x": X[0, :2], "v": np.ones(size, np.float32)}
        for expected, found in zip(plain.run(None, feed), stock.run(None, feed), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("opset", [8, 9])
def test_scan_binds_what_it_reads(opset: int, tmp_path: Path) -> None:
    batch, empty = ("1, ", '"", ') if opset == 8 else ("", "")
    text = f"""<ir_version: 5, opset_import: ["": {opset}]>
    g (float[{batch}a] x, float[{batch}seq, b] steps) => (float[{batch}a] y, float[{batch}seq, c] all) {{
        y, all = Scan ({empty}x, steps) <num_scan_inputs = 1,
            body: graph = step (float[7] s, float[7] v) => (t, p) {{ t = Neg (s) p = Neg (v) }}>
    }}"""
    source, output = tmp_path / "m.onnx", tmp_path / "f.onnx"
    proto = onnx.parser.parse_model(text.replace('"", ', "none, "))
    for node in proto.graph.node:
        node.input[:] = ["" if name == "none" else name for name in node.input]
    onnx.save(proto, source)
    fusion_cli.optimize(source, output, targets=["portable"], verify=False)
    simplified = simplify(load_model(source), lambda: load_model(source)).model
    (scan,) = simplified.graph
    shapes = [v.shape for v in (*scan.attributes["body"].as_graph().inputs, *scan.outputs)]
    leading = [1] if opset == 8 else []
    assert shapes == [["a"], ["b"], [*leading, "a"], [*leading, "seq", "b"]]
