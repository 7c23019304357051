"""A plan to run on a GPU: its inputs, the operator that implements it, and several in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np

from fusion_cli.planir.host_op import ShapeOp
from fusion_cli.planir.invariants import check
from fusion_cli.planir.stages import Plan, Stage, Tensor
from fusion_cli.types import FusedOp
from tests.helpers import plan_builder

Array = np.ndarray
TOLERANCE = {"float32": 2e-5, "float16": 3e-3, "bfloat16": 2e-2, "float64": 1e-12}
TF32_TOLERANCE = 1.5e-3
"""Where operands of float32 are rounded to ten bits of fraction."""


@dataclass(frozen=True)
class Case:
    """A plan, the symbols' values to run it with, and values to plant in its inputs (slot -> (index, value)); an index
    shorter than the rank plants a whole slice."""

    name: str
    plan: Plan
    sizes: tuple[Mapping[str, int], ...]
    planted: Mapping[int, tuple[tuple[int | slice, ...], float]] = field(default_factory=dict)
    shown: frozenset[int] = frozenset()
    """Inputs that are masks which hide nothing but what is planted."""
    repeated: frozenset[int] = frozenset()
    """Inputs of which all rows are the first one, as a mask of padding has them."""

    def inputs(self, sizes: Mapping[str, int], rng: np.random.Generator) -> list[Array]:
        arrays = []
        for slot, index in enumerate(self.plan.inputs):
            tensor = self.plan.tensors[index]
            shape = tuple(sizes[d] if isinstance(d, str) else d for d in tensor.shape)
            array = random(tensor.dtype, shape, rng)
            if slot in self.shown:
                array[...] = array.dtype == np.bool_
            if slot in self.planted and array.size:
                where, value = self.planted[slot]
                array[tuple(map(_within, where, shape))] = value
            if slot in self.repeated:
                array[...] = array[..., :1, :]
            arrays.append(array)
        return arrays


def _within(index: int | slice, size: int) -> int | slice:
    return index if isinstance(index, slice) else min(index, size - 1)


def random(dtype: str, shape: Sequence[int], rng: np.random.Generator) -> Array:
    if dtype == "bool":
        return rng.random(shape) < 0.7
    if dtype.startswith("int"):
        return rng.integers(-5, 6, shape).astype(dtype)
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def fused_op(case: Case) -> FusedOp:
    """The operator that a case's plan implements."""
    return plan_builder.fused_op(f"Case_{case.name}", case.plan)


def merged(name: str, cases: Sequence[Case]) -> Case:
    """One operator that does everything the cases do, one after the other."""
    plans = [c.plan for c in cases]
    tensors: list[Tensor] = []
    host: list[ShapeOp] = []
    stages: list[Stage] = []
    inputs: list[int] = []
    outputs: list[int] = []
    buffers = 0
    for plan in plans:
        t, h = len(tensors), len(host)
        first = {"input": len(inputs), "output": len(outputs), "temp": buffers, "alias": t, "view": t}
        for tensor in plan.tensors:
            moved = {name: getattr(tensor, name) + h for name in ("dims", "starts", "steps")}
            tensors.append(replace(tensor, slot=tensor.slot + first[tensor.role], **moved))
        for op in plan.shape_program:
            ints = (op.ints[0] + len(inputs),) if op.kind in ("dims", "read") else op.ints
            host.append(ShapeOp(op.kind, tuple(a + h for a in op.args), ints))
        for stage in plan.stages:
            operands = tuple(replace(o, tensor=o.tensor + t) for o in stage.operands)
            stores = tuple(replace(s, tensor=s.tensor + t) for s in stage.stores)
            stages.append(replace(stage, operands=operands, stores=stores, dims=stage.dims + h))
        inputs += [i + t for i in plan.inputs]
        outputs += [i + t for i in plan.outputs]
        buffers += plan.buffers
    plan = check(Plan(tuple(tensors), tuple(host), tuple(stages), tuple(inputs), tuple(outputs), buffers))
    sizes: dict[str, int] = {}
    for case in cases:
        sizes |= case.sizes[0]
    return Case(name, plan, (sizes,))


def apart(case: Case, prefix: str) -> Case:
    """The case with symbols of its own."""
    tensors = tuple(
        replace(t, shape=tuple(d if isinstance(d, int) else f"{prefix}_{d}" for d in t.shape))
        for t in case.plan.tensors
    )
    sizes = tuple({f"{prefix}_{d}": n for d, n in chosen.items()} for chosen in case.sizes)
    return replace(case, plan=replace(case.plan, tensors=tensors), sizes=sizes)


def error_of(got: Array, want: Array) -> float:
    """Largest difference over the largest finite magnitude; infinite where NaN or infinities differ."""
    if got.shape != want.shape:
        return float("inf")
    if got.size == 0:
        return 0.0
    a, b = got.astype(np.float64), want.astype(np.float64)
    special = ~np.isfinite(b)
    if not np.array_equal(a[special], b[special], equal_nan=True) or not np.isfinite(a[~special]).all():
        return float("inf")
    a, b = a[~special], b[~special]
    return float(np.abs(a - b).max(initial=0.0) / max(np.abs(b).max(initial=0.0), 1e-30))


def assert_close(op: FusedOp, got: Sequence[Array], want: Sequence[Array], where: object, tf32: bool = False) -> None:
    """Compare an operator's outputs with those of float64. `tf32`: whether float32 was rounded for products."""
    for spec, g, w in zip(op.outputs, got, want, strict=True):
        tolerance = max(TOLERANCE.get(i.dtype, 0.0) for i in (*op.inputs, spec))
        tolerance = max(tolerance, TF32_TOLERANCE) if tf32 else tolerance
        assert error_of(g, w) <= tolerance, f"{spec.name} at {where}"
