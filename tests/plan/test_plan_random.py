"""Random elementwise and rowwise programs: however they are partitioned, the numbers stay the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fusion_cli.plan import plan_region
from fusion_cli.planir.stages import Rowwise
from tests.helpers.region_tools import all_values, check_region, maximal_regions, parsed, whole

_UNARY = ("Tanh", "Sigmoid", "Abs", "Neg", "Relu", "Sin")
_BINARY = ("Add", "Sub", "Mul", "Max", "Min")
_ROWS = ("ReduceMean", "ReduceMax", "Softmax", "Transpose", "MatMul")


def random_program(seed: int) -> tuple[str, dict[str, np.ndarray]]:
    """A DAG over values [B, S, S] (so that transposes and products fit), per-row values and a vector."""
    rng = np.random.default_rng(seed)
    full, rows = ["x", "z"], ["r"]
    lines = ["axes = Constant <value_ints = [-1]> ()"]
    for i in range(int(rng.integers(4, 24))):
        name = f"t{i}"
        kind = rng.choice(["unary", "binary", "mixed", "rows"], p=[0.25, 0.35, 0.15, 0.25])
        a, b = rng.choice(full), rng.choice(full)
        if kind == "unary":
            lines.append(f"{name} = {rng.choice(_UNARY)}({a})")
        elif kind == "binary":
            lines.append(f"{name} = {rng.choice(_BINARY)}({a}, {b})")
        elif kind == "mixed":
            lines.append(f"{name} = {rng.choice(_BINARY)}({a}, {rng.choice([*rows, 'v'])})")
        else:
            op = rng.choice(_ROWS)
            if op.startswith("Reduce"):
                lines.append(f"{name} = {op}({a}, axes)")
                rows.append(name)
                continue
            if op == "MatMul":
                lines += [f"m{i} = MatMul({a}, {b})", f"{name} = Tanh(m{i})"]
            else:
                attrs = "<axis = -1>" if op == "Softmax" else "<perm = [0, 2, 1]>"
                lines.append(f"{name} = {op} {attrs} ({a})")
        full.append(name)
    made = [n for n in full if n not in ("x", "z")] or ["x"]
    outputs = dict.fromkeys([made[-1], *rng.choice(made, size=min(2, len(made)), replace=False)])
    results = ", ".join(f"float[B, S, S] out_{n}" for n in outputs)
    lines += [f"out_{n} = Identity({n})" for n in outputs]
    text = f"""g (float[B, S, S] x, float[B, S, S] z, float[B, S, 1] r, float[S] v) => ({results}) {{
        {chr(10).join(lines)}
    }}"""
    batch, size = int(rng.integers(1, 4)), int(rng.integers(1, 7))
    shapes = {"x": (batch, size, size), "z": (batch, size, size), "r": (batch, size, 1), "v": (size,)}
    return text, {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


@pytest.mark.parametrize("seed", range(150))
def test_random_program(seed: int) -> None:
    text, feeds = random_program(seed)
    model = parsed(text)
    region = whole(model)
    values = all_values(model, feeds, [region])
    check_region(region, values, 1e-4)
    for part in maximal_regions(model, frozenset({"Add", "Sub", "Mul", "Max", "Min", "Tanh", "ReduceMean"})):
        check_region(part, values | all_values(model, feeds, [part]), 1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_plans_are_reproducible_and_free_of_names(seed: int) -> None:
    text, _ = random_program(seed)
    renamed = re.sub(r"\bS\b", "length", re.sub(r"\bB\b", "batch", text))
    first, second, third = (plan_region(whole(parsed(t))) for t in (text, text, renamed))
    assert first == second
    assert first == third


def test_fewest_kernels() -> None:
    text = """g (float[B, S, S] x) => (float[B, S, S] y, float[B, S, S] u) {
        a = Tanh(x)  y = Softmax <axis = -1> (a)  b = Sigmoid(x)  u = Add(a, b)
    }"""
    plan = plan_region(whole(parsed(text)))
    assert [type(s) for s in plan.stages] == [Rowwise]
    assert len(plan.stages[0].stores) == 2
    assert plan.buffers == 0
