"""What a product's kernel writes for the rows that are computed of it: what others need too, and nothing that these can
make of that for themselves."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fusion_cli.planir.stages import Conv, Linear, Plan, Rowwise
from tests.helpers.region_tools import check_model

RNG = np.random.default_rng(11)
SHAPES = {"x": (2, 3, 6), "w": (6, 8), "z": (2, 3, 8), "g": (8,), "b": (8,), "s": (2, 3, 1), "u": (8, 8)}
CONSTANTS = "e = Constant <value = float {0.00001}> () one = Constant <value = int64[1] {-1}> ()"
ROOT = "m = ReduceMean (q, one) v = Add (m, e) o = Sqrt (v) i = Reciprocal (o)"
"""The reciprocal root of a mean of the squares `q`."""
DTYPES, TOLERANCE = {"float": np.float32, "float16": np.float16}, {"float": 1e-5, "float16": 4e-3}


def plan_of(body: str, outputs: str, dtype: str = "float", **more: tuple[int, ...]) -> Plan:
    """The plan of a model, whose numbers are those of ONNX Runtime."""
    shapes = {n: s for n, s in (SHAPES | more).items() if re.search(rf"[(,] ?{n}\b", body)}
    inputs = ", ".join(f"{dtype}[{', '.join(map(str, s))}] {n}" for n, s in shapes.items())
    arrays = {n: RNG.standard_normal(s).astype(DTYPES[dtype]) for n, s in shapes.items()}
    whole = re.sub(r"q = \w+ \([^)]*\)", rf"\g<0> {ROOT}", body)
    return check_model(f"g ({inputs}) => ({outputs}) {{ {CONSTANTS} {whole} }}", arrays, TOLERANCE[dtype])


def written(plan: Plan, kind: type = Linear) -> list[str]:
    """The types of what the first product writes."""
    stage = next(s for s in plan.stages if isinstance(s, kind))
    return [plan.tensors[s.tensor].dtype for s in stage.stores]


def ops(plan: Plan) -> list[str]:
    """The operators that the rows' kernel computes before the first of its reductions."""
    (rows,) = (s for s in plan.stages if isinstance(s, Rowwise))
    found = [i.op for i in rows.program]
    return [op for op in found[: found.index("reduce_mean")] if op != "load"]


def test_a_sum_that_is_kept_is_all_that_a_product_writes_for_a_norm() -> None:
    """Neither its copy in float32 nor the squares of that."""
    body = "p = MatMul (x, w) t = Add (p, z) f = Cast <to = 1> (t) q = Mul (f, f) y = Mul (f, i)"
    plan = plan_of(body, "float16[2, 3, 8] t, float[2, 3, 8] y", "float16")
    assert written(plan) == ["float16"]
    assert ops(plan) == ["Cast", "Mul"]
    assert plan.buffers == 0


@pytest.mark.parametrize("sum_of", ["t = MatMul (x, w)", "p = MatMul (x, w) t = Add (p, b)"])
def test_squares_go_to_the_rows_where_these_read_the_sum(sum_of: str) -> None:
    """Also where nothing but them does."""
    plan = plan_of(f"{sum_of} q = Mul (t, t) y = Mul (t, i)", "float[2, 3, 8] y")
    assert written(plan) == ["float32"]
    assert ops(plan) == ["Mul"]


def test_what_leads_there_by_way_of_what_is_not_written_goes_with_it() -> None:
    body = "p = MatMul (x, w) t = Add (p, z) n = Neg (t) k = Sub (n, b) h = Mul (k, s) q = Mul (h, h) y = Mul (z, i)"
    plan = plan_of(body, "float[2, 3, 8] t, float[2, 3, 8] y")
    assert written(plan) == ["float32"]
    assert ops(plan) == ["Neg", "Sub", "Mul", "Mul"]


def test_rows_wait_for_what_they_read_in_place_of_the_product() -> None:
    """A factor of each row by a kernel that has more to do, and that the product waits for no longer."""
    body = """p = MatMul (x, w) t = Add (p, z) c = ReduceMax (d, one) k = Mul (t, c) q = Mul (k, k) y = Mul (z, i)
        n = Sub (d, c)"""
    outputs = "float[2, 3, 8] t, float[2, 3, 8] y, float[2, 3, 5] n"
    plan = plan_of(body, outputs, d=(2, 3, 5))
    assert [type(s) for s in plan.stages] == [Linear, Rowwise, Rowwise]
    assert written(plan) == ["float32"]


def test_what_follows_a_convolution_goes_to_the_rows_too() -> None:
    body = "t = Conv (a, f) q = Mul (t, t) y = Mul (t, i)"
    plan = plan_of(body, "float[2, 4, 6, 8] y", a=(2, 3, 6, 8), f=(4, 3, 1, 1))
    assert written(plan, Conv) == ["float32"]


NEGATED = "p = MatMul (x, w) t = Add (p, z) k = Neg (t)"
STAYS = {
    "an output": ("q = Mul (k, k) y = Mul (z, i)", "float[2, 3, 8] k"),
    "what another product reads": ("q = Mul (k, k) y = Mul (z, i) h = MatMul (k, u)", "float[2, 3, 8] h"),
    "what the epilogue of another reads": (
        "q = Mul (t, t) y = Mul (z, i) r = MatMul (t, u) h = Add (r, k)", "float[2, 3, 8] h"
    ),
    "what two kernels of rows read": (
        "q = Mul (k, k) y = Mul (k, i) r = MatMul (y, u) c = ReduceMax (r, one) h = Mul (k, c)",
        "float[2, 3, 8] h",
    ),
    "what they read in another shape": (
        "all = Constant <value = int64[2] {6, 8}> () h = Reshape (k, all) q = Mul (h, h) y = Mul (z, s)",
        "float[6, 1] i",
    ),
    "what they read for several rows": ("h = Add (k, wide) q = Mul (h, h) y = Mul (z, s)", "float[4, 2, 3, 1] i"),
    "what is not cheap": ("h = Exp (k) q = Mul (h, h) y = Mul (z, i)", ""),
    "what has another large operand": ("h = Mul (k, z) q = Mul (h, h) y = Mul (h, i)", ""),
    "what others are computed from that stay": (
        "h = Mul (k, z) j = Mul (k, k) q = Add (h, j) y = Mul (z, i)", ""
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "output"), STAYS.values(), ids=STAYS)
def test_what_stays_with_the_product(body: str, output: str) -> None:
    """It is the one thing that is written beside the sum."""
    outputs = ", ".join(["float[2, 3, 8] t, float[2, 3, 8] y", *([output] if output else [])])
    plan = plan_of(f"{NEGATED} {body}", outputs, wide=(4, 2, 3, 8))
    assert written(plan) == ["float32", "float32"]


def test_a_copy_of_what_is_not_written_stays() -> None:
    """The squares of it do not."""
    body = "p = MatMul (x, w) t = Add (p, z) f = Cast <to = 1> (t) q = Mul (f, f) y = Mul (f, i)"
    plan = plan_of(body, "float[2, 3, 8] y", "float16")
    assert written(plan) == ["float32"]
    assert ops(plan) == ["Mul"]


def test_numbers_of_rows_are_written() -> None:
    """Rows of a table are read by numbers in memory, of which there is one for each element where rows have one."""
    text = """g (float[n, 4] x, float[4, 1] w, float[6, 1] table) => (float[n, 1] t, float[n, 1] y) {
        t = MatMul (x, w) k = Cast <to = 7> (t) one = Constant <value_ints = [1]> () j = Squeeze (k, one)
        r = Gather (table, j) y = Softmax <axis = -1> (r) }"""
    arrays = {n: RNG.uniform(0, 1, s).astype(np.float32) for n, s in (("x", (5, 4)), ("w", (4, 1)), ("table", (6, 1)))}
    assert written(check_model(text, arrays)) == ["float32", "int64"]
