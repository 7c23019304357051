"""Every elementwise operator of the table, compiled and compared with ONNX Runtime's own kernel."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

from fusion_cli.codegen.expr import expression, literal, needed, onnx_type, render_program
from fusion_cli.errors import Unsupported
from fusion_cli.operators.elementwise import ELEMENTWISE
from fusion_cli.planir.stages import Instr, Pointwise, Store
from fusion_cli.types import FusedOp
from tests.helpers.emit_helpers import library, open_session, run
from tests.helpers.plan_builder import Builder, Program, fused_op, operands

UNARY = [o.name for o in ELEMENTWISE if o.cpp and o.arity == 1 and not o.has("bool")]
PREDICATES = ["IsNaN", "IsInf"]
BINARY = "Add Sub Mul Div Pow Min Max".split()
COMPARE = "Equal Less LessOrEqual Greater GreaterOrEqual".split()
INTEGER = "Add Sub Mul Div Mod Min Max".split()
LOGICAL = "And Or Xor".split()
EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1e-40, 1e30, -1e30, 88.9, -104]
SPECIAL = np.array([*EDGES, np.nan, np.inf, -np.inf], "f4")

SETS = {
    "UnaryF32": ([(n, "float32") for n in UNARY] + [(n, "bool") for n in PREDICATES], ("float32",)),
    "UnaryF16": ([(n, "float16") for n in UNARY], ("float16",)),
    "BinaryF32": ([(n, "float32") for n in BINARY] + [(n, "bool") for n in COMPARE], ("float32",) * 2),
    "BinaryF64": ([(n, "float64") for n in BINARY], ("float64",) * 2),
    "BinaryI64": ([(n, "int64") for n in INTEGER] + [(n, "bool") for n in COMPARE], ("int64",) * 2),
    "BinaryI32": ([(n, "int32") for n in INTEGER], ("int32",) * 2),
    "Logical": ([(n, "bool") for n in LOGICAL], ("bool",) * 2),
}


def table_op(name: str) -> FusedOp:
    """One pointwise operator with an output per ONNX operator of the set."""
    ops, inputs = SETS[name]
    b, p = Builder(), Program(inputs[0])
    tensors = [b.input(dtype, "N") for dtype in inputs]
    loads = [p.load(k) for k in range(len(inputs))]
    stores = []
    for op, dtype in ops:
        tensor = b.output(dtype, ("N",), b.dims(0))
        stores.append(Store(tensor, p(op, *loads, dtype=dtype)))
    b.stages.append(Pointwise(operands(*tensors), p.done(), tuple(stores), b.dims(0)))
    return fused_op(f"Table_{name}", b.plan())


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library([table_op(n) for n in SETS], tmp_path_factory.mktemp("lib")).path


def by_onnxruntime(op: str, out: str, inputs: tuple[str, ...], arrays: list[np.ndarray]) -> np.ndarray:
    ins = [helper.make_tensor_value_info(f"i{k}", onnx_type(d), None) for k, d in enumerate(inputs)]
    outs = [helper.make_tensor_value_info("o", onnx_type(out), None)]
    graph = helper.make_graph([helper.make_node(op, [i.name for i in ins], ["o"])], "g", ins, outs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {f"i{k}": a for k, a in enumerate(arrays)})[0]


def samples(dtype: str, seed: int, size: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(size) < 0.5
    if dtype.startswith("int"):
        values = rng.integers(-20, 20, size)
        return np.where(values == 0, 3, values).astype(dtype)
    return (rng.standard_normal(size) * 10 ** rng.uniform(-3, 1.2, size)).astype(dtype)


@pytest.mark.parametrize("name", SETS)
def test_agrees_with_onnxruntime(name: str, built: Path) -> None:
    ops, inputs = SETS[name]
    arrays = [samples(d, k, 1037) for k, d in enumerate(inputs)]
    if len(inputs) == 1:
        with np.errstate(over="ignore"):
            arrays[0][: len(SPECIAL)] = SPECIAL
    if name == "BinaryF32":
        pairs = np.meshgrid(SPECIAL, SPECIAL)
        for array, special in zip(arrays, pairs, strict=True):
            array[: special.size] = special.reshape(-1)
    results = run(open_session(table_op(name), built), *arrays)
    for (op, dtype), result in zip(ops, results, strict=True):
        expected = reference(op, dtype, inputs, arrays)
        check = ~np.isnan(arrays[0]) if op in ("Sign", "Relu") and arrays[0].dtype.kind == "f" else slice(None)
        rtol = 2 * float(np.finfo(np.float16).eps) if inputs[0] == "float16" else 3e-6
        np.testing.assert_allclose(result[check], expected[check], rtol=rtol, atol=3e-7, err_msg=op)


def reference(op: str, dtype: str, inputs: tuple[str, ...], arrays: list[np.ndarray]) -> np.ndarray:
    with np.errstate(all="ignore"):
        wide = [a.astype("f8") if a.dtype == np.float32 else a for a in arrays]
        x = wide[0]
        by_hand = {
            "Softplus": lambda: np.logaddexp(x, 0),
            "Max": lambda: np.maximum(*wide),
            "Min": lambda: np.minimum(*wide),
        }
        if op in by_hand:
            return by_hand[op]().astype(dtype)
    return by_onnxruntime(op, dtype, inputs, arrays)


@pytest.mark.parametrize(("name", "limit"), [("Exp", 4), ("Log", 4), ("Tanh", 4), ("Erf", 4)])
def test_float_functions_are_within_a_few_ulp(name: str, limit: int, built: Path) -> None:
    import math

    x = np.linspace(-12, 12, 40001, dtype="f4")
    x = np.abs(x) + 1e-30 if name == "Log" else x
    result = run(open_session(table_op("UnaryF32"), built), x.astype("f4"))[UNARY.index(name)]
    exact = np.array([getattr(math, name.lower())(float(v)) for v in x.astype("f4")])
    ulp = np.spacing(np.abs(exact).astype("f4")).astype("f8")
    assert np.max(np.abs(result - exact) / np.maximum(ulp, 2.0**-149)) <= limit


def test_what_a_gate_multiplies_by_x_ends_exactly(tmp_path: Path) -> None:
    """GELU is x times what is left of erf: any rest would grow with x."""
    b, p = Builder(), Program("float32")
    x = b.input("float32", "N")
    stores = []
    for op in ("Erf", "Sigmoid", "Tanh"):
        stores.append(Store(b.output("float32", ("N",), b.dims(0)), p(op, p.load(0))))
    gelu = p("Mul", p("Mul", p.load(0), p.const(0.5)), p("Add", p("Erf", p.load(0)), p.const(1.0)))
    stores.append(Store(b.output("float32", ("N",), b.dims(0)), gelu))
    b.stages.append(Pointwise(operands(x), p.done(), tuple(stores), b.dims(0)))
    op = fused_op("Gates", b.plan())
    low = np.array([-4.0, -6.0, -10.0, -50.0, -200.0, -6e4, -1e30, -np.finfo("f4").max], "f4")
    erf, sigmoid, tanh, gelus = run(open_session(op, library([op], tmp_path).path), low)
    assert (erf == -1).all()
    assert (sigmoid[4:] == 0).all()
    np.testing.assert_allclose(sigmoid[:4], 1 / (1 + np.exp(-low[:4].astype("f8"))), rtol=1e-6)
    assert (tanh[2:] == -1).all()
    assert (gelus == 0).all()
    high = run(open_session(op, library([op], tmp_path).path), np.append(-low, np.float32(np.inf)))
    assert (high[0] == 1).all()
    np.testing.assert_array_equal(high[3], np.append(-low, np.float32(np.inf)))


def test_casts(tmp_path: Path) -> None:
    b, p = Builder(), Program()
    x = b.input("float32", "N")
    load = p.load(0)
    kinds = ["float64", "int32", "int64", "uint8", "bool"]
    stores = [Store(b.output(d, ("N",), 0), p("Cast", load, dtype=d)) for d in kinds]
    for narrow in ("float16", "bfloat16"):
        rounded = p("Cast", load, dtype=narrow)
        stores.append(Store(b.output("float32", ("N",), 0), p("Cast", rounded, dtype="float32")))
    b.stages.append(Pointwise(operands(x), p.done(), tuple(stores), 0))
    op = fused_op("Casts", b.plan())
    session = open_session(op, library([op], tmp_path).path)
    values = np.array([0.0, 1.0, 2.7, 100.5, 1 + 2**-9, 200.3, 0.1, 65519.0, 1e-7], "f4")
    import ml_dtypes

    expected = [values.astype(t) for t in ("f8", "i4", "i8")]
    expected += [np.minimum(values, 255).astype("i8").astype("u1"), values != 0]
    expected += [values.astype("f2").astype("f4"), values.astype(ml_dtypes.bfloat16).astype("f4")]
    small = values < 256
    for kind, got, want in zip([*kinds, "f16", "bf16"], run(session, values), expected, strict=True):
        keep = small if kind == "uint8" else slice(None)
        np.testing.assert_array_equal(got[keep], want[keep], err_msg=kind)


def test_literals_are_exact() -> None:
    rng = np.random.default_rng(0)
    for value in rng.standard_normal(200).astype("f4"):
        text = literal(float(value), "float32").strip("()")
        assert text.endswith("f")
        assert np.float32(text[:-1]) == value
    for value in rng.standard_normal(200) * 1e-200:
        assert float(literal(float(value), "float64").strip("()")) == value
    assert literal(float("-inf"), "float16") == "(-fusion::inf<float>())"
    assert literal(float("nan"), "float64") == "fusion::nan<double>()"
    assert literal(-(2**63), "int64") == "INT64_MIN"
    assert literal(2, "bool") == "true"


def test_unknown_operator_and_type_are_refused() -> None:
    with pytest.raises(Unsupported, match="Einsum"):
        expression("Einsum", ["a"], ["float32"], "float32")
    with pytest.raises(Unsupported, match="complex64"):
        literal(1, "complex64")


def test_dead_code_and_given_names() -> None:
    program = (
        Instr("load", (), "float32", 0),
        Instr("const", (), "float32", 2.0),
        Instr("Pow", (0, 1), "float32"),
        Instr("Exp", (0,), "float32"),
        Instr("Add", (2, 3), "float32"),
    )
    assert needed(program, [2]) == {0, 1, 2}
    lines = render_program(program, load=lambda k: f"x{k}[i]", names={3: "e"})
    assert lines == ["const float v0 = x0[i];", "const float v2 = v0 * v0;", "const float v4 = v2 + e;"]


@pytest.mark.parametrize(
    ("dtype", "divisor", "expected"),
    [
        ("float16", 4.0, "const float v2 = x * 0.25f;"),
        ("bfloat16", -8.0, "const float v2 = x * (-0.125f);"),
        ("float16", 0.0, "const float v2 = fusion::div(x, 0.0f);"),
        ("bfloat16", 1e-39, "const float v2 = fusion::div(x, 1e-39f);"),
        ("float32", 4.0, "const float v2 = fusion::div(x, 4.0f);"),
    ],
)
def test_sixteen_bits_are_not_divided_by_constants(dtype: str, divisor: float, expected: str) -> None:
    """A multiplication rounds differently, in a place that these types do not have."""
    program = [Instr("load", (), dtype, 0), Instr("const", (), dtype, divisor), Instr("Div", (0, 1), dtype)]
    assert render_program(program, load=lambda _: "x")[-1].replace("v0", "x") == expected
