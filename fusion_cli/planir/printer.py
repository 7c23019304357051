"""A plan as text, for people and for differences: a line per tensor, host value and assignment."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from fusion_cli.planir.stages import Attention, Conv, HostOp, Instr, Linear, Plan, Stage, Tensor

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
    lines += [f"h{i} = {_host(op)}" for i, op in enumerate(plan.host)]
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


def _host(op: HostOp) -> str:
    return f"{op.kind}({', '.join([*(f'h{a}' for a in op.args), *map(str, op.ints)])})"


def _stage(stage: Stage) -> Iterator[str]:
    def read(operand: int) -> str:
        if not 0 <= operand < len(stage.operands):
            return f"operand {operand}"
        found = stage.operands[operand]
        return f"t{found.tensor}{found.perm or ''}"

    match stage:
        case Linear():
            factor = "" if stage.alpha == 1.0 else f"{stage.alpha} * "
            a, b = read(stage.a) + "^T" * stage.trans_a, read(stage.b) + "^T" * stage.trans_b
            yield f"acc = {factor}{a} @ {b}"
        case Conv():
            bias = "" if stage.bias == -1 else f", {read(stage.bias)}"
            options = f"strides {stage.strides} pads {stage.pads} dilations {stage.dilations} group {stage.group}"
            yield f"acc = conv({read(stage.x)}, {read(stage.w)}{bias}) {options} {stage.auto_pad}"
        case Attention():
            yield from _attention(stage, read)
            return
    targets = [(f"t{s.tensor}", s.instr) for s in stage.stores]
    yield from _Program(stage.program, read, "v").lines(targets)


def _attention(stage: Attention, read: Callable[[int], str]) -> Iterator[str]:
    yield f"acc = {stage.scale} * {read(stage.q)} @ {read(stage.k)}{'' if stage.k_transposed else '^T'}"
    sink = [("sink", stage.sink)] if stage.sink >= 0 else []
    yield from _Program(stage.program, read, "v").lines([("score", stage.score), *sink])
    kind = stage.kind
    empty = ", 0 where all are -inf" if kind.probabilities == "zero_empty" else ""
    softmax = f"softmax(score{', sink' if sink else ''}){empty}"
    also = [name for name, holds in (("causal", kind.causal), ("grouped", kind.grouped)) if holds]
    yield f"kind = {', '.join([f'masking {kind.masking}', f'probabilities {kind.probabilities}', *also])}"
    yield f"{'acc' if stage.prob_program else 'prob'} = {softmax}"
    if stage.prob_program:
        yield from _Program(stage.prob_program, read, "p").lines([("prob", stage.prob)])
    for store in stage.stores:
        yield f"t{store.tensor} = prob @ {read(stage.v)}{'' if stage.out_perm is None else f' as {stage.out_perm}'}"


class _Program:
    """A scalar program as assignments: what is used once, and is not long, is written where it is used."""

    def __init__(self, program: Sequence[Instr], read: Callable[[int], str], prefix: str) -> None:
        self.program = program
        self.read = read
        self.prefix = prefix
        self.texts: list[str] = []
        self.infix: set[int] = set()

    def lines(self, targets: Sequence[tuple[str, int]]) -> Iterator[str]:
        """Assignments to the targets (names, and instructions), and to names for values on the way to them."""
        uses = Counter([*(a for instr in self.program for a in instr.args), *(instr for _, instr in targets)])
        last = {instr for _, instr in targets}
        for index, instr in enumerate(self.program):
            text = self._expression(index, instr)
            if instr.op not in _LEAVES and (uses[index] != 1 or (len(text) > _LONGEST and index not in last)):
                yield f"{self.prefix}{index} = {text}"
                text = f"{self.prefix}{index}"
                self.infix.discard(index)
            self.texts.append(text)
        for target, number in targets:
            yield f"{target} = {self._text(number)}"

    def _text(self, instr: int) -> str:
        return self.texts[instr] if 0 <= instr < len(self.texts) else f"instruction {instr}"

    def _expression(self, index: int, instr: Instr) -> str:
        args = [self._text(a) for a in instr.args]
        if instr.op == "load":
            return self.read(instr.value) if isinstance(instr.value, int) else "load"
        if instr.op in ("const", "acc"):
            text = "acc" if instr.op == "acc" else f"{instr.value}"
            return text if instr.dtype in ("float32", "bool", "int64") else f"{text}:{instr.dtype}"
        if instr.op == "Cast":
            return f"{instr.dtype}({', '.join(args)})"
        if instr.op in _INFIX and len(args) == 2:
            self.infix.add(index)
            sides = (f"({t})" if a in self.infix else t for a, t in zip(instr.args, args, strict=True))
            text = f" {_INFIX[instr.op]} ".join(sides)
        else:
            text = f"{instr.op}({', '.join([*args, *([] if instr.value is None else [str(instr.value)])])})"
        type_of = self.program[instr.args[-1]].dtype if args else "int64"
        if instr.dtype in (type_of, "bool"):
            return text
        self.infix.discard(index)
        return f"({text}):{instr.dtype}"
