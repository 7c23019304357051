"""Scalar programs as C++, for both back ends.

float16, bfloat16 and float32 are computed as `float`; rounding to a narrower type happens only at an explicit Cast and
when a value is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from fusion_cli.codegen.narrow import INVERSE_ROOT, LOGISTIC, NORMAL
from fusion_cli.codes import emit as codes
from fusion_cli.errors import Unsupported
from fusion_cli.operators.dtypes import DTYPES, FLOATS, NARROW, ONNX_FLOATS, DType
from fusion_cli.operators.elementwise import ELEMENTWISE
from fusion_cli.planir.stages import Const, Instr

_CPP = {o.name: o.cpp for o in ELEMENTWISE if o.cpp}
_NORMALS = {"float16": "normal_half", "bfloat16": "normal", "float32": "normal_float"}
"""By what their results are rounded to: the less it keeps, the fewer terms it takes."""
_POWERS = {2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}", 1.0: "{0}", 0.5: "fusion::pow_half({0})"}


def storage(dtype: str) -> str:
    """The C++ type of an element in memory."""
    return _known(dtype).storage


def compute(dtype: str) -> str:
    """The C++ type a value of this element type is computed in."""
    return _known(dtype).compute


def onnx_type(dtype: str) -> int:
    """ONNX's number of an element type."""
    return int(_known(dtype).onnx)


def _known(dtype: str) -> DType:
    if dtype not in DTYPES:
        raise Unsupported(codes.DTYPE, " or ".join(DTYPES), dtype)
    return DTYPES[dtype]


def literal(value: Const, dtype: str) -> str:
    """An exact C++ literal of `compute(dtype)`; negative ones come in parentheses."""
    kind = compute(dtype)
    if kind == "bool":
        return "true" if value else "false"
    if kind not in ("float", "double"):
        number = int(value)
        if number == -(2**63):
            return "INT64_MIN"
        suffix = ("u" if number > 2**63 - 1 else "") + ("ll" if abs(number) > 2**31 - 1 else "")
        return f"{kind}({number}{suffix})"
    if math.isnan(value):
        return f"fusion::nan<{kind}>()"
    if math.isinf(value):
        return f"fusion::inf<{kind}>()" if value > 0 else f"(-fusion::inf<{kind}>())"
    text = _float_text(float(value), 9 if kind == "float" else 17)
    return f"({text})" if text.startswith("-") else text


def _float_text(value: float, digits: int) -> str:
    """The shortest decimal, of at most `digits` digits (enough to be exact), as a literal of its type."""
    texts = [f"{value:.{number}g}" for number in range(1, digits + 1)]
    text = next((t for t in texts if float(t) == value), texts[-1])
    if not any(c in text for c in ".e"):
        text += ".0"
    return text + ("f" if digits == 9 else "")


def expression(op: str, args: Sequence[str], arg_dtypes: Sequence[str], dtype: str) -> str:
    """The C++ expression of ONNX operator `op` on arguments that are names, literals or in parentheses.

    Raises Unsupported for an operator that is not elementwise, or that plans compute as others.
    """
    if op == "Cast":
        return _cast(args[0], arg_dtypes[0], dtype)
    if op not in _CPP:
        raise Unsupported(codes.OPERATOR, "an elementwise operator", op)
    if op == "Pow" and arg_dtypes[1] != dtype:
        args = (args[0], f"{compute(dtype)}({args[1]})")
    return _CPP[op].format(*args)


def _cast(arg: str, source: str, target: str) -> str:
    if target == source:
        return arg
    if target in NARROW:
        return f"fusion::round_to<{storage(target)}>({arg})"
    if target == "bool":
        return f"{arg} != {literal(0, source)}" if DTYPES[source].onnx in ONNX_FLOATS else f"{arg} != 0"
    return arg if compute(source) == compute(target) else f"static_cast<{compute(target)}>({arg})"


def _inverse(divisor: float) -> float | None:
    """What multiplies as dividing by `divisor` does, up to the rounding of float32."""
    return 1 / divisor if 1e-30 < abs(divisor) < 1e30 else None


def needed(program: Sequence[Instr], roots: Collection[int], known: Collection[int] = ()) -> frozenset[int]:
    """The instructions that `roots` depend on, themselves included, but for what is `known` and goes into that."""
    found = set(roots).difference(known)
    for i in range(len(program) - 1, -1, -1):
        if i in found:
            found.update(a for a in program[i].args if a not in known)
    return frozenset(found)


def loaded(program: Sequence[Instr], instrs: Iterable[int]) -> set[int]:
    """The operands that these instructions load."""
    return {int(program[i].value or 0) for i in instrs if program[i].op == "load"}


def render_program(
    program: Sequence[Instr],
    *,
    load: Callable[[int], str],
    acc: str = "acc",
    index: Callable[[int], str] | None = None,
    only: Collection[int] | None = None,
    names: Mapping[int, str] | None = None,
) -> list[str]:
    """C++ statements, one per instruction: `const float v3 = fusion::exp(v2);`.

    `load(k)` is the element of operand k in its compute type, `index(axis)` an int64 position, `acc` the stage's own
    result. `only` restricts the instructions; those outside it are referred to as `names[i]`, or v and number.
    Constants become literals where they are used.
    """
    known = dict(names or {})

    def value(instr: Instr) -> str:
        if instr.op == "load":
            return load(int(instr.value or 0))
        if instr.op == "acc":
            return acc
        if instr.op == "index":
            if index is None:
                raise Unsupported(codes.OPERATOR, "a stage with positions", "index")
            return index(int(instr.value or 0))
        args = [known[a] for a in instr.args]
        if instr.op == NORMAL:
            of = args[1] if instr.value is None else f"{args[1]} * {literal(instr.value, instr.dtype)}"
            return f"{args[0]} * fusion::{_NORMALS[instr.dtype]}({of})"
        if instr.op == LOGISTIC:
            return f"fusion::logistic({args[0]})"
        if instr.op == INVERSE_ROOT:
            return f"fusion::inverse_root({args[0]})"
        operands = [program[a] for a in instr.args]
        if instr.op == "Pow" and operands[1].op == "const" and instr.dtype in FLOATS:
            special = _POWERS.get(float(operands[1].value or 0))
            if special:
                return special.format(args[0])
        if instr.op == "Div" and operands[1].op == "const" and instr.dtype in NARROW:
            inverse = _inverse(float(operands[1].value or 0))
            if inverse:
                return f"{args[0]} * {literal(inverse, instr.dtype)}"
        return expression(instr.op, args, [o.dtype for o in operands], instr.dtype)

    lines = []
    for i, instr in enumerate(program):
        if instr.op == "const":
            assert instr.value is not None
            known.setdefault(i, literal(instr.value, instr.dtype))
        elif i in known or (only is not None and i not in only):
            known.setdefault(i, f"v{i}")
        else:
            lines.append(f"const {compute(instr.dtype)} v{i} = {value(instr)};")
            known[i] = f"v{i}"
    return lines
