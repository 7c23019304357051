"""Shapes and element types of values: sizes as numbers and symbols, and how both are shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

import onnx_ir as ir

SYMBOL = re.compile(r"[^\W\d]\w*")
"""A name within a symbolic size, such as `seq` in `2*seq + 1`."""
Dims = tuple[int | str, ...]
"""A shape; equal symbols are equal sizes."""


def dims_of(value: ir.Value) -> Dims | None:
    """A shape as numbers and symbols, or None; an unnamed unknown dimension is unequal to every other."""
    if value.shape is None:
        return None
    return tuple(_dim(d, f"?{id(value)}:{i}") for i, d in enumerate(value.shape))


def _dim(dim: int | ir.SymbolicDim, unknown: str) -> int | str:
    return dim if isinstance(dim, int) else dim.value or unknown


def dtype_of(value: ir.Value) -> str:
    """The element type by its common name, such as "float32"."""
    names = {ir.DataType.FLOAT: "float32", ir.DataType.DOUBLE: "float64"}
    return names.get(value.dtype, str(value.dtype).lower()) if value.dtype is not None else "unknown"


def shown_shape(value: ir.Value) -> str:
    """A shape as it is read in messages: "[batch,?,64]"."""
    dims = dims_of(value)
    return " of unknown shape" if dims is None else listed(dims)


def listed(dims: Sequence[int | str]) -> str:
    """Sizes and symbols in brackets; "?" for a size that has no name."""
    return "[" + ",".join("?" if str(d)[0] == "?" else str(d) for d in dims) + "]"
