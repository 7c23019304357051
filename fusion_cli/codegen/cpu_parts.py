"""Stages as the CPU templates print them: a loop over a scalar program, alone or behind ONNX Runtime's product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fusion_cli.codegen.cpu_loops import Body, loop
from fusion_cli.codegen.cuda_parts import Member
from fusion_cli.codegen.expr import compute, onnx_type
from fusion_cli.codegen.text import comment, ints
from fusion_cli.operators.dtypes import NARROW
from fusion_cli.planir.stages import Conv, Linear, Moments, Operand, Plan, Pool, Stage

HEADERS = {
    "Conv": "cpu/vendor.h",
    "LastConv": "cpu/conv_last.h",
    "MatMul": "cpu/vendor.h",
    "Moments": "cpu/moments.h",
    "Pool": "cpu/pool.h",
    "TileConv": "cpu/tile_conv.h",
    "TileMatMul": "cpu/tile_matmul.h",
    "WinogradConv": "cpu/winograd_conv.h",
}
"""Where the kinds of products are."""


@dataclass(frozen=True, kw_only=True)
class CpuStage:
    """One stage as its template prints it. Equal stages are one function: what differs from call to call is not
    compared."""

    template: str
    """Its macro `code` takes the stage and prints the function, `call` prints a call of it."""
    headers: tuple[str, ...]
    body: Body | None
    name: str = field(default="", compare=False)
    nodes: tuple[str, ...] = field(default=(), compare=False)
    space: str = field(default="", compare=False)
    members: tuple[Member, ...] = field(default=(), compare=False)


@dataclass(frozen=True, kw_only=True)
class ProductStage(CpuStage):
    """A product or convolution by ONNX Runtime, and the loop of its epilogue (None where nothing is left to do)."""

    type: str
    inputs: str = field(compare=False)
    home: str = field(compare=False)
    """The array that holds the bare product; "" for scratch memory."""


def common(stage: Stage, template: str, *headers: str) -> dict[str, Any]:
    """The fields of a CpuStage that follow from the plan."""
    nodes = tuple(comment(n) for n in stage.nodes)
    return {"template": f"stages/{template}.cc.jinja", "headers": headers, "nodes": nodes, "space": f"h{stage.dims}"}


def product_dtype(plan: Plan, operand: Operand) -> str:
    """The type a product is computed in: 16-bit floats are widened."""
    dtype = plan.tensors[operand.tensor].dtype
    return "float32" if dtype in NARROW else dtype


def dense(dtype: str, tensor: int, perm: Sequence[int] | None) -> str:
    """A tensor as a contiguous array of the type that a product is computed in."""
    turned = "" if perm is None else f", {ints(perm)}"
    return f"dense<{compute(dtype)}>(run, t{tensor}{turned})"


def product_stage(
    plan: Plan, stage: Linear | Conv | Pool | Moments, dtype: str, member: Member, inputs: str, factor: float = 1.0
) -> ProductStage:
    """A product of this type made by `member` from `inputs`, times `factor`."""
    home = next((s.tensor for s in stage.stores if plan.tensors[s.tensor].dtype == dtype), None)
    copies = [stage.program[s.instr].op == "acc" for s in stage.stores] == [True]
    done = copies and home is not None and factor == 1.0
    return ProductStage(
        **common(stage, "product", HEADERS[member.type]),
        body=None if done else loop(plan, stage, False, dtype, factor),
        members=(member,),
        type=compute(dtype),
        inputs=inputs,
        home="" if home is None else f"t{home}.data",
    )


def product_member(kind: str, index: int, dtype: str, arguments: Sequence[str]) -> Member:
    """ONNX Runtime's operator, made with a kernel and invoked in its calls."""
    return Member(kind, f"product_{index}", ", ".join(["api", "info", str(onnx_type(dtype)), *arguments]))
