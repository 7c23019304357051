"""Elementwise operators, reductions, norms and rows of tables, planned alone or together; against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from fusion_cli.errors import Unsupported
from fusion_cli.plan import plan_region
from fusion_cli.planir.stages import Linear, Pointwise, Rowwise
from tests.helpers.operands import RNG, floats, tensor
from tests.helpers.plan_interpreter import interpret, numpy_dtype
from tests.helpers.reason_codes import explained
from tests.helpers.region_tools import check_model, kinds, parsed, whole

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

UNARY = """Abs Atan Ceil Cos Erf Exp Floor Identity Neg Reciprocal Relu Round Sigmoid Sign Sin Softplus Softsign Tan
Tanh Sinh Cosh Asinh Elu Selu Celu LeakyRelu HardSigmoid HardSwish Mish ThresholdedRelu Gelu""".split()


@pytest.mark.parametrize("op", UNARY)
def test_unary(op: str) -> None:
    x = floats(3, 7)
    x[0, :3] = 0.0, -0.5, 2.5
    assert kinds(check_model(f"g (float[a, b] x) => (float[a, b] y) {{ y = {op}(x) }}", {"x": x}, 2e-6)) == [Pointwise]


@pytest.mark.parametrize("op", ["Sqrt", "Log", "Acosh"])
def test_unary_of_positive_numbers(op: str) -> None:
    check_model(f"g (float[a] x) => (float[a] y) {{ y = {op}(x) }}", {"x": np.abs(floats(9)) + 1})


@pytest.mark.parametrize("op", ["Asin", "Acos", "Atanh"])
def test_unary_of_fractions(op: str) -> None:
    check_model(f"g (float[a] x) => (float[a] y) {{ y = {op}(x) }}", {"x": np.tanh(floats(9))})


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean"])
@pytest.mark.parametrize(("a", "b"), [((2, 3, 5), (5,)), ((3, 1), (1, 4)), ((), (2, 2)), ((2, 1, 3), (4, 1))])
def test_binary_broadcast(op: str, a: tuple[int, ...], b: tuple[int, ...]) -> None:
    def dims(shape: tuple[int, ...], prefix: str) -> str:
        return ", ".join(str(n) if n == 1 else f"{prefix}{i}" for i, n in enumerate(shape))

    y = tensor("y", [f"r{i}" for i in range(max(len(a), len(b)))])
    text = f"g ({tensor('a', dims(a, 'p'))}, {tensor('b', dims(b, 'q'))}) => ({y}) {{ y = {op}(a, b) }}"
    check_model(text, {"a": floats(*a), "b": floats(*b) + 3})


@pytest.mark.parametrize("op", ["Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"])
def test_comparison(op: str) -> None:
    a, b = RNG.integers(0, 3, (4, 5)).astype(np.float32), RNG.integers(0, 3, (5,)).astype(np.float32)
    check_model(f"g (float[m, n] a, float[n] b) => (bool[m, n] y) {{ y = {op}(a, b) }}", {"a": a, "b": b})


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op: str) -> None:
    a, b = RNG.integers(0, 2, (4, 5)).astype(bool), RNG.integers(0, 2, (4, 5)).astype(bool)
    check_model(f"g (bool[m, n] a, bool[m, n] b) => (bool[m, n] y) {{ c = {op}(a, b) y = Not(c) }}", {"a": a, "b": b})


def test_integers_divide_towards_zero() -> None:
    a, b = np.array([7, -7, 9, -1], np.int64), np.array([2, 2, -4, 3], np.int64)
    check_model("g (int64[n] a, int64[n] b) => (int64[n] y) { y = Div(a, b) }", {"a": a, "b": b}, 0)
    check_model("g (int64[n] a, int64[n] b) => (int64[n] y) { y = Mod(a, b) }", {"a": a, "b": b}, 0)


def test_power_of_integer_exponent() -> None:
    text = "g (float[n] x) => (float[n] y) { e = Constant <value_int = 3> () y = Pow(x, e) }"
    check_model(text, {"x": floats(6)})


def test_where_clip_cast_isnan() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 1.5, -2.5], np.float32)
    text = """g (float[n] x) => (float[n] y, int64[n] z, bool[n] w) {
        lo = Constant <value_float = -2.0> ()
        nan = IsNaN(x)  c = Where(nan, lo, x)  y = Clip(c, lo)
        hi = Constant <value_float = 2.0> ()
        d = Min(y, hi)  z = Cast <to = 7> (d)  w = IsInf <detect_negative = 0> (x)
    }"""
    assert len(check_model(text, {"x": x}).stages) == 1


def test_clip_by_attribute_before_opset_11() -> None:
    text = "g (float[n] x) => (float[n] y) { y = Clip <min = -0.5, max = 0.25> (x) }"
    check_model(text, {"x": floats(20)}, opset=10)


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (2, 1), (4, 3, 17)])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceL1",
                                "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd"])  # fmt: skip
def test_reduction_over_last_axis(op: str, shape: tuple[int, ...]) -> None:
    dims = ", ".join(f"d{i}" for i in range(len(shape)))
    out = ", ".join([*dims.split(", ")[:-1], "1"])
    text = f"g (float[{dims}] x) => (float[{out}] y) {{ a = Constant <value_ints = [-1]> () y = {op}(x, a) }}"
    check_model(text, {"x": floats(*shape)}, 1e-5)


def test_logarithm_of_a_sum_of_exponents_that_are_infinite() -> None:
    x = np.array([[np.inf, 1, -np.inf], [-np.inf, -np.inf, -np.inf], [-np.inf, 2, 3], [np.nan, np.inf, 1]], np.float32)
    text = "g (float[n, 3] x) => (float[n, 1] y) { a = Constant <value_ints = [-1]> () y = ReduceLogSumExp(x, a) }"
    check_model(text, {"x": x}, 1e-5)


def test_reduction_over_trailing_axes_without_keeping_them() -> None:
    text = """g (float[n, c, h, w] x) => (float[n, c] y) {
        a = Constant <value_ints = [2, 3]> ()  y = ReduceMean <keepdims = 0> (x, a)
    }"""
    assert kinds(check_model(text, {"x": floats(2, 3, 4, 5)})) == [Rowwise]


def test_reduction_axes_as_attribute() -> None:
    text = "g (float[n, m] x) => (float[n, 1] y) { y = ReduceMean <axes = [1]> (x) }"
    check_model(text, {"x": floats(3, 9)}, opset=17)


def test_axes_of_size_one_may_lie_anywhere() -> None:
    text = (
        "g (float[1, n, 1, m] x) => (float[n, 1] y) { r = ReduceMean <axes = [0, -1], keepdims = 0> (x) y = Exp (r) }"
    )
    check_model(text, {"x": RNG.standard_normal((1, 3, 1, 5)).astype(np.float32)}, opset=17)


def test_reduction_over_other_axes_is_turned_down() -> None:
    text = "g (float[n, m] x) => (float[1, m] y) { a = Constant <value_ints = [0]> () y = ReduceMean(x, a) }"
    with pytest.raises(Unsupported) as error:
        plan_region(whole(parsed(text)))
    assert error.value.code == "FUS206"


@pytest.mark.parametrize(("opset", "axis"), [(13, -1), (11, 1), (11, 2), (20, 2), (13, 0), (20, 1)])
def test_softmax(opset: int, axis: int) -> None:
    x = floats(2, 3, 5)
    x[0, 0, 1] = -np.inf
    for op in ("Softmax", "LogSoftmax"):
        text = f"g (float[a, b, c] x) => (float[a, b, c] y) {{ y = {op} <axis = {axis}> (x) }}"
        check_model(text, {"x": x}, 1e-5, opset)


@pytest.mark.parametrize("axis", [-1, 1])
def test_layer_norm(axis: int) -> None:
    scale = "float[c] s, float[c] b" if axis == -1 else "float[4, 6] s, float[4, 6] b"
    shape = (6,) if axis == -1 else (4, 6)
    text = f"""g (float[n, 4, 6] x, {scale.replace("[c]", "[6]")}) => (float[n, 4, 6] y) {{
        y = LayerNormalization <axis = {axis}, epsilon = 0.001> (x, s, b)
    }}"""
    check_model(text, {"x": floats(3, 4, 6), "s": floats(*shape), "b": floats(*shape)}, 1e-5)


def test_norms_over_channels() -> None:
    feeds = {"x": floats(2, 6, 4, 5), "s": floats(6), "b": floats(6), "m": floats(6), "v": np.abs(floats(6)) + 0.1}
    head = "g (float[n, 6, h, w] x, float[6] s, float[6] b, float[6] m, float[6] v) => (float[n, 6, h, w] y)"
    check_model(f"{head} {{ y = BatchNormalization(x, s, b, m, v) }}", feeds, 1e-5)
    head = head.replace(", float[6] m, float[6] v", "")
    feeds = {k: feeds[k] for k in "xsb"}
    check_model(f"{head} {{ y = InstanceNormalization(x, s, b) }}", feeds, 1e-5)
    check_model(f"{head} {{ y = GroupNormalization <num_groups = 3> (x, s, b) }}", feeds, 1e-5, opset=21)


def test_norm_and_its_neighbours_are_one_kernel() -> None:
    text = """g (float[b, s, 16] x, float[b, s, 16] r, float[16] w) => (float[b, s, 16] sum, float[b, s, 16] y) {
        two = Constant <value_float = 2.0> ()  eps = Constant <value_float = 0.00001> ()
        one = Constant <value_float = 1.0> ()  axes = Constant <value_ints = [-1]> ()
        sum = Add(x, r)  p = Pow(sum, two)  m = ReduceMean(p, axes)  e = Add(m, eps)  q = Sqrt(e)
        i = Div(one, q)  n = Mul(sum, i)  h = Mul(n, w)  g = Sigmoid(h)  y = Mul(h, g)
    }"""
    plan = check_model(text, {"x": floats(2, 3, 16), "r": floats(2, 3, 16), "w": floats(16)}, 1e-5)
    assert kinds(plan) == [Rowwise]
    assert len(plan.stages[0].operands) == 3


@pytest.mark.parametrize(("text", "code"), [
    ("g (double[n] x) => (double[n] y) { y = Relu(x) }", "FUS203"),
    ("g (float[n, m] x) => (float[n, m] y) { y = LpNormalization <axis = 0> (x) }", "FUS206"),
    ("g (float[n] x) => (float[n] y) { k = Constant <value_floats = [1.0, 2.0]> () y = Add(x, k) }", "FUS209"),
    ("g (float[a, b] x) => (float[a, b] y) { y = CumSum(x, x) }", "FUS202"),
])  # fmt: skip
def test_reasons(text: str, code: str) -> None:
    region = whole(parsed(text))
    if code == "FUS209":
        constants = tuple(v for v in (*region.inputs, *region.constants) if v.const_value is not None)
        inputs = tuple(v for v in region.inputs if v.const_value is None)
        region = type(region)("test", region.nodes, (), inputs, region.outputs, constants)
    with pytest.raises(Unsupported) as error:
        plan_region(region)
    assert error.value.code == code
    assert code in explained()["plan"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_rounds_at_casts_and_stores_only(dtype: str) -> None:
    text = f"""g ({dtype}[n] x, {dtype}[n] z) => ({dtype}[n] y, float[n] w) {{
        a = Mul(x, z)  y = Add(a, z)  c = Cast <to = 1> (y)  w = Exp(c)
    }}"""
    plan = plan_region(whole(parsed(text)))
    x, z = (floats(40).astype(numpy_dtype(dtype)) for _ in range(2))
    y, w = interpret(plan, [x, z])
    exact = x.astype(np.float64) * z.astype(np.float64) + z.astype(np.float64)
    assert np.array_equal(y, exact.astype(numpy_dtype(dtype)))
    assert np.allclose(w, np.exp(exact), rtol=1e-6)


def test_rows_of_a_table_are_read_by_the_norm_of_them() -> None:
    text = """
    g (int64[b, s] i, int32[s] j, float[6, d] words, float[3, d] places) => (float[b, s, d] x, float[b, s, d] y) {
        w = Gather (words, i)  p = Gather <axis = 0> (places, j)  x = Add (w, p)
        m = ReduceMean <axes = [-1]> (x)  y = Sub (x, m) }"""
    feeds = {"i": np.array([[0, 5, -1], [-6, 2, 2]]), "j": np.array([2, -3, 1], np.int32)}
    plan = check_model(text, {**feeds, "words": floats(6, 10), "places": floats(3, 10)}, opset=17)
    assert kinds(plan) == [Rowwise]


def test_rows_of_a_table_that_a_product_is_added_to_are_read_by_the_norm_of_them_all_the_same() -> None:
    text = """
    g (int64[b] i, float[6, 4] words, float[b, 3] x, float[3, 4] w) => (float[b, 4] z, float[b, 4] y) {
        t = Gather (words, i)  s = MatMul (x, w)  z = Add (s, t)  m = ReduceMean <axes = [-1]> (t)  y = Sub (t, m) }"""
    feeds = {"i": np.array([0, 5, -1]), "words": floats(6, 4), "x": floats(3, 3), "w": floats(3, 4)}
    assert kinds(check_model(text, feeds, opset=17)) == [Rowwise, Linear]


def test_rows_of_a_table_are_there_for_what_is_added_to_a_product_of_their_norm() -> None:
    text = """
    g (int64[b, 2] i, float[6, 4] x, float[4, 4] w) => (float[b, 2, 4] z) {
        t = Gather (x, i)  m = ReduceMean <axes = [-1]> (t)  n = Sub (t, m)  s = MatMul (n, w)  z = Add (s, t) }"""
    feeds = {"i": np.array([[0, 5], [3, 3], [-2, 1]]), "x": floats(6, 4), "w": floats(4, 4)}
    assert kinds(check_model(text, feeds, opset=17)) == [Rowwise, Linear]


@pytest.mark.parametrize("made", ["y = Tanh (r)", "s = MatMul (x, t) y = Add (s, r)"])
def test_rows_of_a_table_alone_are_no_kernel(made: str) -> None:
    text = f"g (int64[b] i, float[4, 4] t, float[b, 4] x) => (float[b, 4] y) {{ r = Gather (t, i)  {made} }}"
    with pytest.raises(Unsupported, match="Gather"):
        plan_region(whole(parsed(text)))
