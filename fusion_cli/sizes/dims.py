"""Shapes and element types of values: sizes as numbers and symbols, and how both are shown."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import onnx_ir as ir

from fusion_cli.operators.dtypes import name_of

SYMBOL = re.compile(r"[^\W\d]\w*")
"""A name within a symbolic size, such as `seq` in `2*seq + 1`."""
Dims = tuple[int | str, ...]
"""A shape; equal symbols are equal sizes."""
_PRODUCT = re.compile(r"\w+(\*\w+)*")
_PREFIX = "named_"
_ENCODED = re.compile(rf"\b{_PREFIX}(\w+)")


def dims_of(value: ir.Value) -> Dims | None:
    """A shape as numbers and symbols, or None; an unnamed unknown dimension is unequal to every other."""
    if value.shape is None:
        return None
    return tuple(_dim(d, f"?{id(value)}:{i}") for i, d in enumerate(value.shape))


def _dim(dim: int | ir.SymbolicDim, unknown: str) -> int | str:
    return dim if isinstance(dim, int) else dim.value or unknown


def factors(dims: Dims) -> tuple[int, list[str]]:
    """What the sizes multiply to, as a number and the symbols and other terms to multiply it with, in order."""
    terms = [f for d in dims for f in (str(d).split("*") if _PRODUCT.fullmatch(str(d)) else [str(d)])]
    numbers = (int(t) for t in terms if t.isdecimal())
    return math.prod(numbers), sorted(t for t in terms if not t.isdecimal())


def dtype_of(value: ir.Value) -> str:
    """The element type by its common name, such as "float32"."""
    return name_of(value.dtype)


def shown_shape(value: ir.Value) -> str:
    """A shape as it is read in messages: "[batch,?,64]"."""
    dims = dims_of(value)
    return " of unknown shape" if dims is None else listed(dims)


def listed(dims: Sequence[int | str]) -> str:
    """Sizes and symbols in brackets; "?" for a size that has no name."""
    return "[" + ",".join("?" if str(d)[0] == "?" else written(str(d)) for d in dims) + "]"


@cache
def symbol(name: str) -> str:
    """The name of a size as the stages speak of it. Shape inference takes it for an expression and stops at what is
    none, such as "output-0_dim0", or at a number: those are spelled out."""
    if SYMBOL.fullmatch(name):
        return name
    try:
        is_expression = bool(ir.SymbolicDim(name).free_symbols())
    except ValueError:
        is_expression = False
    return name if is_expression else _PREFIX + re.sub(r"\W", lambda c: f"_u{ord(c[0]):x}_", name)


def written(text: str) -> str:
    """The size, a name or an expression, as the model has it in writing."""
    return _ENCODED.sub(lambda m: re.sub("_u([0-9a-f]+)_", lambda c: chr(int(c[1], 16)), m[1]), text)


def name_sizes(model: ir.Model, name: Callable[[str], str]) -> None:
    """Rename the sizes of all values: with `symbol` after loading, with `written` before saving."""
    graphs: list[ir.Graph | ir.Function] = [model.graph, *model.graph.subgraphs(), *model.functions.values()]
    for graph in graphs:
        rename_sizes(graph.inputs, name)
        rename_sizes((v for node in graph for v in node.outputs), name)


def forget_names(body: Iterable[ir.Node]) -> None:
    """Leave sizes without names in the body of a function: calls share it, and have sizes of their own."""
    rename_sizes((v for node in body for v in node.outputs), lambda _: None)


def rename_sizes(values: Iterable[ir.Value], name: Callable[[str], int | str | None]) -> None:
    """Call the named sizes of values otherwise: by another name, by a number, or by none."""

    def renamed(dim: int | ir.SymbolicDim) -> int | str | ir.SymbolicDim | None:
        if isinstance(dim, int) or dim.value is None:
            return dim
        new = name(dim.value)
        return dim if new == dim.value else new

    for value in values:
        if value.shape is None or value.shape.is_static():
            continue
        dims = list(map(renamed, value.shape))
        if any(new is not old for new, old in zip(dims, value.shape, strict=True)):
            value.shape = ir.Shape(dims)
