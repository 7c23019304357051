"""Every operator a region may hold, planned on its own or with neighbours and compared with ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from fusion_cli.errors import Unsupported
from fusion_cli.plan import plan_region
from fusion_cli.planir.stages import Attention, Conv, Linear, Pointwise, Rowwise
from tests.helpers.plan_interpreter import interpret, numpy_dtype
from tests.helpers.reason_codes import explained
from tests.helpers.region_tools import check_model, kinds, parsed, whole

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def tensor(name: str, dims: object = "", dtype: str = "float") -> str:
    """A declaration in ONNX text; without dimensions, of a scalar."""
    text = dims if isinstance(dims, str) else ", ".join(map(str, dims))  # type: ignore[call-overload]
    return f"{dtype}[{text}] {name}" if text else f"{dtype} {name}"


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


@pytest.mark.parametrize(("a", "b"), [((5, 4), (4, 3)), ((2, 5, 4), (4, 3)), ((2, 1, 5, 4), (3, 4, 3)), ((4,), (4, 3)),
                                      ((5, 4), (4,)), ((4,), (4,))])  # fmt: skip
def test_matmul(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    out = np.matmul(np.zeros(a), np.zeros(b)).shape
    text = f"g ({tensor('a', a)}, {tensor('b', b)}) => ({tensor('y', out)}) {{ y = MatMul(a, b) }}"
    assert kinds(check_model(text, {"a": floats(*a), "b": floats(*b)}, 1e-5)) == [Linear]


@pytest.mark.parametrize("flags", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("c", [(), (3,), (5, 1), (5, 3)])
def test_gemm(flags: tuple[int, int], c: tuple[int, ...]) -> None:
    a, b = ((4, 5) if flags[0] else (5, 4)), ((3, 4) if flags[1] else (4, 3))
    text = f"""g ({tensor("a", a)}, {tensor("b", b)}, {tensor("c", c)}) => (float[5, 3] y) {{
        g = Gemm <alpha = 0.5, beta = 2.0, transA = {flags[0]}, transB = {flags[1]}> (a, b, c)  y = Tanh(g)
    }}"""
    plan = check_model(text, {"a": floats(*a), "b": floats(*b), "c": floats(*c)}, 1e-5)
    assert kinds(plan) == [Linear]


def test_epilogue_takes_gate_and_residual() -> None:
    text = """g (float[b, s, 8] x, float[8, 12] wg, float[8, 12] wu, float[12, 8] wd, float[8] bd)
    => (float[b, s, 8] y) {
        g = MatMul(x, wg)  q = Sigmoid(g)  a = Mul(g, q)  u = MatMul(x, wu)  h = Mul(a, u)
        d = MatMul(h, wd)  e = Add(d, bd)  y = Add(x, e)
    }"""
    feeds = {"x": floats(2, 5, 8), "wg": floats(8, 12), "wu": floats(8, 12), "wd": floats(12, 8), "bd": floats(8)}
    assert kinds(check_model(text, feeds, 1e-5)) == [Linear, Linear, Linear]


@pytest.mark.parametrize(("attrs", "x", "w"), [
    ("pads = [1, 1, 1, 1]", (2, 3, 7, 6), (4, 3, 3, 3)),
    ("strides = [2, 1], dilations = [1, 2]", (1, 3, 9, 9), (4, 3, 3, 3)),
    ("group = 2, auto_pad = \"SAME_UPPER\", strides = [2, 2]", (1, 4, 7, 8), (6, 2, 3, 3)),
    ("group = 4, auto_pad = \"SAME_LOWER\"", (1, 4, 5, 5), (4, 1, 4, 4)),
    ("auto_pad = \"VALID\"", (1, 2, 6), (3, 2, 4)),
])  # fmt: skip
def test_conv(attrs: str, x: tuple[int, ...], w: tuple[int, ...]) -> None:
    # Shape inference has no symbolic form of what SAME rounds up.
    spatial = [str(n) if "SAME" in attrs else f"s{i}" for i, n in enumerate(x[2:])]
    dims = ", ".join(("n", str(x[1]), *spatial))
    text = f"""g (float[{dims}] x, float[{", ".join(map(str, w))}] w, float[{w[0]}] b) => (float[{dims}] y) {{
        c = Conv <{attrs}> (x, w, b)  y = HardSwish(c)
    }}""".replace(f"[{dims}] y", f"[n, {w[0]}, {', '.join(f'o{i}' for i in range(len(x) - 2))}] y")
    assert kinds(check_model(text, {"x": floats(*x), "w": floats(*w), "b": floats(w[0])}, 1e-5)) == [Conv]


def test_views_need_no_kernel_but_outputs_have_memory() -> None:
    text = """g (float[a, b] x) => (float[b, a] t, float[c] r, float[1, a, b] u, float[a, b] e) {
        t = Transpose(x)
        flat = Constant <value_ints = [-1]> ()  y = Relu(x)  r = Reshape(y, flat)
        zero = Constant <value_ints = [0]> ()  u = Unsqueeze(y, zero)
        e = Abs(y)
    }"""
    plan = check_model(text, {"x": floats(3, 4)})
    assert len({plan.tensors[i].slot for i in plan.outputs}) == 4


def test_workspace_is_reused() -> None:
    layers = "\n".join(f"h{i} = MatMul({f'h{i - 1}' if i else 'x'}, w)" for i in range(6))
    plan = check_model(f"g (float[n, 4] x, float[4, 4] w) => (float[n, 4] y) {{ {layers} y = MatMul(h5, w) }}",
                       {"x": floats(3, 4), "w": floats(4, 4)})  # fmt: skip
    assert plan.buffers == 2


def test_shape_program_is_run_on_the_host() -> None:
    text = """g (float[b, s, 12] x) => (float[b, 3, s, 4] y) {
        zero = Constant <value_ints = [0]> ()  one = Constant <value_ints = [1]> ()
        h = Constant <value_ints = [3, -1]> ()
        shape = Shape(x)  b = Gather <axis = 0> (shape, zero)  s = Gather <axis = 0> (shape, one)
        target = Concat <axis = 0> (b, s, h)  r = Reshape(x, target)  y = Transpose <perm = [0, 2, 1, 3]> (r)
    }"""
    plan = check_model(text, {"x": floats(2, 5, 12)})
    assert kinds(plan) == [Pointwise]
    assert plan.host_inputs == ()


def test_shape_read_from_an_input() -> None:
    text = "g (float[a, b] x, int64[3] t) => (float[p, q, r] y) { r = Relu(x) y = Reshape(r, t) }"
    plan = check_model(text, {"x": floats(4, 6), "t": np.array([2, -1, 3], np.int64)})
    assert plan.host_inputs == (1,)
    assert plan.inputs[1] == -1


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


def test_operands_that_do_not_fit() -> None:
    text = "g (float[2, 3] x, float[4, 5] w) => (float[2, 5] y) { y = MatMul(x, w) }"
    with pytest.raises(Unsupported) as error:
        plan_region(whole(parsed(text, inferred=False)))
    assert error.value.code == "FUS212"


ATTENTION = """g (float[b, h, s, 8] q, float[b, h, t, 8] k, float[b, h, t, 6] v, float[m, 1, s, t] mask)
=> (float[b, s, f] y) {
    scale = Constant <value_float = 0.35> ()
    kt = Transpose <perm = [0, 1, 3, 2]> (k)  qs = Mul(q, scale)
    d = MatMul(qs, kt)  e = Add(d, mask)  p = Softmax <axis = -1> (e)
    nan = IsNaN(p)  zero = Constant <value_float = 0.0> ()  g = Where(nan, zero, p)
    o = MatMul(g, v)  u = Transpose <perm = [0, 2, 1, 3]> (o)
    target = Constant <value_ints = [0, 0, -1]> ()  y = Reshape(u, target)
}"""


@pytest.mark.parametrize("mask_batch", [1, 2])
def test_attention_with_mask_and_guard(mask_batch: int) -> None:
    mask = np.where(RNG.random((mask_batch, 1, 5, 7)) < 0.3, -np.inf, 0).astype(np.float32)
    mask[0, 0, 2] = -np.inf
    feeds = {"q": floats(2, 3, 5, 8), "k": floats(2, 3, 7, 8), "v": floats(2, 3, 7, 6), "mask": mask}
    plan = check_model(ATTENTION, feeds, 1e-5)
    assert kinds(plan) == [Attention]
    stage = plan.stages[0]
    assert isinstance(stage, Attention)
    assert stage.scale == pytest.approx(0.35)
    assert stage.out_perm == (0, 2, 1, 3)


@pytest.mark.parametrize("attrs", ["", "is_causal = 1", "softcap = 2.0", "scale = 0.2"])
@pytest.mark.parametrize("heads", [2, 4])
def test_attention_operator(attrs: str, heads: int) -> None:
    text = f"""g (float[b, 4, s, 8] q, float[b, {heads}, s, 8] k, float[b, {heads}, s, 8] v) => (float[b, 4, s, 8] y) {{
        y = Attention <{attrs}> (q, k, v)
    }}""".replace(" <>", "")
    feeds = {"q": floats(2, 4, 6, 8), "k": floats(2, heads, 6, 8), "v": floats(2, heads, 6, 8)}
    assert kinds(check_model(text, feeds, 1e-5, opset=23)) == [Attention]


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attention_operator_on_packed_heads_with_mask(kind: str) -> None:
    text = f"""g (float[b, s, 32] q, float[b, t, 16] k, float[b, t, 16] v, {kind}[s, t] m) => (float[b, s, 32] y) {{
        y = Attention <q_num_heads = 4, kv_num_heads = 2> (q, k, v, m)
    }}"""
    mask = RNG.random((5, 7)) < 0.7
    mask[:, 0] = True
    feeds = {"q": floats(2, 5, 32), "k": floats(2, 7, 16), "v": floats(2, 7, 16)}
    feeds["m"] = mask if kind == "bool" else np.where(mask, 0, -1e4).astype(np.float32)
    plan = check_model(text, feeds, 1e-5, opset=23)
    assert kinds(plan) == [Attention], "grouped heads are views"


@pytest.mark.parametrize("masked", [False, -np.inf, np.finfo(np.float32).min], ids=["bool", "-inf", "lowest"])
def test_attention_operator_gives_zeros_where_no_key_is_left(masked: float | bool) -> None:
    kind = "bool" if masked is False else "float"
    text = f"""g (float[b, 2, s, 8] q, float[b, 2, t, 8] k, float[b, 2, t, 8] v, {kind}[s, t] m) =>
        (float[b, 2, s, 8] y) {{ y = Attention (q, k, v, m) }}"""
    mask = np.full((5, 7), True if masked is False else 0.0, np.float32 if masked else bool)
    mask[1] = masked
    mask[3, 2:] = masked
    feeds = {"q": floats(2, 2, 5, 8), "k": floats(2, 2, 7, 8), "v": floats(2, 2, 7, 8), "m": mask}
    feeds["q"][0, 0, [1, 2, 3], 4] = np.nan
    plan = check_model(text, feeds, 1e-5, opset=23)
    assert kinds(plan) == [Attention]
    outcome = interpret(plan, list(feeds.values()))[0][0, 0]
    assert np.isnan(outcome).all(-1).tolist() == [False, False, True, True, False]


def test_softmax_over_queries_is_no_attention() -> None:
    feeds = {"q": floats(2, 3, 5, 8), "k": floats(2, 3, 7, 8), "v": floats(2, 3, 7, 6), "mask": floats(2, 1, 5, 7)}
    plan = check_model(ATTENTION.replace("axis = -1", "axis = 2"), feeds, 1e-5)
    assert Attention not in kinds(plan)


def test_nothing_to_compute_in_empty_tensors() -> None:
    text = """g (float[a, b] x, float[b, c] w) => (float[a, c] y, float[a, b] z) {
        h = MatMul(x, w)  y = Relu(h)  z = Tanh(x)
    }"""
    check_model(text, {"x": floats(0, 4), "w": floats(4, 3)})
    check_model(text, {"x": floats(2, 4), "w": floats(4, 0)})


def test_shapes_that_a_model_declares_of_its_outputs_are_not_believed() -> None:
    text = """g (float[a, b] x) => (float[a, b] y, float[a, b] z) {
        axes = Constant <value_ints = [-1]> ()  y = ReduceMax(x, axes)  z = Sub(x, y)
    }"""
    check_model(text, {"x": floats(3, 5)})


def test_rows_whose_shape_is_read_as_the_model_runs() -> None:
    text = """g (float[1, n] x, int64[3] s) => (float[a, b] y) {
        e = Expand(x, s)  f = Exp(e)  axes = Constant <value_ints = [-1]> ()  y = ReduceSum <keepdims = 0> (f, axes)
    }"""
    check_model(text, {"x": floats(1, 5), "s": np.array([2, 3, 5])})


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


def test_products_of_one_left_operand_are_next_to_one_another() -> None:
    """One launch may do them, wherever what is made of the first one stands in the model."""
    text = """g (float[r, 4] x, float[4, 6] w, float[4, 5] v) => (float[6, r] y, float[r, 5] z) {
        q = MatMul (x, w)  y = Transpose (q)  z = MatMul (x, v) }"""
    plan = check_model(text, {"x": floats(3, 4), "w": floats(4, 6), "v": floats(4, 5)}, opset=17)
    assert kinds(plan) == [Linear, Linear, Pointwise]


@pytest.mark.parametrize("made", ["y = Tanh (r)", "s = MatMul (x, t) y = Add (s, r)"])
def test_rows_of_a_table_alone_are_no_kernel(made: str) -> None:
    text = f"g (int64[b] i, float[4, 4] t, float[b, 4] x) => (float[b, 4] y) {{ r = Gather (t, i)  {made} }}"
    with pytest.raises(Unsupported, match="Gather"):
        plan_region(whole(parsed(text)))
