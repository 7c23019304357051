"""What the score takes for ONNX Runtime's layouts and fusions, against the graphs that ONNX Runtime saves."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from fusion_cli.errors import Unsupported
from fusion_cli.plan import plan_region
from fusion_cli.score import Baseline, default_sizes, load_profile, score_region
from fusion_cli.score.layouts import LayoutChanges, values_of
from fusion_cli.score.vendor_fusions import fused_kernels
from fusion_cli.simplify import simplify
from fusion_cli.targets import CPU, takes_blocks
from fusion_cli.types import Options
from tests.helpers.graphs import parse
from tests.helpers.region_tools import region_of

pytestmark = pytest.mark.skipif(not takes_blocks([CPU]), reason="blocks are of 16 channels with AVX-512 only")
"""The rules for other CPUs differ in the size of a block only, which this machine's ONNX Runtime decides."""

GRAPH = "g (float[n, 16, h, w] x) => (float[n, c, h, w] y) { c = Conv(x, k16) %s y = Conv(e, k16) }"
WEIGHTS = {"k16": (16, 16, 1, 1), "scale": (16,), "one": (), "add": (1, 16, 1, 1), "k18": (18, 16, 1, 1),
           "k2": (16, 32, 1, 1), "k8": (8, 16, 1, 1), "k24": (16, 24, 1, 1), "low": (16, 8, 1, 1)}  # fmt: skip
_RESIZE = 'Resize <mode = "{}", coordinate_transformation_mode = "{}", nearest_mode = "floor"> (c, , twice)'
_SIGMOID_OF_SWISH = "HardSigmoid <alpha = 0.16666667>"
BETWEEN = [
    *(f"e = {op}(c)" for op in ("Relu", "Sigmoid", "Tanh", "HardSigmoid", "LeakyRelu", "Clip", "Elu", "Exp", "Abs")),
    *(f"r = Relu(c) t = Tanh(r) e = {op}(t)" for op in ("Sigmoid", "HardSigmoid", "LeakyRelu", "Clip", "Elu", "Erf")),
    "s = Sigmoid(c) e = Mul(c, s)",
    "s = HardSigmoid(c) e = Mul(c, s)",
    f"s = {_SIGMOID_OF_SWISH} (c) e = Mul(c, s)",
    f"t = Tanh(c) s = {_SIGMOID_OF_SWISH} (t) e = Mul(t, s)",
    f"d = Conv(x, k16) s = {_SIGMOID_OF_SWISH} (d) e = Mul(c, s)",
    "d = Conv(x, k16) s = Sigmoid(d) e = Mul(c, s)",
    "r = Relu(c) t = Tanh(r) e = Add(r, t)",
    "r = Relu(c) t = Tanh(r) e = Mul(r, t)",
    "r = Relu(c) t = Tanh(r) e = Sub(r, t)",
    "r = Relu(c) t = Tanh(r) e = Sum(r, t, r)",
    "r = Relu(c) e = Mul(r, one)",
    "r = Relu(c) e = Add(r, one)",
    "d = Conv(c, k16) e = Add(d, c)",
    "d = Conv(c, k16) a = Add(d, c) e = Relu(a)",
    "d = Conv(c, k16) a = Add(d, c) e = LeakyRelu(a)",
    "d = Conv(c, k16) r = Relu(d) a = Add(r, c) e = Relu(a)",
    "d = Conv(c, k16) a = Add(d, x) e = Relu(a)",
    "r = GlobalAveragePool(c) e = Mul(r, c)",
    "r = GlobalAveragePool(c) e = Add(r, c)",
    "r = Exp(c) p = GlobalAveragePool(r) e = Add(p, r)",
    "e = ReduceMean <axes = [2, 3]> (c)",
    "e = MaxPool <kernel_shape = [2, 2]> (c)",
    "r = Exp(c) e = AveragePool <kernel_shape = [2, 2]> (r)",
    "d = Conv(c, k18) r = Relu(d) p = MaxPool <kernel_shape = [2, 2]> (r) e = Slice(p, zero, sixteen, axis)",
    "r = Relu(c) e = BatchNormalization(r, scale, scale, scale, scale)",
    "r = Relu(c) t = Tanh(r) q = Concat <axis = 1> (r, t) d = Relu(q) e = Conv(d, k2)",
    "r = Conv(c, k8) t = Tanh(c) q = Concat <axis = 1> (r, t) d = Relu(q) e = Conv(d, k24)",
    "r = Conv(c, k8) e = Conv(r, low)",
    *(f"e = {_RESIZE.format(*way)}" for way in (("nearest", "asymmetric"), ("nearest", "half_pixel"),
                                                ("linear", "half_pixel"))),
    "t = Transpose <perm = [0, 3, 2, 1]> (c) u = Softmax <axis = 2> (t) e = Transpose <perm = [0, 3, 2, 1]> (u)",
]  # fmt: skip


def _model(body: str) -> onnx.ModelProto:
    model = parse(GRAPH % body, {name: shape for name, shape in WEIGHTS.items() if name in body or name == "k16"})
    for name, numbers in (("twice", np.float32([1, 1, 2, 2])), ("zero", np.array([0])), ("sixteen", np.array([16])),
                          ("axis", np.array([1]))):  # fmt: skip
        if name in body:
            model.graph.initializer.append(onnx.numpy_helper.from_array(numbers, name))
    return model


def _as_matched(model: onnx.ModelProto) -> ir.Model:
    """With the names that sizes have in analysis."""
    return simplify(ir.from_proto(model), partial(ir.from_proto, model), algebra=False).model


def _runs(model: onnx.ModelProto, folder: Path) -> Counter[str]:
    """The operators of the graph that ONNX Runtime saves."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(folder / "saved.onnx")
    options.log_severity_level = 4
    ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(n.op_type for n in onnx.load(options.optimized_model_filepath).graph.node)


def _reorders(found: Counter[str]) -> Counter[str]:
    return Counter({op: n for op, n in found.items() if op.startswith("Reorder")})


def _layouts(model: ir.Model) -> LayoutChanges:
    return LayoutChanges(model.graph, fused_kernels(list(model.graph), load_profile(CPU)))


def _said(model: ir.Model) -> Counter[str]:
    """The reorders that are predicted."""
    return Counter(r.op for r in _layouts(model).original.reorders(values_of(model.graph)))


@pytest.mark.parametrize("body", BETWEEN)
def test_reorders_are_those_that_onnx_runtime_inserts(body: str, tmp_path: Path) -> None:
    model = _model(body)
    assert _said(_as_matched(model)) == _reorders(_runs(model, tmp_path))


CONVOLUTIONS = [
    (16, 3, 1), (16, 8, 1), (16, 15, 1), (16, 17, 1), (16, 18, 1), (20, 20, 1), (18, 16, 1), (4, 4, 1), (3, 16, 1),
    (16, 1, 16), (20, 1, 20), (18, 1, 18), (32, 16, 2), (32, 8, 2), (32, 1, 16), (24, 16, 2),
]  # fmt: skip


@pytest.mark.parametrize(("made", "read", "groups"), CONVOLUTIONS)
def test_convolutions_that_take_blocks(made: int, read: int, groups: int, tmp_path: Path) -> None:
    text = (
        f"g (float[n, {read * groups}, h, w] x) => (float[n, {made}, h, w] y) {{ y = Conv <group = {groups}> (x, k) }}"
    )
    model = parse(text, {"k": (made, read, 1, 1)})
    assert _said(_as_matched(model)) == _reorders(_runs(model, tmp_path))


def test_a_reorder_transposes_as_well(tmp_path: Path) -> None:
    body = (
        "t = Transpose <perm = [0, 2, 3, 1]> (c) u = LayerNormalization(t, scale) "
        "e = Transpose <perm = [0, 3, 1, 2]> (u)"
    )
    model = _model(body)
    found = _runs(model, tmp_path)
    assert found["Transpose"] == 0
    assert _said(_as_matched(model)).total() + 2 == _reorders(found).total()


REGIONS = [
    ("s = Sigmoid(c) e = Mul(c, s)", "e = Exp(c)"),
    ("d = Conv(c, k16) s = Sigmoid(d) f = Mul(d, s) e = Add(f, c)", "d = Conv(c, k16) e = Max(d, c)"),
    ("r = Relu(c) t = Tanh(r) f = Add(t, r) q = Sigmoid(f) e = Conv(q, k16)",
     "r = Relu(c) t = Exp(r) f = Add(t, r) q = Sigmoid(f) e = Conv(q, k16)"),
    ("d = Conv(c, k16) a = Add(d, c) e = Relu(a)", "d = Conv(c, k16) e = Max(d, c)"),
    (f"s = {_SIGMOID_OF_SWISH} (c) e = Mul(c, s)", "e = Exp(c)"),
    ("r = Exp(c) t = Tanh(r) f = Mul(t, r) e = Relu(f)", "r = Exp(c) t = Exp(r) f = Mul(t, r) e = Relu(f)"),
]  # fmt: skip
"""With operators in blocks, and with one that takes none in the place of some of them."""


@pytest.mark.parametrize(("body", "opaque"), REGIONS)
def test_a_fusion_is_charged_for_the_reorders_that_it_causes(body: str, opaque: str, tmp_path: Path) -> None:
    model = _as_matched(_model(body))
    kept = {(n.op_type, n.outputs[0].name) for n in _as_matched(_model(opaque)).graph}
    nodes = [n for n in model.graph if (n.op_type, n.outputs[0].name) not in kept]
    gone, come = Baseline(model.graph, load_profile(CPU)).reorders(region_of(nodes))
    change = Counter(r.op for r in come)
    change.subtract(Counter(r.op for r in gone))
    before, after = (_reorders(_runs(_model(text), tmp_path)) for text in (body, opaque))
    assert {op: n for op, n in change.items() if n} == {
        op: after[op] - before[op] for op in {*before, *after} if after[op] != before[op]
    }


def test_an_activation_of_a_convolution_is_none_of_its_own() -> None:
    """By itself a kernel for it is faster than two nodes; the convolution does it for nothing, and in blocks."""
    model = _as_matched(_model(f"s = {_SIGMOID_OF_SWISH} (c) e = Mul(c, s)"))
    region = region_of([n for n in model.graph if n.op_type in ("HardSigmoid", "Mul")])
    sizes = default_sizes(model, Options(dims={"n": (1, 1), "h": (96, 96), "w": (96, 96)}))
    with pytest.raises(Unsupported) as reason:
        score_region(region, plan_region(region), Baseline(model.graph, load_profile(CPU)), sizes)
    assert re.search(r"needs ReorderOutput of c \(0\.59 MB\), ReorderInput of e \(0\.59 MB\)$", reason.value.found)


def test_a_region_beside_the_convolutions_is_charged_for_none() -> None:
    model = _as_matched(_model("r = Exp(c) t = Tanh(r) u = Abs(t) q = Sqrt(u) e = Relu(q)"))
    region = region_of([n for n in model.graph if n.op_type in ("Tanh", "Abs", "Sqrt")])
    assert Baseline(model.graph, load_profile(CPU)).reorders(region) == ([], [])
