"""Plans written by hand, so that no other stage of the compiler is involved, and plans as operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import onnx_ir as ir

from fusion_cli.plan.grouping import find_groups
from fusion_cli.planir.host_op import ShapeOp
from fusion_cli.planir.invariants import check
from fusion_cli.planir.stages import Const, Instr, Operand, Plan, Stage, Tensor
from fusion_cli.types import FusedOp, TensorSpec

Shape = tuple[int | str, ...]


class Program:
    """Instructions in the order they are asked for, by number; of type `dtype` where nothing else is said."""

    def __init__(self, dtype: str = "float32") -> None:
        self.dtype = dtype
        self.instrs: list[Instr] = []

    def __call__(self, op: str, *args: int, dtype: str = "", value: Const | None = None) -> int:
        self.instrs.append(Instr(op, args, dtype or self.dtype, value))
        return len(self.instrs) - 1

    def load(self, operand: int, dtype: str = "") -> int:
        return self("load", dtype=dtype, value=operand)

    def const(self, value: Const, dtype: str = "") -> int:
        return self("const", dtype=dtype, value=value)

    def silu(self, x: int) -> int:
        return self("Mul", x, self("Sigmoid", x))

    def done(self) -> tuple[Instr, ...]:
        return tuple(self.instrs)


class Builder:
    """A plan under construction; tensors and shape values are numbered in the order they are added."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.host: list[ShapeOp] = []
        self.stages: list[Stage] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.temps = 0

    def dims(self, tensor: int) -> int:
        return self.tensors[tensor].dims

    def op(self, kind: str, *args: int, ints: Sequence[int] = ()) -> int:
        self.host.append(ShapeOp(kind, args, tuple(ints)))
        return len(self.host) - 1

    def input(self, dtype: str, *shape: int | str) -> int:
        slot = len(self.inputs)
        self.inputs.append(self._tensor("input", slot, dtype, shape, self.op("dims", ints=(slot,))))
        return self.inputs[-1]

    def output(self, dtype: str, shape: Shape, dims: int) -> int:
        self.outputs.append(self._tensor("output", len(self.outputs), dtype, shape, dims))
        return self.outputs[-1]

    def temp(self, dtype: str, shape: Shape, dims: int) -> int:
        self.temps += 1
        return self._tensor("temp", self.temps - 1, dtype, shape, dims)

    def alias(self, of: int, shape: Shape, dims: int) -> int:
        return self._tensor("alias", of, self.tensors[of].dtype, shape, dims)

    def _tensor(
        self, role: Literal["input", "output", "temp", "alias"], slot: int, dtype: str, shape: Shape, dims: int
    ) -> int:
        self.tensors.append(Tensor(role, slot, dtype, tuple(shape), dims))
        return len(self.tensors) - 1

    def plan(self, host_inputs: tuple[int, ...] = ()) -> Plan:
        tensors, host, stages = tuple(self.tensors), tuple(self.host), tuple(self.stages)
        groups = find_groups(tensors, stages, self.outputs)
        inputs, outputs = tuple(self.inputs), tuple(self.outputs)
        return check(Plan(tensors, host, stages, inputs, outputs, self.temps, host_inputs, groups))


def operands(*tensors: int | tuple[int, tuple[int, ...]]) -> tuple[Operand, ...]:
    return tuple(Operand(t) if isinstance(t, int) else Operand(*t) for t in tensors)


def fused_op(
    name: str,
    plan: Plan | None,
    inputs: Sequence[TensorSpec] = (),
    outputs: Sequence[TensorSpec] = (),
    kernel: str = "auto",
    nodes: Sequence[ir.Node] = (),
) -> FusedOp:
    """The operator that a plan implements; without a plan, one of these inputs and outputs."""
    function = ir.Function("fusion", name, "", graph=ir.Graph([], [], nodes=nodes), attributes=[])
    if plan is not None:
        inputs, outputs = _specs(plan, "in", plan.inputs), _specs(plan, "out", plan.outputs)
    return FusedOp(name, "Test", kernel, function, plan, tuple(inputs), tuple(outputs), (), (), ("cpu",))


def _specs(plan: Plan, prefix: str, tensors: Sequence[int]) -> list[TensorSpec]:
    """Names by position; an input that is only read on the host is a shape."""
    found = [plan.tensors[t] if t >= 0 else None for t in tensors]
    return [
        TensorSpec(f"{prefix}{n}", "int64" if t is None else t.dtype, (None,) if t is None else t.shape)
        for n, t in enumerate(found)
    ]
