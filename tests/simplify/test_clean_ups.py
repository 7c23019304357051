"""What the clean-ups before matching fold, merge and leave, in models that few exporters write."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper

from fusion_cli.score import Baseline, load_profile
from fusion_cli.targets import resolve_targets
from fusion_cli.types import Region
from tests.helpers.foreign import Both, X, same
from tests.helpers.graphs import matches, parse, simplified


@pytest.mark.parametrize("draw", ["Dropout (x, half, yes)", "Bernoulli (x)"])
def test_two_draws_are_not_one(draw: str) -> None:
    text = f"""g (float[2, 3, 4] x) => (float[2, 3, 4] a, float[2, 3, 4] b) {{
        half = Constant <value = float {{0.5}}> () yes = Constant <value = bool {{1}}> () a = {draw} b = {draw} }}"""
    left = simplified(parse(text))
    assert [n.op_type for n in left.graph].count(draw.split()[0]) == 2


def test_a_sum_of_two_is_an_addition() -> None:
    left = simplified(parse("g (float[2] x, float[2] y) => (float[2] z) { a = Sum (x, y) z = Sum (a, x, y) }"))
    assert [n.op_type for n in left.graph] == ["Add", "Sum"]


def test_a_size_in_writing_is_a_number() -> None:
    """A Reshape to sizes taken from shapes at run time: inference computes 2 x 4 by symbols."""
    text = """g (float[n, m, 2, 4] x) => (float[n, m, k] y) {
        zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> () s = Shape (x)
        a = Gather (s, zero) b = Gather (s, one) last = Constant <value_ints = [-1]> ()
        shape = Concat <axis = 0> (a, b, last) r = Reshape (x, shape) y = Relu (r) }"""
    relu = next(n for n in simplified(parse(text)).graph if n.op_type == "Relu")
    assert relu.inputs[0] is not None
    assert relu.inputs[0].shape is not None
    assert relu.inputs[0].shape[2] == 8


def test_calls_of_a_function_have_sizes_of_their_own() -> None:
    text = """<ir_version: 10, opset_import: ["": 18, "local": 1]>
    g (float[n, 4] x, float[m, 4] z) => (float[n, 4] u, float[m, 4] v) { u = local.f (x) v = local.f (z) }
    <domain: "local", opset_import: ["": 18]>
    f (x) => (y) <float[n, 4] a, float[n, 4] b> { a = Sin (x) b = Softmax (a) y = Cos (b) }"""
    made = [node.outputs[0].shape for node in simplified(onnx.parser.parse_model(text)).graph]
    assert made == [ir.Shape(["n", 4])] * 3 + [ir.Shape(["m", 4])] * 3


def test_layers_on_constants_are_left_for_the_rules_and_outer_products_are_not() -> None:
    """As ONNX Runtime computes them once, they are no work that a kernel could save."""
    text = """g (float[4, 8] x) => (float[4, 8] y) { m = MatMul (q, w) a = Relu (m) t = MatMul (column, row)
        u = Cos (t) b = Add (a, u) y = Add (x, b) }"""
    model = parse(text, {"q": (4, 8), "w": (8, 8), "column": (4, 1), "row": (1, 8)})
    left = simplified(model)
    assert [n.op_type for n in left.graph] == ["MatMul", "Relu", "Add", "Add"]
    baseline = Baseline(left.graph, load_profile(resolve_targets(("cpu",))[0]))
    region = Region("r", tuple(left.graph)[:2], (), (), (left.graph[1].outputs[0],))
    assert baseline.work(region, {}) == ([], [])


def test_a_clean_up_that_breaks_off_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: ir.Model) -> None:
        model.graph.outputs.clear()
        raise ValueError("half done")

    monkeypatch.setattr("fusion_cli.simplify.apply_algebra", broken)
    left = simplified(parse("g (float[2] x) => (float[2] y) { a = Identity (x) b = Relu (a) y = Identity (b) }"))
    assert [v.name for v in left.graph.outputs] == ["y"]
    assert "Relu" in [n.op_type for n in left.graph]
    assert len(left.graph) < 3


def test_an_identity_at_an_output_stays_only_where_something_else_reads_its_operand() -> None:
    alone = simplified(parse("g (float[2] x) => (float[2] y) { r = Relu (x) y = Identity (r) }"))
    assert [n.op_type for n in alone.graph] == ["Relu"]
    read = simplified(parse("g (float[2] x) => (float[2] y, float[2] z) { r = Relu (x) y = Identity (r) z = Neg (r) }"))
    assert sorted(n.op_type for n in read.graph) == ["Identity", "Neg", "Relu"]


@pytest.mark.parametrize(("training", "count"), [("", 1), ("half, no", 1), ("half, yes", 0), ("half, mode", 0)])
def test_a_dropout_is_seen_through_at_inference_only(training: str, count: int) -> None:
    text = f"""g (float[n, 64] x, bool mode) => (float[n, 64] y) {{
        half = Constant <value = float {{0.5}}> () yes = Constant <value = bool {{1}}> ()
        no = Constant <value = bool {{0}}> () s = Sigmoid (x) d = Dropout (s{", " + training if training else ""})
        y = Mul (x, d) }}"""
    assert matches(parse(text)).idioms.get("Silu", 0) == count


def test_inputs_that_default_to_equal_values_stay_apart(both: Both) -> None:
    model = parse(
        "g (float[4] x, float[4] v = {1, 2, 3, 4}, float[4] w = {1, 2, 3, 4}) => (float[4] y) "
        "{ a = Mul (x, v) y = Add (a, w) }"
    )
    runs = both(model)
    x = X[0, 0]
    same(runs, x=x)
    same(runs, x=x, w=2 * x)
    same(runs, x=x, v=3 * x)


@pytest.mark.parametrize("operator", ["GlobalMaxPool", "LogSoftmax"])
def test_what_the_reference_gets_wrong_is_not_folded(operator: str, both: Both) -> None:
    model = parse(f"g (float[2, 3, 4] x) => (y) {{ p = {operator} (k) y = Add (x, p) }}", {"k": (2, 3, 4)})
    (tensor,) = model.graph.initializer
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(300), "k"))
    same(both(model), x=X)


AXES = ["-2, -1", "-1, -3", "0, -1", "1, 2"]


@pytest.mark.parametrize("axes", AXES)
def test_old_unsqueeze_of_constants(axes: str, both: Both) -> None:
    model = parse(
        f"g (float[2, 3, 4] x) => (y) {{ c = Unsqueeze <axes = [{axes}]> (k) s = Shape (c) "
        f"f = Cast <to = 1> (s) t = ReduceSum (x) y = Mul (f, t) }}",
        {"k": (5,)},
        opset=11,
    )
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    same(both(model), x=X)


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax", "Softmax <axis = 1>", "Softmax <axis = -2>"])
def test_old_softmax_of_constants(operator: str, both: Both) -> None:
    name, _, attributes = operator.partition(" ")
    model = parse(
        f"g (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ p = {name} {attributes} (k) y = Add (x, p) }}",
        {"k": (2, 3, 4)},
        opset=11,
    )
    same(both(model), x=X)


@pytest.mark.parametrize("opset", [7, 11, 15])
def test_a_known_shape_is_an_output(opset: int, both: Both) -> None:
    model = parse(
        "g (float[2, 3, 4] x) => (int64[3] s, int64[2] d) { s = Shape (x) i = Constant <value = int64[2] {2, 0}> () "
        "d = Gather (s, i) }",
        opset=opset,
    )
    same(both(model), x=X)


def test_branches_that_shapes_decide_are_decided_one_behind_the_other() -> None:
    """What one branch gives is the shape that the next depends on, as in upsamplers that TorchScript wrote."""

    def squeezed(i: int) -> str:
        """A value without its last axis if that is of size 1, else the value."""
        before, after = (f"float[{', '.join('nmklpq'[:rank])}]" for rank in (6 - i, 5 - i))
        return f"""s{i} = Shape (v{i}) d{i} = Gather (s{i}, i{5 - i}) c{i} = Equal (d{i}, one) v{i + 1} = If (c{i}) <
                then_branch = t{i} () => ({after} tv{i}) {{ tv{i} = Squeeze (v{i}, last) }},
                else_branch = e{i} () => ({before} ev{i}) {{ ev{i} = Identity (v{i}) }}
            >"""

    numbers = " ".join(f"i{i} = Constant <value = int64 {{{i}}}> ()" for i in range(1, 6))
    numbers += " one = Constant <value = int64 {1}> () last = Constant <value = int64[1] {-1}> ()"
    layers = " ".join(map(squeezed, range(5)))
    text = f"g (float[4, 1, 1, 1, 1, 1] v0) => (float[m] y) {{ {numbers} {layers} y = Relu (v5) }}"
    model = simplified(parse(text))
    assert [n.op_type for n in model.graph] == [*["Squeeze"] * 5, "Relu"]
