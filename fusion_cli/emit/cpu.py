"""C++ for the CPU provider: each stage of a plan as a loop that GCC vectorises, run on ONNX Runtime's threads."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from fusion_cli.codegen.cpu_access import NARROW
from fusion_cli.codegen.cpu_loops import Body, loop, score_loop
from fusion_cli.codegen.expr import compute, onnx_type, storage
from fusion_cli.codegen.text import ancestry, comment, ints, viewed_shape
from fusion_cli.codes import emit as codes
from fusion_cli.errors import Unsupported
from fusion_cli.planir.stages import Attention, Conv, Instr, Linear, Operand, Plan, Rowwise, Stage
from fusion_cli.types import FusedOp, Target


@dataclass(frozen=True)
class StageCode:
    """A stage as the template prints it."""

    index: int
    kind: str
    nodes: list[str]
    space: str
    body: Body | None
    detail: dict[str, Any]


def context(op: FusedOp, target: Target, *, debug: bool) -> dict[str, Any]:
    """The variables of `templates/cpu/region.cc.jinja` for an operator with a plan."""
    assert op.plan is not None
    plan = op.plan
    return {
        "stages": [_stage(plan, i, s) for i, s in enumerate(plan.stages)],
        "tensors": _tensors(plan),
        "workspace": _workspace(plan),
    }


def _stage(plan: Plan, index: int, stage: Stage) -> StageCode:
    nodes = [comment(n) for n in stage.nodes]
    kind = type(stage).__name__.lower()
    body: Body | None
    detail: dict[str, Any] = {}
    if isinstance(stage, Attention):
        body, detail = _attention(plan, stage)
    elif isinstance(stage, Linear):
        body, detail = _product(plan, stage, _linear(plan, stage))
    elif isinstance(stage, Conv):
        body, detail = _product(plan, stage, _conv(plan, stage))
    else:
        body = loop(plan, stage, isinstance(stage, Rowwise))
    return StageCode(index, kind, nodes, f"h{stage.dims}", body, detail)


# Products


def _product(plan: Plan, stage: Linear | Conv, detail: dict[str, Any]) -> tuple[Body | None, dict[str, Any]]:
    """A vendor kernel's result, and the loop of the epilogue over it (None where there is nothing left to do)."""
    dtype = detail["dtype"]
    factor = stage.alpha if isinstance(stage, Linear) else 1.0
    in_place = next((s.tensor for s in stage.stores if plan.tensors[s.tensor].dtype == dtype), None)
    detail["acc"] = f"t{in_place}" if in_place is not None else ""
    copies = [stage.program[s.instr].op == "acc" for s in stage.stores] == [True]
    if copies and in_place is not None and factor == 1.0:
        return None, detail
    return loop(plan, stage, False, dtype, factor), detail


def _linear(plan: Plan, stage: Linear) -> dict[str, Any]:
    dtype = _product_dtype(plan, stage.operands[stage.a])
    sides = []
    for operand, trans in ((stage.operands[stage.a], stage.trans_a), (stage.operands[stage.b], stage.trans_b)):
        rank = len(plan.tensors[operand.tensor].shape)
        perm = operand.perm or tuple(range(rank))
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        if perm == swapped:
            perm, trans = tuple(range(rank)), not trans
        if trans and dtype != "float32":  # ONNX Runtime's transposing product exists for float only
            perm, trans = (*perm[:-2], perm[-1], perm[-2]), False
        identity = perm == tuple(range(rank))
        sides.append((f"t{operand.tensor}", "" if identity else ints(perm), trans))
    return {"dtype": dtype, "type": compute(dtype), "onnx_type": onnx_type(dtype), "a": sides[0], "b": sides[1]}


def _conv(plan: Plan, stage: Conv) -> dict[str, Any]:
    dtype = _product_dtype(plan, stage.operands[stage.x])
    slots = [stage.x, stage.w] + ([stage.bias] if stage.bias >= 0 else [])
    inputs = []
    for slot in slots:
        operand = stage.operands[slot]
        inputs.append((f"t{operand.tensor}", ints(operand.perm) if operand.perm is not None else ""))
    if stage.auto_pad not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(codes.OPERATOR, "one of ONNX's", stage.auto_pad)
    return {
        "dtype": dtype,
        "type": compute(dtype),
        "onnx_type": onnx_type(dtype),
        "inputs": inputs,
        "strides": ints(stage.strides),
        "pads": ints(stage.pads if stage.auto_pad == "NOTSET" else ()),
        "dilations": ints(stage.dilations),
        "group": int(stage.group),
        "auto_pad": stage.auto_pad,
    }


def _product_dtype(plan: Plan, operand: Operand) -> str:
    """The type a product is computed in: 16-bit floats are widened."""
    dtype = plan.tensors[operand.tensor].dtype
    return "float32" if dtype in NARROW else dtype


# Attention


def _attention(plan: Plan, stage: Attention) -> tuple[Body, dict[str, Any]]:
    """The row loop over a block of scores (score program, softmax, probability program), and the two products."""
    q, k, v = (stage.operands[i] for i in (stage.q, stage.k, stage.v))
    if _product_dtype(plan, q) != "float32":
        raise Unsupported(codes.DTYPE, "attention in float32, float16 or bfloat16", plan.tensors[q.tensor].dtype)
    program, result = softmax_program(stage)
    columns = viewed_shape(plan, k)[-1 if stage.k_transposed else -2]
    space = ("?",) * (len(viewed_shape(plan, q)) - 1) + (columns,)
    body = score_loop(plan, stage, program, result, space)
    detail = {
        "q": _view(q),
        "k": _view(k),
        "v": _view(v),
        "k_transposed": stage.k_transposed,
        "out": f"t{stage.stores[0].tensor}",
        "out_perm": ints(stage.out_perm) if stage.out_perm is not None else "Ints{}",
    }
    return body, detail


def _view(operand: Operand) -> tuple[str, str]:
    return f"t{operand.tensor}", ints(operand.perm) if operand.perm is not None else "Ints{}"


def softmax_program(stage: Attention) -> tuple[tuple[Instr, ...], int]:
    """Attention between its products as one rowwise program on raw scores, and the instruction that is its value."""
    program = list(stage.program)

    def emit(op: str, *args: int, dtype: str = "float32", value: float | None = None) -> int:
        program.append(Instr(op, args, dtype, value))
        return len(program) - 1

    zero_empty = stage.kind.probabilities == "zero_empty"
    highest = emit("reduce_max", stage.score)
    if stage.sink >= 0:
        highest = emit("Max", highest, stage.sink)
    if zero_empty:
        empty = emit("Equal", highest, emit("const", value=-math.inf), dtype="bool")
        highest = emit("Where", empty, emit("const", value=0.0), highest)
    exponential = emit("Exp", emit("Sub", stage.score, highest))
    total = emit("reduce_sum", exponential)
    if stage.sink >= 0:
        total = emit("Add", total, emit("Exp", emit("Sub", stage.sink, highest)))
    if zero_empty:
        total = emit("Max", total, emit("const", value=1.0))
    probability = emit("Div", exponential, total)
    if not stage.prob_program:
        return tuple(program), probability
    shift = len(program)
    for instr in stage.prob_program:
        if instr.op == "acc":
            program.append(Instr("Identity", (probability,), instr.dtype))
        else:
            program.append(replace(instr, args=tuple(a + shift for a in instr.args)))
    return tuple(program), shift + stage.prob


# Memory


def _tensors(plan: Plan) -> list[str]:
    """Statements that define the arrays t0, t1, ...; each after the one whose memory it names."""
    lines = []
    for i in ancestry(plan, range(len(plan.tensors))):
        tensor = plan.tensors[i]
        ctype, dims = storage(tensor.dtype), f"h{tensor.dims}"
        match tensor.role:
            case "input":
                array = f"array<{ctype}>(run.input({tensor.slot}), {dims})"
            case "output":
                array = f"array<{ctype}>(run.output({tensor.slot}, {dims}), {dims})"
            case "temp":
                array = f"array<{ctype}>(buffer{tensor.slot}, {dims})"
            case "alias":
                array = f"reshaped(t{tensor.slot}, {dims})"
            case "view":
                array = f"part(t{tensor.slot}, {dims}, h{tensor.starts}, h{tensor.steps})"
        lines.append(f"const auto t{i} = {array};")
    return lines


def _workspace(plan: Plan) -> list[tuple[int, list[str]]]:
    """Per workspace buffer: its number, and the byte counts of the tensors that live in it."""
    sizes: dict[int, list[str]] = {}
    for tensor in plan.tensors:
        if tensor.role == "temp":
            sizes.setdefault(tensor.slot, []).append(f"bytes<{storage(tensor.dtype)}>(h{tensor.dims})")
    return sorted(sizes.items())
