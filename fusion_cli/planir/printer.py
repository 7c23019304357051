"""A plan as text, for people and for differences: a line per tensor, shape value and assignment."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from fusion_cli.planir.host_op import ShapeOp
from fusion_cli.planir.stages import Attention, Conv, Instr, Linear, Moments, Plan, Pool, Stage, Tensor

_INFIX = {
    "Add": "+", "Sub": "-", "Mul": "*", "Div": "/", "Equal": "==", "Less": "<", "LessOrEqual": "<=", "Greater": ">",
    "GreaterOrEqual": ">=", "And": "and", "Or": "or",
}  # fmt: skip
_LEAVES = frozenset({"load", "acc", "const", "index"})
_LONGEST = 88
"""Characters of an expression beyond which its parts get names."""


def show(plan: Plan) -> str:
    """The plan: its tensors t0, t1, ..., its shape program h0, h1, ..., and its stages.

    A stage assigns to names (values used more than once, "acc", "score", "prob") and to tensors; `t3(1, 0)` is t3
    transposed. An expression has the type of its last argument or is a truth value; any other type stands after it.
    Plans that are not as they should be are shown too.
    """
    kinds = Counter(type(stage).__name__.lower() for stage in plan.stages)
    counted = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    lines = [f"stages: {counted or None}; buffers: {plan.buffers}"]
    lines += [f"t{i} = {_tensor(t)}" for i, t in enumerate(plan.tensors)]
    lines += [f"h{i} = {_host(op)}" for i, op in enumerate(plan.shape_program)]
    shapes = {t.dims: _shape(t) for t in plan.tensors}
    for index, stage in enumerate(plan.stages):
        space = f"h{stage.dims}{shapes.get(stage.dims, '')}"
        lines.append(f"stage {index}: {type(stage).__name__.lower()} over {space}{_comment(', '.join(stage.nodes))}")
        lines += [f"  {line}" for line in _stage(stage)]
    lines += [f"together as {g.kind}: stages {', '.join(map(str, g.stages))}" for g in plan.groups]
    return "\n".join(lines) + "\n"


def _tensor(tensor: Tensor) -> str:
    home = {"alias": "alias of t", "view": "view of t", "temp": "buffer "}.get(tensor.role, f"{tensor.role} ")
    part = "" if tensor.starts == tensor.steps == -1 else f" from h{tensor.starts} by h{tensor.steps}"
    return f"{home}{tensor.slot}: {tensor.dtype}{_shape(tensor)} h{tensor.dims}{part}{_comment(tensor.name)}"


def _comment(names: str) -> str:
    """Names out of the model, which may hold anything: one line of what can be printed."""
    printable = "".join(c if c.isprintable() else "?" for c in names)
    return printable and f"  # {textwrap.shorten(printable, _LONGEST, placeholder=' ...')}"


def _shape(tensor: Tensor) -> str:
    return f"[{', '.join(map(str, tensor.shape))}]"


def _host(op: ShapeOp) -> str:
    return f"{op.kind}({', '.join([*(f'h{a}' for a in op.args), *map(str, op.ints)])})"


def _stage(stage: Stage) -> Iterator[str]:
    def read(operand: int) -> str:
        if not 0 <= operand < len(stage.operands):
            return f"operand {operand}"
        found = stage.operands[operand]
        rows = "" if found.rows is None else f"[operand {found.rows}]"
        return f"t{found.tensor}{found.perm or ''}{rows}"

    targets = [(f"t{s.tensor}", s.instr) for s in stage.stores]
    match stage:
        case Linear():
            factor = "" if stage.alpha == 1.0 else f"{stage.alpha} * "
            yield f"acc = {factor}{read(stage.a)}{'^T' * stage.trans_a} @ {read(stage.b)}{'^T' * stage.trans_b}"
        case Conv():
            bias = "" if stage.bias == -1 else f", {read(stage.bias)}"
            options = f"strides {stage.strides} pads {stage.pads} dilations {stage.dilations} group {stage.group}"
            layout = " channels last" * stage.channels_last
            yield f"acc = conv({read(stage.x)}, {read(stage.w)}{bias}) {options} {stage.auto_pad}{layout}"
        case Pool():
            of = "mean, pads counted," if stage.counts_pads else "mean" if stage.mean else "largest"
            options = f"strides {stage.strides} pads {stage.pads} dilations {stage.dilations}"
            yield f"acc = {of} of windows {stage.kernel} of {read(stage.x)} {options}"
        case Moments():
            yield f"acc = mean and 1 / sqrt(variance + {stage.epsilon}) of {stage.groups} groups of {read(stage.x)}"
        case Attention():
            yield f"acc = {stage.scale} * {read(stage.q)} @ {read(stage.k)}^T"
            targets = [("score", stage.score), *([("sink", stage.sink)] if stage.sink >= 0 else [])]
    yield from _program(stage.program, read, "v", targets)
    if isinstance(stage, Attention):
        kind = stage.kind
        later = f"later {'+ ' * kind.added}{kind.later}"
        told = (("causal", kind.causal), (later, later != "later -inf"), ("grouped", kind.grouped))
        also = [name for name, holds in told if holds]
        yield f"kind = {', '.join([f'masking {kind.masking}', f'probabilities {kind.probabilities}', *also])}"
        empty = ", 0 where all are -inf" if kind.probabilities == "zero_empty" else ""
        softmax = f"softmax({', '.join(name for name, _ in targets)}){empty}"
        yield f"{'acc' if stage.prob_program else 'prob'} = {softmax}"
        if stage.prob_program:
            yield from _program(stage.prob_program, read, "p", [("prob", stage.prob)])
        turned = "" if stage.out_perm is None else f" as {stage.out_perm}"
        yield from (f"t{s.tensor} = prob @ {read(stage.v)}{turned}" for s in stage.stores)


def _program(
    program: Sequence[Instr], read: Callable[[int], str], prefix: str, targets: Sequence[tuple[str, int]]
) -> Iterator[str]:
    """A scalar program as assignments to the targets (names, and instructions), and to names for values on the way to
    them: what is used once, and is not long, is written where it is used."""
    uses = Counter([*(a for instr in program for a in instr.args), *(instr for _, instr in targets)])
    texts = {i: f"instruction {i}" for i in uses}
    infix: set[int] = set()
    for index, instr in enumerate(program):
        type_of = next((program[a].dtype for a in instr.args[-1:] if 0 <= a < len(program)), "int64")
        texts[index], is_infix = _expression(instr, type_of, read, [(texts[a], a in infix) for a in instr.args])
        is_long = len(texts[index]) > _LONGEST and all(index != last for _, last in targets)
        if instr.op not in _LEAVES and (uses[index] != 1 or is_long):
            yield f"{prefix}{index} = {texts[index]}"
            texts[index] = f"{prefix}{index}"
        elif is_infix:
            infix.add(index)
    for target, number in targets:
        yield f"{target} = {texts[number]}"


def _expression(
    instr: Instr, type_of: str, read: Callable[[int], str], operands: Sequence[tuple[str, bool]]
) -> tuple[str, bool]:
    """An instruction as text, and whether that is two sides of a sign; `type_of` is that of its last argument."""
    args = [text for text, _ in operands]
    match instr.op:
        case "load":
            return read(instr.value) if isinstance(instr.value, int) else "load", False
        case "const" | "acc":
            text = "acc" if instr.op == "acc" else f"{instr.value}"
            return text if instr.dtype in ("float32", "bool", "int64") else f"{text}:{instr.dtype}", False
        case "Cast":
            return f"{instr.dtype}({', '.join(args)})", False
    is_infix = instr.op in _INFIX and len(args) == 2
    if is_infix:
        text = f" {_INFIX[instr.op]} ".join(f"({text})" if inner else text for text, inner in operands)
    else:
        text = f"{instr.op}({', '.join([*args, *([] if instr.value is None else [str(instr.value)])])})"
    return (text, is_infix) if instr.dtype in (type_of, "bool") else (f"({text}):{instr.dtype}", False)
