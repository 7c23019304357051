"""What a size comes out as at run time, whatever shape inference or the file has to say of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import fusion_cli
from tests.helpers.foreign import Both, Run, same
from tests.helpers.graphs import parse, simplified

RNG = np.random.default_rng(11)
LAST, FIRST = 2**63 - 1, -(2**63)


def agree(runs: tuple[Run, Run], *sizes: Sequence[int]) -> None:
    """Both compute the same of an input x of each of these shapes."""
    for shape in sizes:
        same(runs, x=RNG.normal(size=shape).astype(np.float32))


# ---- slices of a size that is not known


def sliced(parts: Iterable[tuple[int, int, int]]) -> onnx.ModelProto:
    """A graph that fills the shape of each part of its input, given by start, end and step."""
    outputs, lines = [], []
    for i, (start, end, step) in enumerate(parts):
        outputs.append(f"float[2, m{i}] y{i}")
        lines.append(
            f"b{i} = Constant <value_ints = [{start}]> () e{i} = Constant <value_ints = [{end}]> () "
            f"t{i} = Constant <value_ints = [{step}]> () p{i} = Slice (x, b{i}, e{i}, one, t{i}) "
            f"s{i} = Shape (p{i}) y{i} = ConstantOfShape (s{i})"
        )
    body = " ".join(("one = Constant <value_ints = [1]> ()", *lines))
    return parse(f"g (float[2, K] x) => ({', '.join(outputs)}) {{ {body} }}")


def test_a_slice_ends_with_what_it_is_of(both: Both) -> None:
    ends = (100, 10**9, 2**31 - 2, 2**31 - 1, LAST, 1, -1, -100)
    model = sliced((start, end, 1) for start in (0, 1, 50, -1, -50) for end in ends)
    agree(both(model, dims={"K": 200}), *((2, n) for n in (1, 2, 50, 60, 100, 101, 130)))


def test_slices_with_steps(both: Both) -> None:
    forwards = [(0, 100, 3), (2, 2**31, 3), (-7, LAST, 2), (0, FIRST, 1)]
    backwards = [(-1, -100, -1), (LAST, FIRST, -1), (5, 0, -2), (-50, FIRST, -1), (100, 3, -3), (3, LAST, -1)]
    agree(both(sliced(forwards + backwards)), *((2, n) for n in (1, 2, 3, 7, 99, 100, 120)))


def test_backwards_to_the_largest_end_is_all_once_sizes_are_known(tmp_path: Path) -> None:
    """A graph that a fuzzer drew: ONNX Runtime infers shapes anew where it runs a kernel's function in its place."""
    model = parse(
        "g (float[2, K] x, float[1, 2] u) => (float[1, 4] y) <int64 zero = {0}, int64 one = {1}, int64[1] axis = {0}, "
        f"int64[1] back = {{-1}}, int64[1] end = {{{LAST}}}, float[2, 4] w = {{1, 2, 3, 4, 5, 6, 7, 8}}> {{ "
        "s = Shape (x) n = Gather <axis = 0> (s, zero) r = Range (zero, n, one) f = Cast <to = 1> (r) "
        "t = Concat <axis = 0> (f, f) p = Slice (t, back, end, axis, back) m = MatMul (u, w) y = Max (p, m) }"
    )
    onnx.save(model, tmp_path / "in.onnx")
    fusion_cli.optimize(tmp_path / "in.onnx", tmp_path / "out.onnx", targets=["cpu"], force=True, verify=False)
    feeds = {"x": np.zeros((2, 3), np.float32), "u": np.array([[0.5, -1.0]], np.float32)}
    (found,) = ort.InferenceSession(tmp_path / "out.onnx").run(None, feeds)
    np.testing.assert_array_equal(found, [[1, 0, 1, 0]])


def test_a_slice_may_take_nothing(both: Both) -> None:
    """Of an axis of size 0, the start of a sequence say, the first element is none."""
    agree(both(sliced([(0, 1, 1), (1, LAST, 1)])), (2, 0), (2, 1), (2, 5))


def test_no_end_of_a_slice_becomes_the_size_of_an_output(tmp_path: Path) -> None:
    text = """g (float[n, 4] x) => (float y) {
        b = Constant <value_ints = [0]> () e = Constant <value_ints = [1000000000]> () y = Slice (x, b, e)
    }"""
    model = parse(text)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "m.onnx")
    fusion_cli.optimize(tmp_path / "m.onnx", tmp_path / "f.onnx", targets=["portable"])
    dims = onnx.load(tmp_path / "f.onnx").graph.output[0].type.tensor_type.shape.dim
    assert "1000000000" not in [d.dim_value for d in dims]


# ---- what is broadcast, squeezed or made by its shape


def test_either_of_two_sizes_may_be_one(both: Both) -> None:
    text = """g (float[n, 4] x, float[m, 4] w) => (float[k, 4] y) {
        a = Add (x, w) s = Shape (a) e = Expand (x, s) y = Sin (e)
    }"""
    runs = both(parse(text))
    for n, m in ((1, 3), (3, 1), (3, 3)):
        same(runs, x=RNG.normal(size=(n, 4)).astype(np.float32), w=RNG.normal(size=(m, 4)).astype(np.float32))


@pytest.mark.parametrize("equation", ["ij,ij->ij", "i...,i...->i...", "...i,...i->...i"])
def test_either_of_two_sizes_that_an_einsum_calls_the_same_may_be_one(equation: str, both: Both) -> None:
    is_last = equation.startswith("...")
    x, w = ("4, n", "4, m") if is_last else ("n, 4", "m, 4")
    text = f"""g (float[{x}] x, float[{w}] w) => (float[p, q] y) {{
        a = Einsum <equation = "{equation}"> (x, w) s = Shape (a) e = Expand (x, s) y = Sin (e)
    }}"""
    runs = both(parse(text))
    for n, m in ((1, 3), (3, 1), (3, 3)):
        arrays = [RNG.normal(size=(size, 4)).astype(np.float32) for size in (n, m)]
        same(runs, **dict(zip("xw", (a.T if is_last else a for a in arrays), strict=True)))


def test_any_axis_may_be_squeezed(both: Both) -> None:
    text = """g (float[n, m, 4] x) => (y) { s = Squeeze (x) r = Shape (s) l = Shape (r) f = Cast <to = 1> (l)
        t = ReduceSum (x) y = Mul (t, f) }"""
    model = parse(text)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    agree(both(model), (2, 3, 4), (1, 3, 4), (2, 1, 4), (1, 1, 4))


# ---- what the file says


def claimed(text: str, **shapes: list[int | str]) -> onnx.ModelProto:
    model = parse(text)
    model.graph.value_info.extend(helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items())
    return model


def test_what_a_file_says_of_a_value_is_not_believed(both: Both) -> None:
    text = """g (float[batch, seq] x, float[one, seq] w) => (float[batch, seq] y) {
        r = Relu (w) s = Shape (x) e = Expand (r, s) y = Mul (e, e)
    }"""
    runs = both(claimed(text, r=["batch", "seq"]))
    for n in (1, 2):
        same(runs, x=np.ones((n, 5), np.float32), w=np.ones((1, 5), np.float32))


def test_what_a_file_says_of_an_output_is_not_believed_but_kept(both: Both, tmp_path: Path) -> None:
    text = """g (float[batch, 4] x) => (float[1, 4] r, float[batch, wide] y) {
        r = Relu (x) s = Shape (r) z = ConstantOfShape (s) y = Add (r, z)
    }"""
    agree(both(parse(text)), (1, 4), (3, 4))
    original, written = (onnx.load(tmp_path / name).graph.output for name in ("m.onnx", "fused.onnx"))
    assert list(written) == list(original)


def test_an_operator_that_nobody_knows_is_believed() -> None:
    """There is nothing else to go by."""
    model = claimed("g (float[n, 4] x) => (float[n, 4] y) { q = own.Nobody (x) y = Relu (q) }", q=["n", 4])
    model.opset_import.append(helper.make_opsetid("own", 1))
    assert [tuple(map(str, n.outputs[0].shape or ())) for n in simplified(model).graph] == [("n", "4")] * 2
