"""Affine nodes folded into the layers beside them: what is left as it is, and random chains."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from fusion_cli.simplify import simplify
from tests.helpers.algebra_models import OUT, PAD, RNG, C, assert_left, model_of, operators, same
from tests.helpers.graphs import parse, read_in

LEFT = {
    "shift before a padded one": f"q = Add (x, m) y = Conv {PAD} (q, w)",
    "padding that the runtime chooses": 'q = Add (x, m) y = Conv <auto_pad = "SAME_UPPER"> (q, w)',
    "numbers by place": "c = Conv (x, w) y = Mul (c, place)",
    "the wrong axis": "c = Conv <dilations = [1, 2], pads = [0, 4, 0, 3]> (x, w) y = Mul (c, v)",
    "more channels by it": "c = ReduceMean <axes = [1]> (x) q = Mul (c, m) y = Conv (q, w)",
    "rounding by addition": "c = Conv (x, w) q = Add (c, huge) y = Sub (q, huge)",
    "rounding of numbers": "r = Softplus (x) q = Add (r, huge) y = Sub (q, huge)",
    "weight of a norm": "d = ReduceMax <axes = [2, 3]> (x) r = Div (x, d) q = Mul (r, m) y = Conv (q, w)",
}


@pytest.mark.parametrize("case", LEFT)
def test_what_would_not_be_the_same_is_left(case: str) -> None:
    assert_left(LEFT[case])


def test_a_constant_of_higher_rank_is_left() -> None:
    """It makes more of the value that it meets."""
    assert_left("c = Conv (x, w) y = Mul (c, five)", "float[a, c, d, e, f] y", five=(1, 1, 1, 1, 1))


ROWS, MADE = f"float[k, {C}] x", f"float[k, {OUT}] y"
PRODUCTS = {
    "no factor for the bias": ("c = Gemm <beta = 0.0> (x, wk, v) y = BatchNormalization (c, v, u, b, var)", "Gemm"),
    "biases stay": ("c = MatMul (x, wk) y = Add (c, v)", "MatMul Add"),
    "the scale of an attention stays": ("c = MatMul (x, wk) a = Add (c, v) y = Mul (a, half)", "MatMul Add Mul"),
}


@pytest.mark.parametrize("case", PRODUCTS)
def test_products_take_numbers_by_column(case: str) -> None:
    body, left = PRODUCTS[case]
    assert operators(same(model_of(body, ROWS, outputs=MADE))) == left


REGROUPED = (
    "g (float[2, 3, 6] x) => (float[a, b] y) <int64[2] rows = {6, 8}> { c = MatMul (x, wk) r = Reshape (c, rows)"
)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("m = Mul (r, v) y = Add (m, u) }", "MatMul Add Reshape"),
        ("y = Mul (r, v) }", "MatMul Reshape"),
        ("m = Mul (r, v) s = Sub (u, m) y = Relu (s) }", "MatMul Add Reshape Relu"),
    ],
    ids=["both", "a factor", "turned"],
)
def test_numbers_behind_a_reshape_of_rows_are_folded(body: str, left: str) -> None:
    """What is added is a bias in front of it, where rules look for one."""
    model = parse(f"{REGROUPED} {body}", {"wk": (C, OUT), "v": (OUT,), "u": (OUT,)})
    assert operators(same(model)) == left


@pytest.mark.parametrize(
    "body",
    [
        "c = MatMul (x, wk) r = Reshape (c, alone) y = Mul (r, v)",
        "c = Conv <pads = [1, 1]> (x, line) r = Reshape (c, last) y = Mul (r, v)",
    ],
    ids=["channels that are rows then", "what comes before the last axis"],
)
def test_numbers_behind_another_reshape_are_left(body: str) -> None:
    sizes = "int64[2] alone = {48, 1}, int64[4] last = {2, 4, 2, 8}"
    given = "float[2, 3, 6] x" if "wk" in body else "float[2, 6, 8] x"
    used = read_in(body, {"wk": (C, OUT), "v": (OUT,), "line": (OUT, C, 3)})
    axes = "a, b" if "wk" in body else "a, b, c, d"
    found = same(parse(f"g ({given}) => (float[{axes}] y) <{sizes}> {{ {body} }}", used))
    assert operators(found).endswith("Reshape Mul")


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
