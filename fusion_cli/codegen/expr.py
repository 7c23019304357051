"""From ONNX elementwise operators to C++: the one table both back ends print scalar programs with.

The functions named here live in `templates/include/scalar.h`, whose versions for g++ vectorise and whose versions
for nvcc use the device's own. float16, bfloat16 and float32 are computed as `float`; rounding to a narrower type
happens only at an explicit Cast and when a value is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from fusion_cli.codes import emit as codes
from fusion_cli.errors import Unsupported
from fusion_cli.planir.stages import Const, Instr

_STORAGE = {
    "float32": "float",
    "float16": "fusion::half",
    "bfloat16": "fusion::bfloat",
    "float64": "double",
    "int64": "int64_t",
    "int32": "int32_t",
    "int16": "int16_t",
    "int8": "int8_t",
    "uint64": "uint64_t",
    "uint32": "uint32_t",
    "uint16": "uint16_t",
    "uint8": "uint8_t",
    "bool": "bool",
}
_ONNX_TYPE = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "bfloat16": 16,
}
_V = TypeVar("_V", str, int)
_FLOATS = ("float32", "float16", "bfloat16", "float64")

_OPERATORS = {
    "Add": "{0} + {1}",
    "Sub": "{0} - {1}",
    "Mul": "{0} * {1}",
    "Neg": "-{0}",
    "Identity": "{0}",
    "Where": "{0} ? {1} : {2}",
    "Equal": "{0} == {1}",
    "Less": "{0} < {1}",
    "LessOrEqual": "{0} <= {1}",
    "Greater": "{0} > {1}",
    "GreaterOrEqual": "{0} >= {1}",
    # Bitwise forms of the logical operators have no branches, so loops over them vectorise.
    "And": "{0} & {1}",
    "Or": "{0} | {1}",
    "Xor": "{0} ^ {1}",
    "Not": "!{0}",
    "BitwiseAnd": "{0} & {1}",
    "BitwiseOr": "{0} | {1}",
    "BitwiseXor": "{0} ^ {1}",
    "BitwiseNot": "~{0}",
}
_FUNCTIONS = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "Ceil": "ceil", "Celu": "celu", "Clip": "clip", "Cos": "cos", "Cosh": "cosh", "Div": "div", "Elu": "elu",
    "Erf": "erf", "Exp": "exp", "Floor": "floor", "HardSigmoid": "hard_sigmoid", "HardSwish": "hard_swish",
    "IsInf": "is_inf", "IsNaN": "is_nan", "LeakyRelu": "leaky_relu", "Log": "log", "Max": "max", "Min": "min",
    "Mish": "mish", "Mod": "mod", "PRelu": "leaky_relu", "Pow": "pow", "Reciprocal": "reciprocal", "Relu": "relu",
    "Round": "round", "Selu": "selu", "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh",
    "Softplus": "softplus", "Softsign": "softsign", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
    "ThresholdedRelu": "thresholded_relu",
}  # fmt: skip
_ATTRIBUTES: dict[str, tuple[float, ...]] = {
    "Celu": (1.0,),
    "Elu": (1.0,),
    "HardSigmoid": (0.2, 0.5),
    "LeakyRelu": (0.01,),
    "Selu": (1.67326319217681884765625, 1.05070102214813232421875),
    "ThresholdedRelu": (1.0,),
}
"""Default attribute values, in ONNX's order; they follow the operands as further arguments of the function."""

_VARIADIC = ("Max", "Min", "Sum", "Mean")
_POWERS = {2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}", 1.0: "{0}", 0.5: "fusion::pow_half({0})"}


def storage(dtype: str) -> str:
    """The C++ type of an element in memory."""
    return _lookup(_STORAGE, dtype)


def compute(dtype: str) -> str:
    """The C++ type a value of this element type is computed in."""
    return "float" if dtype in ("float16", "bfloat16") else storage(dtype)


def onnx_type(dtype: str) -> int:
    """ONNX's number of an element type."""
    return _lookup(_ONNX_TYPE, dtype)


def _lookup(table: Mapping[str, _V], dtype: str) -> _V:
    if dtype not in table:
        raise Unsupported(codes.DTYPE, " or ".join(table), dtype)
    return table[dtype]


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
    text = f"{value:.{digits}g}"
    for fewer in range(1, digits):
        if float(f"{value:.{fewer}g}") == value:
            text = f"{value:.{fewer}g}"
            break
    if not any(c in text for c in ".e"):
        text += ".0"
    return text + ("f" if digits == 9 else "")


def expression(op: str, args: Sequence[str], arg_dtypes: Sequence[str], dtype: str, value: Const | None = None) -> str:
    """The C++ expression of ONNX operator `op` on arguments that are names, literals or in parentheses.

    `value` is the operator's (first) attribute where it has one. Raises Unsupported for an operator not in the table.
    """
    if op == "Cast":
        return _cast(args[0], arg_dtypes[0], dtype)
    if op in _VARIADIC and (len(args) > 2 or op in ("Sum", "Mean")):
        return _fold(op, args, dtype)
    if op in _OPERATORS:
        return _OPERATORS[op].format(*args)
    if op == "Mod":
        return f"fusion::{'fmod' if value else 'mod'}({', '.join(args)})"
    if op not in _FUNCTIONS:
        raise Unsupported(codes.OPERATOR, "an elementwise operator", op)
    if op == "Pow" and arg_dtypes[1] != dtype:
        args = (args[0], f"{compute(dtype)}({args[1]})")
    defaults = _ATTRIBUTES.get(op, ())
    attributes = list(defaults) if value is None else [value, *defaults[1:]]
    extra = [literal(a, dtype) for a in attributes]
    return f"fusion::{_FUNCTIONS[op]}({', '.join([*args, *extra])})"


def _fold(op: str, args: Sequence[str], dtype: str) -> str:
    if op in ("Sum", "Mean"):
        total = " + ".join(args)
        return total if op == "Sum" else f"({total}) / {literal(len(args), dtype)}"
    result = args[0]
    for arg in args[1:]:
        result = f"fusion::{_FUNCTIONS[op]}({result}, {arg})"
    return result


def _cast(arg: str, source: str, target: str) -> str:
    if target == source:
        return arg
    if target in ("float16", "bfloat16"):
        return f"fusion::round_to<{storage(target)}>({arg})"
    if target == "bool":
        return f"{arg} != {literal(0, source)}" if source in _FLOATS else f"{arg} != 0"
    return arg if compute(source) == compute(target) else f"static_cast<{compute(target)}>({arg})"


def needed(program: Sequence[Instr], roots: Collection[int]) -> frozenset[int]:
    """The instructions that `roots` depend on, themselves included."""
    found = set(roots)
    for i in range(len(program) - 1, -1, -1):
        if i in found:
            found.update(program[i].args)
    return frozenset(found)


def render_program(
    program: Sequence[Instr],
    *,
    load: Callable[[int], str],
    acc: str = "acc",
    index: Callable[[int], str] | None = None,
    only: Collection[int] | None = None,
    names: Mapping[int, str] | None = None,
    prefix: str = "v",
) -> list[str]:
    """C++ statements, one per instruction: `const float v3 = fusion::exp(v2);`.

    `load(k)` is the element of operand k in its compute type, `index(axis)` an int64 position, `acc` the stage's own
    result. `only` restricts the instructions; those outside it are referred to as `names[i]`, or `prefix` and number.
    Constants become literals where they are used.
    """
    known = dict(names or {})
    lines = []
    for i, instr in enumerate(program):
        if instr.op == "const":
            assert instr.value is not None
            known.setdefault(i, literal(instr.value, instr.dtype))
            continue
        if i in known or (only is not None and i not in only):
            known.setdefault(i, f"{prefix}{i}")
            continue
        lines.append(f"const {compute(instr.dtype)} {prefix}{i} = {_value(program, i, known, load, acc, index)};")
        known[i] = f"{prefix}{i}"
    return lines


def _value(
    program: Sequence[Instr],
    i: int,
    known: Mapping[int, str],
    load: Callable[[int], str],
    acc: str,
    index: Callable[[int], str] | None,
) -> str:
    instr = program[i]
    if instr.op == "load":
        return load(int(instr.value or 0))
    if instr.op == "acc":
        return acc
    if instr.op == "index":
        if index is None:
            raise Unsupported(codes.OPERATOR, "a stage with positions", "index")
        return index(int(instr.value or 0))
    args = [known[a] for a in instr.args]
    if instr.op == "Pow":
        exponent = program[instr.args[1]]
        special = _POWERS.get(float(exponent.value)) if exponent.op == "const" and exponent.value is not None else None
        if special and instr.dtype in _FLOATS:
            return special.format(args[0])
    return expression(instr.op, args, [program[a].dtype for a in instr.args], instr.dtype, instr.value)
