"""Products, convolutions, attentions, views and shapes, planned alone or with neighbours; against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest

from fusion_cli.errors import Unsupported
from fusion_cli.plan import plan_region
from fusion_cli.planir.stages import Attention, Conv, Linear, Pointwise
from tests.helpers.operands import RNG, floats, tensor
from tests.helpers.plan_interpreter import interpret
from tests.helpers.region_tools import check_model, kinds, parsed, whole

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


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


def test_products_of_one_left_operand_are_next_to_one_another() -> None:
    """One launch may do them, wherever what is made of the first one stands in the model."""
    text = """g (float[r, 4] x, float[4, 6] w, float[4, 5] v) => (float[6, r] y, float[r, 5] z) {
        q = MatMul (x, w)  y = Transpose (q)  z = MatMul (x, v) }"""
    plan = check_model(text, {"x": floats(3, 4), "w": floats(4, 6), "v": floats(4, 5)}, opset=17)
    assert kinds(plan) == [Linear, Linear, Pointwise]
