"""Pointwise, linear and convolution stages for CUDA: an elementwise program on its own or behind a product."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fusion_cli.codegen.cuda_parts import Body, Load, Names, Out, StageView
from fusion_cli.codegen.expr import onnx_type
from fusion_cli.codegen.text import resolve
from fusion_cli.codes import emit as codes
from fusion_cli.errors import Unsupported
from fusion_cli.operators.dtypes import FLOATS, element_bytes
from fusion_cli.planir.stages import Conv, Instr, Linear, Operand, Plan, Pointwise


@dataclass(frozen=True)
class PointwiseView(StageView):
    body: Body
    width: int
    """Elements per thread: 16 bytes of the widest operand."""

    @property
    def strided(self) -> tuple[Load | Out, ...]:
        """What does not lie in memory as the iteration space does, or may not: all operands, parts of results."""
        return (*self.body.loads, *(y for y in self.body.outs if y.view))


@dataclass(frozen=True)
class LinearView(StageView):
    body: Body
    a: Load
    b: Load
    trans_a: bool
    trans_b: bool
    """Whether A is contiguous along M, and B along K."""
    a_view: str
    b_view: str
    alpha: str
    passes: PointwiseView | None
    """The epilogue as a pass of its own after a vendor product; None where there is nothing left to do."""
    accumulator: str
    """Tensor the vendor's product is written to; "" for workspace."""


@dataclass(frozen=True)
class ConvView(StageView):
    type: str
    onnx_type: int
    tensors: tuple[str, ...]
    attributes: str
    passes: PointwiseView | None
    accumulator: str


def pointwise(plan: Plan, stage: Pointwise, name: str) -> PointwiseView:
    names = Names(plan, stage, name)
    return _pointwise(names, stage.program, {})


def _pointwise(names: Names, program: Sequence[Instr], extra: Mapping[int, Load]) -> PointwiseView:
    outs = names.outs(names.stage.stores, program)
    body = names.body(
        program,
        [o.instr for o in outs],
        outs,
        load=lambda k: f"x{k}[i]",
        position=lambda back: f"a.axis_{back}.at(e + i)",
        loads=extra,
    )
    widest = max(element_bytes(dtype) for dtype in [x.dtype for x in body.loads] + [y.dtype for y in outs])
    return PointwiseView(*names.common("pointwise"), body=body, width=min(8, 16 // widest))


def _epilogue_pass(plan: Plan, stage: Linear | Conv, name: str, acc_dtype: str) -> tuple[PointwiseView | None, str]:
    """The epilogue as a pass over the product, and the tensor that holds the product ("" if none can)."""
    written = [s for s in stage.stores if plan.tensors[s.tensor].dtype == acc_dtype]
    operands = {_memory(plan, o.tensor) for o in stage.operands}
    home = next((s for s in written if _memory(plan, s.tensor) not in operands), None)
    if home is not None and len(stage.stores) == 1 and stage.program[home.instr].op == "acc":
        return None, f"t{home.tensor}"
    extra = len(stage.operands)
    program = tuple(Instr("load", (), i.dtype, extra) if i.op == "acc" else i for i in stage.program)
    load = Load(extra, f"in{extra}", acc_dtype, "product", "gpu::view(product)")
    names = Names(plan, stage, f"{name}_pass")
    epilogue = _pointwise(names, program, {extra: load})
    parameters = ("product", *(p for p in epilogue.parameters))
    return replace(epilogue, parameters=parameters), f"t{home.tensor}" if home is not None else ""


def _memory(plan: Plan, tensor: int) -> tuple[str, int]:
    """What tells the memory of two tensors apart."""
    home = resolve(plan, tensor)
    return home.role, home.slot


def linear(plan: Plan, stage: Linear, name: str) -> LinearView:
    names = Names(plan, stage, name)
    a, b = names.load(stage.a), names.load(stage.b)
    if a.dtype != b.dtype or a.dtype not in FLOATS:
        raise Unsupported(
            codes.DTYPE, "a product of two float32, float16 or bfloat16 matrices", f"{a.dtype} @ {b.dtype}"
        )
    outs = names.outs(stage.stores, stage.program)
    body = names.body(
        stage.program,
        [o.instr for o in outs],
        outs,
        load=lambda k: f"fusion::load(in{k} + at[at{k}] + row * row{k} + column * column{k})",
        position=lambda back: f"axis_{back}.at(e)",
    )
    passes, home = _epilogue_pass(plan, stage, name, a.dtype)
    a_operand, b_operand = stage.operands[stage.a], stage.operands[stage.b]
    return LinearView(
        *names.common("linear"),
        body=body,
        a=a,
        b=b,
        trans_a=_column_major(plan, a_operand, stage.trans_a),
        trans_b=_column_major(plan, b_operand, stage.trans_b),
        a_view=f"gpu::transposed({a.view})" if stage.trans_a else a.view,
        b_view=f"gpu::transposed({b.view})" if stage.trans_b else b.view,
        alpha=f"{stage.alpha!r}f",
        passes=passes,
        accumulator=home,
    )


def _column_major(plan: Plan, operand: Operand, transposed: bool) -> bool:
    """Whether the matrix is contiguous along its rows' axis, the last but one as the product sees it."""
    rank = len(plan.tensors[operand.tensor].shape)
    perm = operand.perm or tuple(range(rank))
    innermost = rank - 1 - perm.index(rank - 1)
    return innermost == (0 if transposed else 1)


def conv(plan: Plan, stage: Conv, name: str) -> ConvView:
    names = Names(plan, stage, name)
    slots = [stage.x, stage.w] + ([stage.bias] if stage.bias >= 0 else [])
    loads = [names.load(k) for k in slots]
    if any(load.dtype not in ("float32", "float16") or load.dtype != loads[0].dtype for load in loads):
        raise Unsupported(codes.DTYPE, "a convolution in float32 or float16", ", ".join(x.dtype for x in loads))
    if any(stage.operands[k].perm for k in slots):
        raise Unsupported(codes.LIMIT, "convolution operands as they lie in memory", "a transposed operand")
    passes, home = _epilogue_pass(plan, stage, name, loads[0].dtype)
    lists = (stage.strides, stage.pads if stage.auto_pad == "NOTSET" else (), stage.dilations)
    auto_pad = stage.auto_pad if stage.auto_pad in ("VALID", "SAME_UPPER", "SAME_LOWER") else "NOTSET"
    attributes = [*("fusion::Ints{" + ", ".join(map(str, x)) + "}" for x in lists), str(stage.group), f'"{auto_pad}"']
    return ConvView(
        *names.common("conv"),
        type=loads[0].type,
        onnx_type=onnx_type(loads[0].dtype),
        tensors=tuple(x.tensor for x in loads),
        attributes="{" + ", ".join(attributes) + "}",
        passes=passes,
        accumulator=home,
    )
