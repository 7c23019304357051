"""What sort of attention a stage is, told from its programs once: what kernels and the score may rely on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fusion_cli.planir.stages import AttentionKind, Instr, Masking, Probabilities


def kind_of(
    program: Sequence[Instr], score: int, prob_program: Sequence[Instr], prob: int, zero_empty: bool, grouped: bool
) -> AttentionKind:
    """The kind of an attention with these programs (see `Attention`)."""
    causal = _is_causal(program, score)
    return AttentionKind(
        _masking(program, score, (False,) if causal else (False, True)),
        causal,
        "zero_empty" if zero_empty else _probabilities(prob_program, prob),
        grouped,
    )


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


def _masking(program: Sequence[Instr], score: int, sides: Sequence[bool]) -> Masking:
    """What is done to the scaled products of keys on these sides of the query, later (True) or not."""
    found = {i for later in sides for i in _outcomes(program, score, later)}
    tests: dict[Masking, Callable[[int], bool]] = {
        "none": lambda i: program[i].op == "acc",
        "boolean": lambda i: program[i].op in ("acc", "const"),
        "additive": lambda i: program[i].op == "const" or _is_sum(program, i),
    }
    return next((name for name, test in tests.items() if all(map(test, found))), "general")


def _is_sum(program: Sequence[Instr], i: int) -> bool:
    """Whether a value is the scaled product plus something that does not depend on it."""
    instr = program[i]
    if instr.op in ("Cast", "Identity"):
        return _is_sum(program, instr.args[0])
    if instr.op == "Sub":
        return _is_sum(program, instr.args[0]) and not _depends(program, instr.args[1])
    if instr.op == "Add":
        a, b = instr.args
        return any(_is_sum(program, x) and not _depends(program, y) for x, y in ((a, b), (b, a)))
    return instr.op == "acc"


def _depends(program: Sequence[Instr], i: int) -> bool:
    return program[i].op == "acc" or any(_depends(program, a) for a in program[i].args)


_LATER = {
    ("Greater", -1, -2): True,
    ("Less", -2, -1): True,
    ("LessOrEqual", -1, -2): False,
    ("GreaterOrEqual", -2, -1): False,
}
"""Comparisons that tell the keys (axis -1) later than the query (axis -2) from the others: their outcome for those."""


def _is_causal(program: Sequence[Instr], score: int) -> bool:
    """Whether the score of every key later than the query is -inf, whatever the operands hold."""
    return all(
        program[i].op == "const" and program[i].value == -math.inf for i in _outcomes(program, score, later=True)
    )


def _outcomes(program: Sequence[Instr], root: int, later: bool) -> list[int]:
    """The instructions that `root` may take its value from, for keys that are later than the query or are not."""
    instr = program[root]
    if instr.op != "Where":
        return [root]
    test = _truth(program, instr.args[0], later)
    taken = instr.args[1:] if test is None else instr.args[1:2] if test else instr.args[2:]
    return [found for i in taken for found in _outcomes(program, i, later)]


def _truth(program: Sequence[Instr], i: int, later: bool) -> bool | None:
    instr = program[i]
    if instr.op == "Not":
        inner = _truth(program, instr.args[0], later)
        return None if inner is None else not inner
    if len(instr.args) != 2:
        return None
    a, b = (program[k] for k in instr.args)
    if instr.op in ("And", "Or"):
        deciding = instr.op == "Or"
        sides = [_truth(program, k, later) for k in instr.args]
        return deciding if deciding in sides else None if None in sides else not deciding
    if a.op != "index" or b.op != "index":
        return None
    known = _LATER.get((instr.op, int(a.value or 0), int(b.value or 0)))
    return None if known is None else known == later
