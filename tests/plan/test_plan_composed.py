"""Operators that are compiled as what they stand for, those of com.microsoft above all: their CPU kernels, and ONNX
Runtime's, against double precision."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.plan import plan_region
from fusion_cli.types import FusedOp
from tests.helpers.definitions import FUNCTIONS, sigmoid
from tests.helpers.emit_helpers import library, open_session, run
from tests.helpers.graphs import matches, operators, parse
from tests.helpers.plan_builder import fused_op
from tests.helpers.region_tools import all_values, largest_error, parsed, whole

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

Array = np.ndarray
erf_gelu, tanh_gelu = FUNCTIONS["GeluErf"], FUNCTIONS["GeluTanh"]


def layer_norm(x: Array, gamma: Array, beta: Array | float = 0.0, epsilon: float = 1e-12) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * gamma + beta


def rms_norm(x: Array, gamma: Array, epsilon: float = 1e-12) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * gamma


def softmax(x: Array, axis: int) -> Array:
    powers = np.exp(x - x.max(axis, keepdims=True, initial=-math.inf))
    return powers / powers.sum(axis, keepdims=True)


@dataclass(frozen=True)
class Case:
    """An operator on inputs of these dimensions, its outputs, and what these are; `kernels` is how many it takes."""

    call: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    reference: Callable[..., Sequence[Array]]
    kernels: int = 1

    def model(self, dtype: str = "float") -> ir.Model:
        ins, outs = (", ".join(f"{dtype}[{d}] {n}" for n, d in v.items()) for v in (self.inputs, self.outputs))
        return parsed(f"g ({ins}) => ({outs}) {{ {self.call} }}")


X, SKIPPED = {"x": "B, S, D"}, {"x": "B, S, D", "s": "B, S, D", "g": "D"}
Y, SUM = {"y": "B, S, D"}, {"y": "B, S, D", "t": "B, S, D"}
CASES = {
    "gelu": Case("y = com.microsoft.Gelu (x)", X, Y, lambda x: [erf_gelu(x)]),
    "bias_gelu": Case(
        "y = com.microsoft.BiasGelu (x, b)", {**X, "b": "D"}, Y, lambda x, b: [erf_gelu(x + b)]
    ),
    "fast_gelu": Case("y = com.microsoft.FastGelu (x)", X, Y, lambda x: [tanh_gelu(x)]),
    "fast_gelu_bias": Case(
        "y = com.microsoft.FastGelu (x, b)", {**X, "b": "D"}, Y, lambda x, b: [tanh_gelu(x + b)]
    ),
    "quick_gelu": Case("y = com.microsoft.QuickGelu (x)", X, Y, lambda x: [x * sigmoid(1.702 * x)]),
    "quick_gelu_alpha": Case(
        "y = com.microsoft.QuickGelu <alpha = 1.0> (x)", X, Y, lambda x: [x * sigmoid(x)]
    ),
    "skip_norm": Case(
        "y = com.microsoft.SkipLayerNormalization (x, s, g)", SKIPPED, Y, lambda x, s, g: [layer_norm(x + s, g)]
    ),
    "skip_norm_all": Case(
        "y, none, nothing, t = com.microsoft.SkipLayerNormalization <epsilon = 0.01> (x, s, g, beta, bias)",
        {**SKIPPED, "beta": "D", "bias": "D"}, SUM,
        lambda x, s, g, beta, bias: [layer_norm(x + s + bias, g, beta, 0.01), x + s + bias],
    ),
    "skip_norm_no_beta": Case(
        "y = com.microsoft.SkipLayerNormalization (x, s, g, , bias)", {**SKIPPED, "bias": "D"}, Y,
        lambda x, s, g, bias: [layer_norm(x + s + bias, g)],
    ),
    "skip_norm_broadcast": Case(
        "y = com.microsoft.SkipLayerNormalization (x, s, g, beta)", {**X, "s": "S, D", "g": "D", "beta": "D"}, Y,
        lambda x, s, g, beta: [layer_norm(x + s, g, beta)],
    ),
    "skip_rms": Case(
        "y, none, nothing, t = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.1> (x, s, g, bias)",
        {**SKIPPED, "bias": "D"}, SUM, lambda x, s, g, bias: [rms_norm(x + s + bias, g, 0.1), x + s + bias],
    ),
    "product": Case(
        "y = com.microsoft.FusedMatMul <alpha = 0.5> (a, b)", {"a": "B, S, D", "b": "B, D, K"}, {"y": "B, S, K"},
        lambda a, b: [0.5 * a @ b],
    ),
    "product_swapped": Case(
        "y = com.microsoft.FusedMatMul <transA = 1, transB = 1> (a, b)", {"a": "B, D, S", "b": "K, D"},
        {"y": "B, S, K"}, lambda a, b: [a.swapaxes(-1, -2) @ b.T],
    ),
    "product_vector": Case(
        "y = com.microsoft.FusedMatMul <transA = 1, transB = 1> (a, b)", {"a": "D", "b": "B, K, D"},
        {"y": "B, K"}, lambda a, b: [b @ a],
    ),
    "product_batch": Case(
        "y = com.microsoft.FusedMatMul <transBatchA = 1, transBatchB = 1, transB = 1> (a, b)",
        {"a": "S, B, D", "b": "K, B, D"}, {"y": "B, S, K"},
        lambda a, b: [a.swapaxes(0, 1) @ b.transpose(1, 2, 0)], kernels=3,
    ),
    "softmax_of_columns": Case("y = Softmax <axis = 1> (x)", X, Y, lambda x: [softmax(x, 1)], kernels=2),
    "log_softmax_of_batch": Case(
        "y = LogSoftmax <axis = 0> (x)", X, Y, lambda x: [np.log(softmax(x, 0))], kernels=2
    ),
}  # fmt: skip
RUNS = [
    *((name, "float") for name in CASES),
    *((n, "float16") for n in ("fast_gelu_bias", "skip_norm_all", "product", "softmax_of_columns")),
]
TOLERANCE = {"float": 2e-6, "float16": 2e-3}
SIZES = (
    {"B": 2, "S": 5, "D": 33, "K": 7},
    {"B": 1, "S": 1, "D": 1, "K": 1},
    {"B": 3, "S": 0, "D": 8, "K": 5},
    {"B": 2, "S": 37, "D": 70, "K": 19},
)


def operator(name: str, dtype: str) -> FusedOp:
    return fused_op(f"{name}_{dtype}", plan_region(whole(CASES[name].model(dtype))))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library([operator(*case) for case in RUNS], tmp_path_factory.mktemp("composed")).path


def arrays(case: Case, sizes: Mapping[str, int], dtype: str, special: Sequence[float] = ()) -> list[Array]:
    rng = np.random.default_rng(5)
    found = [rng.standard_normal([sizes[d] for d in dims.split(", ")]) for dims in case.inputs.values()]
    found = [a.astype(np.float16 if dtype == "float16" else np.float32) for a in found]
    found[0].reshape(-1)[: len(special)] = special
    return found


def expected(case: Case, given: Sequence[Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        return list(case.reference(*(a.astype(np.float64) for a in given)))


@pytest.mark.parametrize(("name", "dtype"), RUNS, ids=[f"{n}-{d}" for n, d in RUNS])
def test_kernels_agree_with_the_definition(name: str, dtype: str, built: Path) -> None:
    case, session = CASES[name], open_session(operator(name, dtype), built)
    for sizes in SIZES:
        given = arrays(case, sizes, dtype)
        for found, wanted in zip(run(session, *given), expected(case, given), strict=True):
            assert found.shape == wanted.shape
            assert largest_error(found, wanted) <= TOLERANCE[dtype]


@pytest.mark.parametrize(
    "name", ["bias_gelu", "fast_gelu", "quick_gelu", "skip_norm_all", "skip_rms", "product", "softmax_of_columns"]
)
def test_nan_and_infinity_stay_where_they_belong(name: str, built: Path) -> None:
    case, session = CASES[name], open_session(operator(name, "float"), built)
    given = arrays(case, SIZES[0], "float", (math.nan, math.inf, 3e4))
    results = zip(run(session, *given), expected(case, given), strict=True)
    for found, wanted in results:
        assert np.isnan(found[0, 0]).any()
        assert largest_error(found, wanted) <= 1e-5


@pytest.mark.parametrize("name", CASES)
def test_onnx_runtime_means_the_same(name: str) -> None:
    """A definition that was misread would agree with itself."""
    case = CASES[name]
    model = case.model()
    given = arrays(case, SIZES[0], "float")
    values = all_values(model, dict(zip(case.inputs, given, strict=True)), [whole(model)])
    for output, wanted in zip(case.outputs, expected(case, given), strict=True):
        assert largest_error(values[output], wanted) <= 1e-5


@pytest.mark.parametrize("name", CASES)
def test_kernels(name: str) -> None:
    assert len(plan_region(whole(CASES[name].model())).stages) == CASES[name].kernels


@pytest.mark.parametrize("call", ["Gelu (h)", "BiasGelu (h, b)", "FastGelu (h)", "FastGelu (h, b)", "QuickGelu (h)"])
def test_an_activation_joins_the_layer_before_it_and_what_follows(call: str) -> None:
    text = f"g (float[n, 8] x) => (float[n, 16] y) {{ h = MatMul (x, w) a = com.microsoft.{call} y = Mul (a, a) }}"
    found = matches(parse(text, {"w": (8, 16), "b": (16,)}), "LinearActivation")
    assert operators(found, "LinearActivation") == [["MatMul", call.split()[0], "Mul"]]


def test_a_norm_with_residual_is_the_norm_before_a_layer() -> None:
    text = """g (float[n, 8] x, float[n, 8] s) => (float[n, 16] y, float[n, 8] t) {
        m, none, nothing, t = com.microsoft.SkipLayerNormalization (x, s, g) h = MatMul (m, w) y = Relu (h) }"""
    (region,) = matches(parse(text, {"w": (8, 16), "g": (8,)}), "LayerNormLinear").regions
    assert [n.op_type for n in region.nodes] == ["SkipLayerNormalization", "MatMul", "Relu"]
    assert len(plan_region(region).outputs) == 2


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ("y, mean = com.microsoft.SkipLayerNormalization (x, s, g)", codes.UNUSED_OUTPUT),
        ("y = com.microsoft.BiasSplitGelu (x, g)", codes.OPERATOR),
    ],
)
def test_what_is_not_compiled(call: str, code: str) -> None:
    outputs = {"y": "B, S, D", **({"mean": "B, S, 1"} if "mean" in call else {})}
    with pytest.raises(Unsupported) as refused:
        plan_region(whole(Case(call, SKIPPED, outputs, lambda *_: []).model()))
    assert refused.value.code == code
