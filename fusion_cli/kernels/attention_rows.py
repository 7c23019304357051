"""What lies between the two products of an attention, as a program over rows of scores."""

from __future__ import annotations

import math
from dataclasses import replace

from fusion_cli.planir.stages import Attention, Instr


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
    place: list[int] = []
    for instr in stage.prob_program:
        if instr.op != "acc":
            program.append(replace(instr, args=tuple(place[a] for a in instr.args)))
        place.append(probability if instr.op == "acc" else len(program) - 1)
    return tuple(program), place[stage.prob]
