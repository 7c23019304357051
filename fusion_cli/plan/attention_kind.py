"""What sort of attention a stage is, told from its programs once: what kernels and the score may rely on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from fusion_cli.planir.attention_sort import AttentionKind, Masking, Probabilities
from fusion_cli.planir.stages import Instr

HIDDEN = -1e4
"""Numbers this low in the place of scores, or added to them, are there to hide keys."""


def kind_of(
    program: Sequence[Instr], score: int, prob_program: Sequence[Instr], prob: int, zero_empty: bool, grouped: bool
) -> AttentionKind:
    """The kind of an attention with these programs (see `Attention`)."""
    earlier, later = (_Scores(program, later).of(score) for later in (False, True))
    hidden = _hidden(later, _masking(earlier) == "none")
    return AttentionKind(
        _masking(earlier if hidden else earlier | later),
        hidden is not None,
        "zero_empty" if zero_empty else _probabilities(prob_program, prob),
        grouped,
        -math.inf if hidden is None else hidden.number,
        hidden is not None and hidden.of == "product",
    )


def hides_later(kind: AttentionKind) -> bool:
    """Whether later keys have no weight, whatever the scores of others are."""
    return kind.causal and kind.later == -math.inf


def _probabilities(program: Sequence[Instr], root: int) -> Probabilities:
    """Casts between float types count for nothing: probabilities are rounded to the operands' type for the product with
    V anyway."""
    if not program:
        return "identity"

    def peel(i: int) -> Instr:
        while program[i].op in ("Cast", "Identity") and "float" in program[i].dtype:
            i = program[i].args[0]
        return program[i]

    top = peel(root)
    if top.op == "acc":
        return "identity"
    if top.op == "Where":
        test, zero, other = program[top.args[0]], peel(top.args[1]), peel(top.args[2])
        if test.op == "IsNaN" and peel(test.args[0]).op == other.op == "acc" and (zero.op, zero.value) == ("const", 0):
            return "zero_nan"
    return "general"


@dataclass(frozen=True)
class _Outcome:
    """What a value may be: the scaled product and a number, a number, what is `free` of the product, the product and
    such a `sum`, or anything else."""

    of: Literal["product", "number", "free", "sum", "other"]
    number: float = 0.0


_MOST_OUTCOMES = 16
"""Of more, nobody asks which numbers they are."""
_FREE, _SUM, _OTHER = _Outcome("free"), _Outcome("sum"), _Outcome("other")


def _masking(found: Set[_Outcome]) -> Masking:
    """What is done to the scaled products."""
    forms: dict[Masking, Callable[[_Outcome], bool]] = {
        "none": lambda x: x == _Outcome("product"),
        "boolean": lambda x: x == _Outcome("product") or x.of == "number",
        "additive": lambda x: x.of in ("product", "number", "sum"),
    }
    return next((name for name, test in forms.items() if all(map(test, found))), "general")


def _hidden(later: Set[_Outcome], alone: bool) -> _Outcome | None:
    """What the scores of keys later than the query are, if that hides them: -inf, or, where nothing else is done to
    scores, another number or one that is added to them."""
    known = all(x.of in ("product", "number") for x in later)
    if known and all(x.number == -math.inf for x in later):
        return _Outcome("number", -math.inf)
    return next(iter(later)) if known and alone and len(later) == 1 and max(x.number for x in later) <= HIDDEN else None


class _Scores:
    """What the values of a program may be for keys that are later than the query, or for those that are not."""

    def __init__(self, program: Sequence[Instr], later: bool) -> None:
        self._program = program
        self._later = later
        self._found: dict[int, frozenset[_Outcome]] = {}

    def of(self, i: int) -> frozenset[_Outcome]:
        if i not in self._found:
            found = self._of(self._program[i])
            self._found[i] = found if len(found) <= _MOST_OUTCOMES else frozenset(map(_rounded, found))
        return self._found[i]

    def _of(self, instr: Instr) -> frozenset[_Outcome]:
        if instr.op == "acc":
            return frozenset({_Outcome("product")})
        if instr.op == "const":
            return frozenset({_Outcome("number", float(instr.value or 0))})
        if instr.op == "Where":
            test = _truth(self._program, instr.args[0], self._later)
            taken = instr.args[1:] if test is None else instr.args[1:2] if test else instr.args[2:]
            return frozenset().union(*map(self.of, taken))
        args = [self.of(a) for a in instr.args]
        if instr.op in ("Add", "Sub"):
            return frozenset(_sum(a, b, instr.op == "Sub") for a in args[0] for b in args[1])
        if instr.op in ("Cast", "Identity"):
            return frozenset(_rounded(x) for x in args[0])
        free = all(x.of in ("number", "free") for found in args for x in found)
        return frozenset({_FREE if free else _OTHER})


def _sum(a: _Outcome, b: _Outcome, negative: bool) -> _Outcome:
    if b.of not in ("number", "free"):
        if negative or a.of not in ("number", "free"):
            return _OTHER
        a, b = b, a
    if "number" in (a.of, b.of) and {a.of, b.of} <= {"product", "number"}:
        return _Outcome(a.of, a.number - b.number if negative else a.number + b.number)
    return {"product": _SUM, "sum": _SUM, "other": _OTHER}.get(a.of, _FREE)


def _rounded(x: _Outcome) -> _Outcome:
    return {"product": _SUM, "number": _FREE}.get(x.of, x)


_LATER = {
    ("Greater", -1, -2): True,
    ("Less", -2, -1): True,
    ("LessOrEqual", -1, -2): False,
    ("GreaterOrEqual", -2, -1): False,
}
"""Comparisons that tell the keys (axis -1) later than the query (axis -2) from the others: their outcome for those."""


def _truth(program: Sequence[Instr], i: int, later: bool) -> bool | None:
    """Whether a condition holds for keys that are later than the query, or for those that are not, if that decides."""
    instr = program[i]
    if instr.op == "Not":
        inner = _truth(program, instr.args[0], later)
        return None if inner is None else not inner
    if len(instr.args) != 2:
        return None
    if instr.op in ("And", "Or"):
        deciding = instr.op == "Or"
        sides = [_truth(program, k, later) for k in instr.args]
        return deciding if deciding in sides else None if None in sides else not deciding
    a, b = (_position(program, k) for k in instr.args)
    known = None if a is None or b is None else _LATER.get((instr.op, a, b))
    return None if known is None else known == later


def _position(program: Sequence[Instr], i: int) -> int | None:
    """The axis along which a value is the position."""
    while program[i].op == "Cast" and program[i].dtype in ("int32", "int64"):
        i = program[i].args[0]
    return int(program[i].value or 0) if program[i].op == "index" else None
