"""What costs CUDA fewer instructions: GELU as one factor, x * 0.5 * (1 + erf(x / sqrt(2))) in whatever order being
x * normal(x), the reciprocal of a square root, and in 16 bits a sigmoid that is exact enough for them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fusion_cli.operators.dtypes import FLOATS, NARROW
from fusion_cli.planir.stages import Instr

NORMAL = "normal"
"""The instruction of x and what the distribution is of (`value` times that where it is one); no operator, and known to
CUDA's sources alone."""
LOGISTIC = "logistic"
"""The sigmoid's."""
INVERSE_ROOT = "inverse_root"
"""That of 1 / sqrt(x)."""


def narrowed(program: Sequence[Instr]) -> tuple[Instr, ...]:
    """The program with each of these as one instruction; what then nobody needs stays where it is."""
    return tuple(_as_normal(program, i) or _as_inverse_root(program, i) or _as_logistic(i) for i in program)


def _as_logistic(instr: Instr) -> Instr:
    return replace(instr, op=LOGISTIC) if instr.op == "Sigmoid" and instr.dtype in NARROW else instr


def _as_inverse_root(program: Sequence[Instr], instr: Instr) -> Instr | None:
    if instr.op != "Reciprocal" or instr.dtype not in FLOATS:
        return None
    root = program[instr.args[0]]
    return replace(instr, op=INVERSE_ROOT, args=root.args) if root.op == "Sqrt" else None


def _as_normal(program: Sequence[Instr], instr: Instr) -> Instr | None:
    if instr.op not in ("Mul", "Div") or instr.dtype not in FLOATS:
        return None
    scale, factors = 1.0, []
    for factor in _factors(program, instr):
        if isinstance(factor, float):
            scale *= factor
        else:
            factors.append(factor)
    gates = {i: z for i in factors if (z := _one_and_erf(program, i)) is not None}
    if len(factors) != 2 or len(gates) != 1 or not math.isclose(scale, 0.5, rel_tol=1e-6):
        return None
    (x,) = (i for i in factors if i not in gates)
    (z,) = gates.values()
    y, times = _scaled(program, z)
    times *= math.sqrt(2)
    return Instr(NORMAL, (x, y), instr.dtype, None if math.isclose(times, 1, rel_tol=1e-6) else times)


def _scaled(program: Sequence[Instr], i: int) -> tuple[int, float]:
    """What an instruction multiplies or divides by a constant, and what that is times."""
    instr = program[i]
    sides = {"Mul": (instr.args, instr.args[::-1]), "Div": (instr.args,)}.get(instr.op, ())
    for y, by in sides:
        times = float(program[by].value or 0) if program[by].op == "const" else 0
        if times and math.isfinite(times):
            return y, times if instr.op == "Mul" else 1 / times
    return i, 1.0


def _factors(program: Sequence[Instr], instr: Instr) -> Iterator[int | float]:
    """What a product multiplies: constants by value, others by instruction; of a quotient by a constant its inverse."""
    for side, i in enumerate(instr.args):
        factor = program[i]
        if factor.op == "const":
            value = float(factor.value or 0)
            yield value if instr.op == "Mul" or side == 0 else 1 / value if value else math.nan
        elif instr.op == "Div" and (side == 1 or program[instr.args[1]].op != "const"):
            yield math.nan  # no product
        elif (
            factor.op in ("Mul", "Div")
            and factor.dtype in FLOATS
            and any(program[a].op == "const" or _one_and_erf(program, a) is not None for a in factor.args)
        ):
            yield from _factors(program, factor)
        else:
            yield i


def _one_and_erf(program: Sequence[Instr], i: int) -> int | None:
    """z, where an instruction is 1 + erf(z)."""
    if program[i].op != "Add":
        return None
    one = [a for a in program[i].args if program[a].op == "const" and program[a].value == 1]
    erf = [a for a in program[i].args if program[a].op == "Erf"]
    return program[erf[0]].args[0] if one and erf else None
