"""The table of operators against ONNX Runtime, and against what plans are made of: an entry that is added is tested."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import numpy as np
import onnx
import onnx.defs
import onnxruntime as ort
import pytest

import fusion_cli
from fusion_cli.emit import emit
from fusion_cli.operators.operator import Operator, Trait
from fusion_cli.operators.registry import COUNTING, OPERATORS, evaluate
from fusion_cli.operators.versions import first_opset
from fusion_cli.plan.lower_shapes import HOST_RULES
from fusion_cli.types import Target
from tests.helpers.graphs import parse
from tests.helpers.plan_builder import fused_op
from tests.helpers.region_tools import check_model

ELEMENTWISE = [o for o in OPERATORS.values() if o.has("elementwise")]
ROWS = [o for o in OPERATORS.values() if o.has("row")]
TARGETS = (Target("cpu", "cpu"), Target("sm_90a", "cuda"))
OTHERWISE = {
    "alpha": 0.7, "beta": 0.3, "gamma": 1.3, "approximate": '"tanh"', "min": -0.5, "max": 0.25, "detect_negative": 0,
    "detect_positive": 1,
}  # fmt: skip
"""Attributes that are not what they are by default."""
MEANINGS = [
    *((o, {}) for o in ELEMENTWISE),
    *((o, {n: OTHERWISE[n] for n in o.parameters}) for o in ELEMENTWISE if OTHERWISE.keys() & o.parameters),
]
DIMS = ("", "[n]", "[m, n]")
IN_TEXT = {"bool": "bool", "int64": "int64", "float32": "float"}

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def name_of(operator: Operator) -> str:
    return f"{operator.domain}.{operator.name}".lstrip(".")


def operands(operator: Operator, kind: str = "float32") -> dict[str, np.ndarray]:
    """Arrays, of a kind of number where the operator takes numbers, and all of one shape where it may be so."""
    rng = np.random.default_rng(11)
    schema = None if operator.domain else onnx.defs.get_schema(operator.name)
    found = {}
    for i in range(3 if operator.arity is None else operator.arity):
        types = schema.inputs[min(i, len(schema.inputs) - 1)].types if schema else {"tensor(float)"}
        numbers = 3 * rng.standard_normal((5, 7))
        numbers[0, :2] = 0.0, 1.0
        if "tensor(float)" not in types:
            found[f"x{i}"] = numbers > 0
        else:
            found[f"x{i}"] = numbers if kind == "float32" else np.sign(numbers) * np.ceil(abs(numbers)) + (numbers == 0)
    if operator.name == "Clip":
        found |= {"x1": np.array(-1.25), "x2": np.array(0.5)}
    if operator.name == "BiasGelu":
        found["x1"] = np.zeros(7)
    if operator.name in ("IsInf", "IsNaN"):
        found["x0"][1, :3] = np.inf, -np.inf, np.nan
    return {n: a.astype(kind) if a.dtype == np.float64 else a for n, a in found.items()}


def text_of(operator: Operator, arrays: dict[str, np.ndarray], attributes: dict[str, object]) -> str:
    inputs = ", ".join(f"{IN_TEXT[a.dtype.name]}{DIMS[a.ndim]} {name}" for name, a in arrays.items())
    result = "bool" if operator.has("bool") else IN_TEXT[list(arrays.values())[-1].dtype.name]
    given = ", ".join(f"{n} = {v}" for n, v in attributes.items())
    call = (
        f"{name_of(operator)} <{given}> ({', '.join(arrays)})"
        if given
        else f"{name_of(operator)} ({', '.join(arrays)})"
    )
    return f"g ({inputs}) => ({result}[m, n] y) {{ y = {call} }}"


def opset_of(operator: Operator) -> int:
    return 20 if operator.domain or operator.name.startswith("Simplified") else max(20, first_opset(operator.name))


def by_onnxruntime(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)[0]


@pytest.mark.parametrize(("operator", "given"), MEANINGS, ids=lambda case: getattr(case, "name", ""))
def test_an_elementwise_operator_means_what_onnx_runtime_computes(operator: Operator, given: dict[str, object]) -> None:
    bounds_given = operator.name == "Clip" and bool(given)
    given = given | {"Mod": {"fmod": 1}, "Cast": {"to": 1}}.get(operator.name, {})
    feeds = operands(operator)
    feeds = {"x0": feeds["x0"]} if bounds_given else feeds
    opset = 10 if bounds_given else opset_of(operator)
    expected = by_onnxruntime(parse(text_of(operator, feeds, given), opset=opset), feeds)
    wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in feeds.values()]
    attributes = {n: v.strip('"') if isinstance(v, str) else v for n, v in given.items()}
    found = evaluate(operator.domain, operator.name, wide, attributes)
    np.testing.assert_allclose(found.astype(expected.dtype), expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("operator", ELEMENTWISE, ids=name_of)
def test_an_elementwise_operator_is_one_kernel_on_every_target(operator: Operator) -> None:
    feeds = operands(operator, "int64" if operator.name == "Mod" else "float32")
    text = text_of(operator, feeds, {"to": 1} if operator.name == "Cast" else {})
    plan = check_model(text, feeds, 2e-5, opset_of(operator))
    assert len(plan.stages) == 1
    for target in TARGETS:
        assert emit(fused_op("Probe", plan), target).text


@pytest.mark.parametrize("operator", ROWS, ids=name_of)
def test_an_operator_of_rows_is_one_kernel_on_every_target(operator: Operator) -> None:
    feeds = {"x": operands(OPERATORS["", "Abs"])["x0"]}
    if operator.name.startswith("Reduce"):
        feeds["x"] = np.abs(feeds["x"])  # of which there is a logarithm
        axes = "a = Constant <value_ints = [-1]> ()"
        text = f"g (float[m, n] x) => (float[m, 1] y) {{ {axes} y = {operator.name} (x, a) }}"
    elif operator.name.endswith("Normalization"):
        feeds["w"] = feeds["x"][0]
        text = f"g (float[m, n] x, float[n] w) => (float[m, n] y) {{ y = {operator.name} (x, w) }}"
    else:
        text = f"g (float[m, n] x) => (float[m, n] y) {{ y = {operator.name} (x) }}"
    plan = check_model(text, feeds, 2e-5, opset_of(operator))
    assert len(plan.stages) == 1
    for target in TARGETS:
        assert emit(fused_op("Probe", plan), target).text


def test_traits_are_known_ones() -> None:
    assert {trait for o in OPERATORS.values() for trait in o.traits.split()} == set(get_args(Trait))


def test_shapes_are_computed_with_the_operators_that_regions_copy() -> None:
    assert HOST_RULES.keys() == COUNTING


def test_rarer_functions_are_fused_with_what_is_around_them(tmp_path: Path) -> None:
    model, out = tmp_path / "model.onnx", tmp_path / "fused.onnx"
    onnx.save(parse("g (float[m, n] x) => (float[m, n] y) { t = Tan (x) r = Relu (t) y = Sigmoid (r) }"), model)
    report = fusion_cli.optimize(model, out, targets=["cpu"], force=True)
    assert [len(f.nodes) for f in report.fusions] == [3]
    x = np.random.default_rng(3).standard_normal((9, 33)).astype(np.float32)
    expected = ort.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    found = fusion_cli.session(out, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)
