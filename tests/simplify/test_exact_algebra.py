"""What algebra writes with fewer operators, what it leaves, and that both compute the same."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from onnx import numpy_helper

from fusion_cli.simplify import Simplified, simplify
from tests.helpers.graphs import parse

RNG = np.random.default_rng(3)
C, H, W, OUT = 6, 7, 5, 8
IMAGE = f"float[2, {C}, {H}, {W}] x"
WEIGHTS = {
    "w": (OUT, C, 3, 3),
    "b": (OUT,),
    "wg": (OUT, C // 2, 3, 3),
    "w1": (OUT, C, 1, 1),
    "wt": (C, OUT // 2, 2, 2),
    "wk": (C, OUT),
    "wn": (OUT, C),
    "s": (OUT, 1, 1),
    "t": (1, OUT, 1, 1),
    "v": (OUT,),
    "u": (OUT,),
    "m": (1, C, 1, 1),
    "n": (C, 1, 1),
    "mc": (C,),
    "nc": (C,),
    "row": (1, OUT),
    "place": (1, OUT, 5, 1),
}
"""Constants whose last size tells an axis of OUT from one of W."""


def constants(text: str) -> dict[str, np.ndarray]:
    found = {k: RNG.normal(size=s).astype(np.float32) for k, s in WEIGHTS.items()}
    found["var"] = RNG.uniform(0.5, 2, OUT).astype(np.float32)
    found |= {
        k: np.float32(v)
        for k, v in {"zero": 0, "half": 0.5, "three": 3, "six": 6, "sixth": 1 / 6, "minus": -1, "huge": 2**24}.items()
    }
    found["positive"] = np.ones(C, np.float32)
    found["pads"] = np.array([0, 0, 1, 2, 0, 0, 0, 1])
    found["channel_pads"] = np.array([0, 1, 1, 1, 0, 0, 1, 1])
    return {k: v for k, v in found.items() if f" {k}" in text.replace("(", " ").replace(",", " ")}


def model_of(body: str, inputs: str = IMAGE, opset: int = 17, outputs: str = "float[a, c, d, e] y") -> onnx.ModelProto:
    model = parse(f"g ({inputs}) => ({outputs}) {{ {body} }}", opset=opset)
    for name, array in constants(body).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, feeds)
    return found


def same(model: onnx.ModelProto, size: int = 3) -> Simplified:
    """The simplified model, which computes what the model does, with this size where it names one."""
    feeds = {}
    for value in ir.from_proto(model).graph.inputs:
        assert value.shape is not None
        sizes = [d if isinstance(d, int) else size for d in value.shape]
        feeds[str(value.name)] = RNG.normal(size=sizes).astype(np.float32) * 4
    found = simplify(ir.from_proto(model), partial(ir.from_proto, model))
    for expected, got in zip(run(model, feeds), run(ir.to_proto(found.model), feeds), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    return found


def operators(found: Simplified) -> str:
    return " ".join(n.op_type for n in found.model.graph)


PAD = "<pads = [1, 1, 1, 1]>"
NHWC = "<perm = [0, 2, 3, 1]>"
NCHW = "<perm = [0, 3, 1, 2]>"
GATE = "a = Add (c, three) g = Clip (a, zero, six)"
FOLDED = {
    "scale and shift": (f"c = Conv {PAD} (x, w) q = Mul (c, s) y = Add (q, t)", "Conv", "ConvAffine"),
    "with a bias": (f"c = Conv {PAD} (x, w, b) q = Mul (s, c) y = Add (t, q)", "Conv", "ConvAffine"),
    "groups": ("c = Conv <group = 2> (x, wg, b) q = Sub (c, t) y = Div (q, s)", "Conv", "ConvAffine"),
    "taken from a constant": ("c = Conv (x, w) q = Sub (t, c) y = Mul (q, half)", "Conv", "ConvAffine"),
    "bias alone": ("c = Conv (x, w) y = Add (c, t)", "Conv", "ConvAffine"),
    "batch norm": ("c = Conv (x, w, b) y = BatchNormalization (c, v, u, b, var)", "Conv", "ConvAffine"),
    "behind a transpose": (
        f"c = Conv (x, w) p = Transpose {NHWC} (c) q = Mul (p, v) y = Add (q, u)",
        "Conv Transpose",
        "ConvAffine",
    ),
    "transposed convolution": (
        "c = ConvTranspose <group = 2, strides = [2, 2]> (x, wt) q = Mul (c, s) y = Add (q, t)",
        "ConvTranspose",
        "ConvTransposeAffine",
    ),
    "scale before a padded one": (f"q = Mul (x, m) y = Conv {PAD} (q, w)", "Conv", "AffineConv"),
    "before": ("q = Sub (x, m) p = Mul (q, n) y = Conv (p, w)", "Conv", "AffineConv"),
    "before groups": ("q = Div (x, half) p = Add (q, n) y = Conv <group = 2> (p, wg, b)", "Conv", "AffineConv"),
    "before a padded one": (f"q = Sub (x, m) p = Mul (q, n) y = Conv {PAD} (p, w, b)", "Add Conv", "AffineConv"),
    "before a transposed one": (
        "q = Mul (x, n) y = ConvTranspose <group = 2> (q, wt)",
        "ConvTranspose",
        "AffineConvTranspose",
    ),
    "pad": ("p = Pad (x, pads) y = Conv (p, w)", "Conv", "PadConv"),
    "pad with a padded one": (f"p = Pad (x, pads, zero) y = Conv {PAD} (p, w1)", "Conv", "PadConv"),
    "hard swish": (f"c = Relu (x) {GATE} q = Mul (c, g) y = Div (q, six)", "Relu HardSwish", "HardSwish"),
    "hard swish by a sixth": (f"c = Relu (x) {GATE} q = Mul (g, c) y = Mul (sixth, q)", "Relu HardSwish", "HardSwish"),
    "hard swish of a gate": (f"c = Relu (x) {GATE} q = Div (g, six) y = Mul (c, q)", "Relu HardSwish", "HardSwish"),
    "hard sigmoid": (f"c = Relu (x) {GATE} y = Div (g, six)", "Relu HardSigmoid", "HardSigmoid"),
    "hard sigmoid, not a bias": (f"c = Conv (x, w) {GATE} y = Div (g, six)", "Conv HardSigmoid", "HardSigmoid"),
    "products": ("q = Mul (x, half) r = Div (q, six) y = Mul (three, r)", "Mul", "MulMul"),
    "a bound after a bound": ("r = Relu (x) y = Clip (r, minus, three)", "Clip", "ClipClip"),
    "bounds of one side": ("q = Clip (x, , six) y = Min (q, three)", "Clip", "ClipClip"),
    "bounds the wrong way": ("q = Clip (x, three, six) y = Clip (q, minus, half)", "Clip", "ClipClip"),
    "bounds that exclude each other": ("r = Relu (x) y = Clip (r, three, half)", "Clip", "ClipClip"),
    "positive twice": ("q = Max (x, minus) y = Relu (q)", "Relu", "ClipClip"),
    "hard swish of two bounds": (
        "a = Add (x, three) r = Relu (a) g = Min (r, six) q = Mul (x, g) y = Div (q, six)",
        "HardSwish",
        "HardSwish",
    ),
    "between convolutions": (
        f"r = Relu (x) q = Mul (r, m) a = Add (q, half) y = Conv {PAD} (a, w)",
        "Relu BatchNormalization Conv",
        "BatchNorm",
    ),
    "between convolutions, and read by others": (
        "r = Relu (x) q = Mul (r, m) a = Add (q, half) k = GlobalAveragePool (a) y = Mul (a, k)",
        "Relu BatchNormalization GlobalAveragePool Mul",
        "BatchNorm",
    ),
    "an image and its gated self": (
        "k = GlobalAveragePool (x) g = HardSigmoid (k) q = Mul (g, x) y = Add (x, q)",
        "GlobalAveragePool HardSigmoid Add Mul",
        "AddMul",
    ),
    "hard swish with a factor": (
        f"c = Relu (x) {GATE} q = Mul (c, g) d = Div (q, six) y = Mul (d, three)",
        "Relu HardSwish Mul",
        "HardSwish",
    ),
    "transposes": (f"p = Transpose {NHWC} (x) y = Transpose {NCHW} (p)", "Identity", "TransposeTranspose"),
    "transposes around": (
        f"p = Transpose {NHWC} (x) q = Mul (p, mc) a = Sub (three, q) r = Relu (a) y = Transpose {NCHW} (r)",
        "Mul Sub Relu",
        "TransposeTranspose",
    ),
}


@pytest.mark.parametrize("case", FOLDED)
def test_fewer_operators_compute_the_same(case: str) -> None:
    body, left, rule = FOLDED[case]
    found = same(model_of(body))
    assert operators(found) == left
    assert rule in [r.rule for r in found.algebra]


LEFT = {
    "shift before a padded one": f"q = Add (x, m) y = Conv {PAD} (q, w)",
    "padding that the runtime chooses": 'q = Add (x, m) y = Conv <auto_pad = "SAME_UPPER"> (q, w)',
    "numbers by place": "c = Conv (x, w) y = Mul (c, place)",
    "the wrong axis": "c = Conv <dilations = [1, 2], pads = [0, 4, 0, 3]> (x, w) y = Mul (c, v)",
    "more channels by it": "c = ReduceMean <axes = [1]> (x) q = Mul (c, m) y = Conv (q, w)",
    "of higher rank": "c = Conv (x, w) y = Mul (c, five)",
    "rounding by addition": "c = Conv (x, w) q = Add (c, huge) y = Sub (q, huge)",
    "rounding of numbers": "r = Softplus (x) q = Add (r, huge) y = Sub (q, huge)",
    "bounds that rules know": "q = Max (x, minus) y = Min (three, q)",
    "computed bounds": "r = Relu (x) k = ReduceMax <keepdims = 0> (x) y = Clip (r, minus, k)",
    "division of a number": "q = Mul (x, half) y = Div (three, q)",
    "factors of an activation": "e = Erf (x) a = Mul (x, e) h = Mul (a, half) y = Mul (h, three)",
    "products of a factor that others read": "q = Mul (x, half) r = Mul (q, three) y = Sub (q, r)",
    "a batch norm by itself": f"r = Relu (x) o = BatchNormalization (r, mc, nc, mc, positive) y = Conv {PAD} (o, w)",
    "for others than convolutions": "r = Relu (x) q = Mul (r, m) a = Add (q, n) y = Exp (a)",
    "a gate for every place": "g = Sigmoid (x) q = Mul (x, g) y = Add (x, q)",
    "a gate of any size": "k = GlobalAveragePool (x) g = Exp (k) q = Mul (x, g) y = Add (x, q)",
    "a gated image that others read": (
        "k = GlobalAveragePool (x) g = Sigmoid (k) q = Mul (x, g) e = Add (x, q) y = Sub (q, e)"
    ),
    "another gated image": "k = GlobalAveragePool (x) g = Sigmoid (k) r = Neg (x) q = Mul (r, g) y = Add (x, q)",
    "pad of channels": "p = Pad (x, channel_pads) y = Conv (p, wp)",
    "pad with a number": "p = Pad (x, pads, half) y = Conv (p, w)",
    "pad of another kind": 'p = Pad <mode = "edge"> (x, pads) y = Conv (p, w)',
    "other bounds": "a = Add (x, three) g = Clip (a, half, six) q = Mul (x, g) y = Div (q, six)",
    "another x": "a = Add (x, three) g = Clip (a, zero, six) r = Relu (x) q = Mul (r, g) y = Div (q, six)",
    "another slope": "g = HardSigmoid (x) y = Mul (x, g)",
    "other transposes": f"p = Transpose {NHWC} (x) y = Transpose {NHWC} (p)",
    "a norm of rows between": f"p = Transpose {NHWC} (x) q = Softmax (p) y = Transpose {NCHW} (q)",
    "weight of a norm": "d = ReduceMax <axes = [2, 3]> (x) r = Div (x, d) q = Mul (r, m) y = Conv (q, w)",
}
EXTRA = {"five": (1, 1, 1, 1, 1), "wp": (OUT, C + 1, 3, 3)}


@pytest.mark.parametrize("case", LEFT)
def test_what_would_not_be_the_same_is_left(case: str) -> None:
    body = LEFT[case]
    outputs = "float[a, c, d, e, f] y" if case == "of higher rank" else "float[a, c, d, e] y"
    model = model_of(body, outputs=outputs)
    for name, shape in EXTRA.items():
        if f"{name})" in body:
            model.graph.initializer.append(numpy_helper.from_array(RNG.normal(size=shape).astype(np.float32), name))
    found = same(model)
    assert sorted(operators(found).split()) == sorted(n.op_type for n in model.graph.node)
    assert not found.algebra


ROWS, MADE = f"float[k, {C}] x", f"float[k, {OUT}] y"
PRODUCTS = {
    "batch norm of a Gemm": (
        "c = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (x, wn, row) y = BatchNormalization (c, v, u, b, var)",
        "Gemm",
    ),
    "no factor for the bias": ("c = Gemm <beta = 0.0> (x, wk, v) y = BatchNormalization (c, v, u, b, var)", "Gemm"),
    "before a Gemm": ("q = Mul (x, mc) p = Add (q, nc) y = Gemm <alpha = 0.5> (p, wk, v)", "Gemm"),
    "after a MatMul": ("c = MatMul (x, wk) q = Mul (c, v) y = Add (q, u)", "MatMul Add"),
    "bias between": ("c = MatMul (x, wk) q = Add (c, v) y = Mul (q, u)", "MatMul Add"),
    "before a MatMul": ("q = Sub (x, mc) p = Div (q, nc) y = MatMul (p, wk)", "Add MatMul"),
    "a number before a MatMul": ("q = Div (x, six) y = MatMul (q, wk)", "MatMul"),
    "biases stay": ("c = MatMul (x, wk) y = Add (c, v)", "MatMul Add"),
    "the scale of an attention stays": ("c = MatMul (x, wk) a = Add (c, v) y = Mul (a, half)", "MatMul Add Mul"),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_products_take_numbers_by_column(case: str) -> None:
    body, left = PRODUCTS[case]
    assert operators(same(model_of(body, ROWS, outputs=MADE))) == left


def test_a_matmul_of_stacked_rows() -> None:
    body = "c = MatMul (x, wk) q = Mul (c, row) p = Transpose <perm = [0, 2, 1]> (q) y = Sub (p, bt)"
    model = model_of(body, f"float[n, k, {C}] x", outputs=f"float[n, {OUT}, k] y")
    model.graph.initializer.append(numpy_helper.from_array(RNG.normal(size=(OUT, 1)).astype(np.float32), "bt"))
    assert operators(same(model)) == "MatMul Transpose Add"


def test_an_image_is_normalised_in_the_first_layer() -> None:
    body = f"q = Div (x, half) p = Sub (q, mc) r = Div (p, nc) i = Transpose {NCHW} (r) y = Conv {PAD} (i, w)"
    assert operators(same(model_of(body, f"float[2, a, b, {C}] x"))) == "Add Transpose Conv"
    assert operators(same(model_of(body.replace(PAD, ""), f"float[2, a, b, {C}] x"))) == "Transpose Conv"


BESIDE = {
    "weights of two": ("c = Conv (x, w) q = Mul (c, s) r = Relu (x) o = Conv (r, w) y = Add (q, o)", 5),
    "a second reader": ("c = Conv (x, w) q = Mul (c, s) y = Sub (q, c)", 3),
    "twice the same": ("c = Conv (x, w) y = Mul (c, c)", 2),
    "a reader in a body": (
        "c = Conv (x, w) q = Mul (c, s) k = ReduceSum <keepdims = 0> (q) i = Cast <to = 9> (k) "
        "e = If (i) <then_branch = f () => (float[a, c, d, e] o) { o = Neg (c) }, "
        "else_branch = g () => (float[a, c, d, e] r) { r = Exp (c) }> y = Add (q, e)",
        6,
    ),
    "a reader in a body alone": (
        "c = Conv (x, w) k = ReduceSum <keepdims = 0> (x) i = Cast <to = 9> (k) "
        "y = If (i) <then_branch = f () => (float[a, c, d, e] o) { o = Mul (c, s) }, "
        "else_branch = g () => (float[a, c, d, e] r) { r = Relu (x) }>",
        4,
    ),
}


@pytest.mark.parametrize("case", BESIDE)
def test_what_others_read_is_left(case: str) -> None:
    body, nodes = BESIDE[case]
    found = same(model_of(body))
    assert len(found.model.graph) == nodes
    assert not found.algebra


def test_results_that_are_outputs_are_left_and_keep_their_names() -> None:
    outputs = "float[a, c, d, e] c, float[a, c, d, e] y"
    found = same(model_of("c = Conv (x, w) q = Mul (c, s) y = Add (q, t)", outputs=outputs))
    assert operators(found) == "Conv Mul Add"
    outputs = "float[a, c, d, e] a, float[f, g, h, i] y"
    found = same(model_of(f"r = Relu (x) q = Mul (r, m) a = Add (q, n) y = Conv {PAD} (a, w)", outputs=outputs))
    assert operators(found) == "Relu Mul Add Conv"
    found = same(model_of("c = Conv (x, w) y = Mul (c, s)"))
    assert [v.name for v in found.model.graph.outputs] == ["y"]


def test_constants_that_callers_may_override_are_none() -> None:
    model = model_of("c = Conv (x, w) y = Mul (c, s)", f"{IMAGE}, float[{OUT}, 1, 1] s")
    assert operators(same(model)) == "Conv Mul"


def test_channels_are_to_be_known() -> None:
    """One channel times a constant of more is as many."""
    model = model_of("q = Mul (x, m) y = Conv (q, w)", "float[2, k, 7, 5] x")
    assert operators(same(model, size=1)) == "Mul Conv"


@pytest.mark.parametrize(("scale", "left"), [(2.0, "Conv"), (3e5, "Conv Mul"), (1e-8, "Conv Mul")])
def test_numbers_that_do_not_fit_their_type_are_left(scale: float, left: str) -> None:
    """Of a scale in float32 there could be none in a model of fp16: two make it."""
    text = f"g (float16[2, {C}, 7, 5] x) => (float16[a, b, c, d] y) {{ c = Conv (x, w) p = Mul (c, s) y = Mul (p, s) }}"
    model = parse(text, {"w": (OUT, C, 3, 3)}, dtype=np.float16)
    model.graph.initializer.append(numpy_helper.from_array(np.full((1, 1, 1), scale**0.5, np.float16), "s"))
    found = simplify(ir.from_proto(model), partial(ir.from_proto, model))
    assert operators(found) == left.replace("Mul", "Mul Mul")


@pytest.mark.parametrize(
    ("opset", "gate", "left"),
    [
        (13, GATE, "Relu HardSigmoid Mul"),
        (9, "a = Add (c, three) g = Clip <min = 0.0, max = 6.0> (a)", "Relu HardSigmoid Mul"),
        (9, "a = Add (c, three) g = Clip <min = 0.0> (a)", "Relu Add Clip Mul Div"),
    ],
)
def test_hard_swish_before_the_opset_that_has_it(opset: int, gate: str, left: str) -> None:
    found = same(model_of(f"c = Relu (x) {gate} q = Mul (c, g) y = Div (q, six)", opset=opset))
    assert operators(found) == left


@pytest.mark.parametrize(("attributes", "left"), [("", "Conv"), (PAD, "BatchNormalization Conv")])
def test_what_follows_a_hard_swish_before_its_opset(attributes: str, left: str) -> None:
    body = f"c = Relu (x) {GATE} q = Mul (c, g) d = Div (q, six) e = Mul (d, half) f = Add (e, m) "
    found = same(model_of(f"{body} y = Conv {attributes} (f, w)", opset=13))
    assert operators(found) == f"Relu HardSigmoid Mul {left}"


BOXES = f"float[2, {C}, {H}, {W}] x"
MEAN = "t = Transpose <perm = [0, 2, 1, 3]> (x) m = Softmax <axis = 1> (t) c = Conv (m, wd) y = Reshape (c, flat)"
MEANS = {
    "as it is": (MEAN, "Transpose Softmax MatMul Transpose Reshape"),
    "counted from behind": (MEAN.replace("axis = 1", "axis = -3"), "Transpose Softmax MatMul Transpose Reshape"),
    "over another axis": (MEAN.replace("axis = 1", "axis = 2"), ""),
    "with a bias": (MEAN.replace("wd)", "wd, one)"), ""),
    "with steps": (MEAN.replace("Conv", "Conv <strides = [1, 2]>").replace("flat", "half"), ""),
    "with padding": (MEAN.replace("Conv", "Conv <pads = [0, 0, 0, 1]>").replace("flat", "most"), ""),
    "of two channels": (MEAN.replace("wd", "wd2").replace("flat", "two"), ""),
    "read as an image": (MEAN.replace("c, flat", "c, keep"), "Transpose Softmax MatMul Transpose Reshape"),
    "read twice": (
        f"{MEAN} ".replace(
            "y = Reshape (c", "e = Exp (m) z = ReduceSum <keepdims = 0> (e) d = Add (c, z) y = Reshape (d"
        ),
        "",
    ),
}
MEAN_CONSTANTS = {
    "wd": RNG.normal(size=(1, H, 1, 1)).astype(np.float32),
    "wd2": RNG.normal(size=(2, H, 1, 1)).astype(np.float32),
    "one": np.ones(1, np.float32),
    "flat": np.array([0, C, W]),
    "half": np.array([0, C, 3]),
    "most": np.array([0, C, W + 1]),
    "two": np.array([0, 2 * C, W]),
    "keep": np.array([0, 0, -1]),
}


@pytest.mark.parametrize("case", MEANS)
def test_means_over_a_softmax_of_channels(case: str) -> None:
    body, left = MEANS[case]
    model = parse(f"g ({BOXES}) => (float[a, b, d] y) {{ {body} }}", opset=17)
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in MEAN_CONSTANTS.items() if k in used)
    assert operators(same(model)) == (left or " ".join(n.op_type for n in model.graph.node))


def test_channels_that_training_has_given_up_are_folded_too() -> None:
    """Subnormal numbers have lost their last bits already; others, which would, are left as they are."""
    model = model_of("c = Conv (x, w) q = Mul (c, s) y = Add (q, t)")
    faint, scale = RNG.normal(size=(OUT, C, 3, 3)).astype(np.float32), np.full((OUT, 1, 1), 0.37, np.float32)
    faint[2] *= np.float32(1e-40)
    scale[5] = 1e-41
    for tensor, array in ((model.graph.initializer[0], faint), (model.graph.initializer[1], scale)):
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    assert [t.name for t in model.graph.initializer[:2]] == ["w", "s"]
    assert operators(same(model)) == "Conv"
    faint[2], scale[2] = 1e-25, 1e-18
    for tensor, array in ((model.graph.initializer[0], faint), (model.graph.initializer[1], scale)):
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    assert operators(same(model)) == "Conv Mul Add"


def test_a_pad_of_an_older_opset_is_left() -> None:
    found = same(model_of("p = Pad <pads = [0, 0, 1, 1, 0, 0, 1, 1]> (x) y = Conv (p, w)", opset=10))
    assert operators(found) == "Pad Conv"


def test_what_was_applied_is_listed_and_can_be_left_out() -> None:
    model = model_of("c = Conv (x, w) q = Mul (c, s) y = Add (q, t) ")
    (found,) = same(model).algebra
    assert (found.rule, found.places, found.nodes) == ("ConvAffine", 1, ("Conv->c", "Mul->q", "Add->y"))
    plain = simplify(ir.from_proto(model), partial(ir.from_proto, model), algebra=False)
    assert (operators(plain), plain.algebra) == ("Conv Mul Add", ())


def random_chain(rng: np.random.Generator, count: int) -> tuple[list[str], dict[str, np.ndarray], str]:
    """Affine nodes with numbers by channel or one for all, some behind Transposes, from `a` to the value it names."""
    lines: list[str] = []
    arrays: dict[str, np.ndarray] = {}
    value, axis = "a", 1
    for i in range(int(rng.integers(1, 6))):
        result = f"{value}{i}"
        if rng.random() < 0.3:
            perm = rng.permutation(4)
            axis = int(np.flatnonzero(perm == axis)[0])
            lines.append(f"{result} = Transpose <perm = {perm.tolist()}> ({value})")
        else:
            shape = (count, *[1] * (3 - axis)) if rng.random() < 0.7 else ()
            arrays[f"k{result}"] = rng.uniform(0.5, 2, shape).astype(np.float32)
            operator, first, second = rng.choice(["Mul", "Add", "Sub", "Div"]), value, f"k{result}"
            if operator != "Div" and rng.random() < 0.5:
                first, second = second, first
            lines.append(f"{result} = {operator} ({first}, {second})")
        value = result
    return lines, arrays, value


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("layer", ["Conv", "ConvTranspose"])
def test_random_chains_after_a_convolution(seed: int, layer: str) -> None:
    rng = np.random.default_rng(seed)
    groups, kernel = int(rng.choice([1, 2, 3])), rng.integers(1, 4, 2).tolist()
    read, made = groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))
    first, second = (made, read) if layer == "Conv" else (read, made)
    lines, arrays, last = random_chain(rng, made)
    arrays |= {"w": rng.normal(size=(first, second // groups, *kernel)).astype(np.float32)}
    attributes = f"<group = {groups}, strides = [2, 1], pads = {rng.integers(0, 2, 4).tolist()}>"
    text = f"g (float[2, {read}, 9, 7] x) => (float[p, q, r, s] {last}) {{ a = {layer} {attributes} (x, w) "
    model = parse(f"{text} {' '.join(lines)} }}")
    model.graph.initializer.extend(numpy_helper.from_array(v, k) for k, v in arrays.items())
    left = operators(same(model)).split()
    assert [n for n in left if n != "Transpose"] == [layer]
