"""Linear layers in the forms that exporters and other tools write, and what is no linear layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.shape_inference
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from fusion_cli.match import find_regions, load_rules
from tests.helpers.graphs import idioms, matches, operators, parse

X, Y = "float[batch, seq, 64] x", "float[batch, seq, 32] y"
ROWS, OUT = "float[rows, 64] x", "float[rows, 32] y"
WEIGHTS = {
    "w": (64, 32),
    "wt": (32, 64),
    "b": (32,),
    "b2": (1, 32),
    "b3": (1, 1, 32),
    "stack": (1, 64, 32),
    "heads": (64, 4, 8),
    "merge": (4, 16, 32),
    "scale": (32,),
}
QUANTISED: dict[str, npt.NDArray[Any]] = {
    "q": np.ones((64, 32), np.int8),
    "qt": np.ones((32, 64), np.int8),
    "s": np.array(0.1, np.float32),
    "z": np.array(0, np.int8),
    "nbits": np.zeros((32, 2, 16), np.uint8),
    "qb": np.ones(32, np.int32),
}


def found(body: str, inputs: str = X, outputs: str = Y, opset: int = 17) -> dict[str, int]:
    model = parse(f"g ({inputs}) => ({outputs}) {{ {body} }}", WEIGHTS, opset)
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in QUANTISED.items())
    return dict(matches(model).idioms)


@pytest.mark.parametrize(
    "body",
    [
        "y = MatMul (x, w)",
        "m = MatMul (x, w) y = Add (m, b)",
        "m = MatMul (x, w) y = Add (b, m)",
        "m = MatMul (x, w) y = Add (b2, m)",
        "m = MatMul (x, w) y = Add (m, b3)",
        "y = com.microsoft.FusedMatMul <alpha = 0.5, transB = 1> (x, wt)",
        "m = com.microsoft.FusedMatMul (x, w) y = Add (b, m)",
        "y = com.microsoft.MatMulNBits <K = 64, N = 32, bits = 4, block_size = 32> (x, nbits, scale)",
        "m = com.microsoft.MatMulNBits <K = 64, N = 32, bits = 4, block_size = 32> (x, nbits, scale) y = Add (m, b)",
        "d = DequantizeLinear (q, s, z) y = MatMul (x, d)",
        "d = DequantizeLinear (qt, s, z) t = Transpose <perm = [1, 0]> (d) m = MatMul (x, t) y = Add (m, b)",
        "d = com.microsoft.DequantizeLinear (q, s, z) y = com.microsoft.FusedMatMul (x, d)",
        "d = DequantizeLinear (q, s, z) c = DequantizeLinear (qb, s) m = MatMul (x, d) y = Add (c, m)",
        'm = Einsum <equation = "bsi,io->bso"> (x, w) y = Add (m, b)',
        'y = Einsum <equation = "...k, nk -> ...n"> (x, wt)',
        'y = Einsum <equation = "oi,bsi->bso"> (wt, x)',
        "n = Neg (x) m = MatMul (n, w) o = Dropout (m) y = Add (o, b)",
    ],
)
def test_linear(body: str) -> None:
    assert found(body) == {"Linear": 1}


@pytest.mark.parametrize(
    "body",
    [
        "y = Gemm (x, w)",
        "y = Gemm (x, w, b)",
        "y = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (x, wt, b)",
        "t = Transpose <perm = [1, 0]> (x) y = Gemm <transA = 1> (t, w, b)",
        "g = Gemm <transB = 1> (x, wt) y = Add (g, b)",
        "d = DequantizeLinear (qt, s, z) y = Gemm <transB = 1> (x, d, b)",
        "d = DequantizeLinear (qt, s, z) y = Gemm <transB = 1> (x, d)",
        'y = com.microsoft.FusedGemm <activation = "Relu", transB = 1> (x, wt, b)',
        'y = Einsum <equation = "bi,io->bo"> (x, w)',
    ],
)
def test_linear_of_rows(body: str) -> None:
    assert found(body, ROWS, OUT) == {"Linear": 1}


def test_linear_into_heads_and_out_of_them() -> None:
    to_heads = 'h = Einsum <equation = "bsd,dhk->bshk"> (x, heads) y = Neg (h)'
    assert found(to_heads, outputs="float[batch, seq, 4, 8] y") == {"Linear": 1}
    out = 'y = Einsum <equation = "bshk,hko->bso"> (x, merge)'
    assert found(out, "float[batch, seq, 4, 16] x") == {"Linear": 1}


def test_a_bias_may_come_after_the_reshape_back() -> None:
    body = """flat = Constant <value = int64[2] {-1, 64}> () back = Constant <value = int64[3] {2, 8, 32}> ()
              r = Reshape (x, flat) m = MatMul (r, w) k = Reshape (m, back) y = Add (k, b)"""
    assert found(body, "float[2, 8, 64] x", "float[2, 8, 32] y") == {"Linear": 1}


@pytest.mark.parametrize(
    "weight",
    ["t = Transpose <perm = [1, 0]> (wt)", "c = Cast <to = 1> (q) t = Mul (c, scale)"],
    ids=["transposed", "scaled"],
)
def test_weights_that_folding_left_alone_are_made_at_run_time(weight: str) -> None:
    model = parse(f"g ({X}) => ({Y}) {{ {weight} m = MatMul (x, t) y = Add (m, b) }}", WEIGHTS)
    model.graph.initializer.append(numpy_helper.from_array(QUANTISED["q"], "q"))
    typed = onnx.shape_inference.infer_shapes(model)
    assert find_regions(ir.from_proto(typed), load_rules()).idioms == {"Linear": 1}


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        ("y = MatMul (x, stack)", X),
        ("y = MatMul (x, z0)", f"{X}, float[64, 32] z0"),
        ('y = Einsum <equation = "bsi,bio->bso"> (x, z0)', f"{X}, float[batch, 64, 32] z0"),
        ('y = Einsum <equation = "bsi,io->bos"> (x, w)', X),
        ("d = DequantizeLinear (z0, s, z) y = MatMul (x, d)", f"{X}, int8[64, 32] z0"),
    ],
)
def test_what_is_no_linear_layer(body: str, inputs: str) -> None:
    assert "Linear" not in found(body, inputs, "float[a, b1, c1] y")


def test_a_constant_per_position_is_no_bias() -> None:
    model = parse("g (float[2, 8, 64] x) => (float[2, 8, 32] y) { m = MatMul (x, w) y = Add (m, p) }")
    arrays = {"w": np.ones((64, 32), np.float32), "p": np.arange(256, dtype=np.float32).reshape(8, 32)}
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in arrays.items())
    assert matches(model).idioms == {"Linear": 1}
    assert _linear_with_horizontal_neighbour("p", (8, 32)) == ["MatMul", "MatMul"]
    assert _linear_with_horizontal_neighbour("p", (1, 32)) == ["MatMul", "MatMul", "Add"]
    assert _linear_with_horizontal_neighbour("p", (1,)) == ["MatMul", "MatMul"]


def _linear_with_horizontal_neighbour(name: str, shape: tuple[int, ...]) -> list[str]:
    """The operators of two linear layers of one input, of which one has this added to it."""
    text = f"""g (float[2, 8, 64] x) => (float[2, 8, 32] y, float[2, 8, 32] z)
               {{ m = MatMul (x, w) y = Add (m, {name}) z = MatMul (x, v) }}"""
    model = parse(text, {"w": (64, 32), "v": (64, 32), name: shape})
    ((*ops,),) = operators(matches(model, "HorizontalLinear"), "HorizontalLinear")
    return sorted(ops, key=["MatMul", "Add"].index)


CUTS = {
    "split": "q, k, v = Split <axis = -1> (h)",
    "slices": """i0 = Constant <value = int64[1] {0}> () i1 = Constant <value = int64[1] {64}> ()
        i2 = Constant <value = int64[1] {128}> () i3 = Constant <value = int64[1] {9223372036854775807}> ()
        last = Constant <value = int64[1] {2}> ()
        v = Slice (h, i2, i3, last) q = Slice (h, i0, i1, last) k = Slice (h, i1, i2, last)""",
    "unbind": """t = Constant <value = int64[4] {2, 8, 3, 64}> () i0 = Constant <value = int64 {0}> ()
        i1 = Constant <value = int64 {1}> () i2 = Constant <value = int64 {2}> ()
        r = Reshape (h, t) p = Transpose <perm = [2, 0, 1, 3]> (r)
        q = Gather <axis = 0> (p, i0) k = Gather <axis = 0> (p, i1) v = Gather <axis = 0> (p, i2)""",
    "parts of heads": """t = Constant <value = int64[4] {2, 8, 3, 64}> () one = Constant <value = int64[1] {2}> ()
        r = Reshape (h, t) a, b0, c = Split <axis = 2> (r)
        q = Squeeze (a, one) k = Squeeze (b0, one) v = Squeeze (c, one)""",
}


@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("bias", ["h = MatMul (x, w)", "m = MatMul (x, w) h = Add (b, m)"])
def test_packed_qkv(cut: str, bias: str) -> None:
    part = "float[2, 8, 64]"
    outputs = f"{part} a1, {part} a2, {part} a3"
    body = f"{bias} {cut} a1 = Neg (q) a2 = Abs (k) a3 = Sqrt (v)"
    weights = {"w": (64, 192), "b": (192,)}
    found = idioms(body, weights, inputs="float[2, 8, 64] x", outputs=outputs)
    assert found == {"Linear": 1, "PackedQKV": 1}


LAST = "last = Constant <value = int64[1] {-1}> () end = Constant <value = int64[1] {9223372036854775807}> ()"
FROM = {n: f"c{n} = Constant <value = int64[1] {{{n}}}> ()" for n in (0, 2, 4, 5, 64, 80)}
HEADS_FIRST = "t = Constant <value = int64[4] {2, 8, 6, 16}> () m = Reshape (h, t)"
GROUPED = {
    "one head of keys": (
        f"{FROM[64]} {FROM[80]} q = Slice (h, c0, c64, last) k = Slice (h, c64, c80, last) "
        "v = Slice (h, c80, end, last)",
        ("2, 8, 64", "2, 8, 16", "2, 8, 16"),
    ),
    "Split": (
        "sizes = Constant <value = int64[3] {64, 16, 16}> () q, k, v = Split <axis = 2> (h, sizes)",
        ("2, 8, 64", "2, 8, 16", "2, 8, 16"),
    ),
    "along the heads": (
        f"{HEADS_FIRST} {FROM[4]} {FROM[5]} {FROM[2]} q = Slice (m, c0, c4, c2) k = Slice (m, c4, c5, c2) "
        "v = Slice (m, c5, end, c2)",
        ("2, 8, 4, 16", "2, 8, 1, 16", "2, 8, 1, 16"),
    ),
    "the last two heads": (
        f"{HEADS_FIRST} minus_two = Constant <value = int64[1] {{-2}}> () {FROM[2]} q = Slice (m, c0, minus_two, c2) "
        "k = Gather <axis = 2> (m, minus_two) v = Gather <axis = 2> (m, last)",
        ("2, 8, 4, 16", "2, 8, 1, 16", "2, 8, 1, 16"),
    ),
}


@pytest.mark.parametrize(("cut", "shapes"), GROUPED.values(), ids=GROUPED)
def test_packed_qkv_with_fewer_keys_than_queries(cut: str, shapes: tuple[str, ...]) -> None:
    outputs = ", ".join(f"float[{shape}] a{i}" for i, shape in enumerate(shapes))
    body = f"{LAST} {FROM[0]} h = MatMul (x, w) {cut} a0 = Neg (q) a1 = Abs (k) a2 = Sqrt (v)"
    assert idioms(body, {"w": (64, 96)}, inputs="float[2, 8, 64] x", outputs=outputs) == {"Linear": 1, "PackedQKV": 1}


OTHER_PARTS = {
    "sizes that are no heads": ("{40, 28, 28}", "y = Neg (q) z = Abs (k)"),
    "a part of another size": ("{32, 32, 16}", "y = Neg (q) z = Abs (k)"),
    "a step that goes to a layer": ("{32, 16, 16}", "y = MatMul (q, wd) z = Abs (k)"),
    "a step that is normed first": (
        "{32, 16, 16}",
        "n = LayerNormalization (q, gamma) y = MatMul (n, wd) z = Abs (k)",
    ),
    "a part that gates another": ("{32, 32, 32}", "y = Mul (q, v) z = Abs (k)"),
    "the gates of a recurrence": ("{32, 32, 32}", "y = Sigmoid (q) z = Tanh (v)"),
}


@pytest.mark.parametrize(("sizes", "use"), OTHER_PARTS.values(), ids=OTHER_PARTS)
def test_parts_that_are_no_queries_keys_and_values(sizes: str, use: str) -> None:
    parts = [int(n) for n in sizes[1:-1].split(",")]
    cut = f"sizes = Constant <value = int64[3] {sizes}> () q, k, v = Split <axis = 2> (h, sizes)"
    weights = {"w": (64, sum(parts)), "wd": (parts[0], 24), "gamma": (parts[0],)}
    outputs = "float[2, 8, i] y, float[2, 8, j] z"
    found = idioms(f"h = MatMul (x, w) {cut} {use}", weights, inputs="float[2, 8, 64] x", outputs=outputs)
    assert "PackedQKV" not in found


def test_two_parts_are_no_packed_qkv() -> None:
    body = "h = MatMul (x, w) a, b = Split <axis = -1> (h) y = Add (a, b)"
    assert idioms(body, {"w": (64, 128)}) == {"Linear": 1}


def test_weights_in_half_precision_are_cast_on_the_way() -> None:
    text = "g (float[n, 64] x) => (float[n, 32] y) { c = Cast <to = 1> (w) m = MatMul (x, c) y = Add (m, b) }"
    model: onnx.ModelProto = parse(text, {"b": (32,)})
    model.graph.initializer.append(numpy_helper.from_array(np.ones((64, 32), np.float16), "w"))
    assert matches(model).idioms == {"Linear": 1}
