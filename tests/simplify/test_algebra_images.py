"""Images between convolutions: padding, batch norms, gates, transposes and softmaxes over channels."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from tests.helpers.algebra_models import NCHW, NHWC, OUT, PAD, RNG, C, H, W, assert_left, model_of, operators, same
from tests.helpers.graphs import parse

LEFT = {
    "a batch norm by itself": f"r = Relu (x) o = BatchNormalization (r, mc, nc, mc, positive) y = Conv {PAD} (o, w)",
    "for others than convolutions": "r = Relu (x) q = Mul (r, m) a = Add (q, n) y = Exp (a)",
    "a gate for every place": "g = Sigmoid (x) q = Mul (x, g) y = Add (x, q)",
    "a gate of any size": "k = GlobalAveragePool (x) g = Exp (k) q = Mul (x, g) y = Add (x, q)",
    "a gated image that others read": (
        "k = GlobalAveragePool (x) g = Sigmoid (k) q = Mul (x, g) e = Add (x, q) y = Sub (q, e)"
    ),
    "another gated image": "k = GlobalAveragePool (x) g = Sigmoid (k) r = Neg (x) q = Mul (r, g) y = Add (x, q)",
    "pad with a number": "p = Pad (x, pads, half) y = Conv (p, w)",
    "pad of what the runtime pads": 'p = Pad (x, pads) y = Conv <auto_pad = "SAME_UPPER"> (p, w)',
    "pad of another kind": 'p = Pad <mode = "edge"> (x, pads) y = Conv (p, w)',
    "other transposes": f"p = Transpose {NHWC} (x) y = Transpose {NHWC} (p)",
    "a norm of rows between": f"p = Transpose {NHWC} (x) q = Softmax (p) y = Transpose {NCHW} (q)",
}


@pytest.mark.parametrize("case", LEFT)
def test_what_would_not_be_the_same_is_left(case: str) -> None:
    assert_left(LEFT[case])


def test_a_pad_of_channels_is_left() -> None:
    assert_left("p = Pad (x, channel_pads) y = Conv (p, wp)", wp=(OUT, C + 1, 3, 3))


def test_a_pad_of_an_older_opset_is_left() -> None:
    found = same(model_of("p = Pad <pads = [0, 0, 1, 1, 0, 0, 1, 1]> (x) y = Conv (p, w)", opset=10))
    assert operators(found) == "Pad Conv"


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
