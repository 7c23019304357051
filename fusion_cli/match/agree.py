"""Whether a number or an attribute of a model is the one that a rule asks for."""

from __future__ import annotations

import math
from typing import Any

import onnx_ir as ir

_TOLERANCE = {ir.DataType.FLOAT16: 2e-3, ir.DataType.BFLOAT16: 8e-3}
"""Relative; constants are rounded to the model's type."""


def is_number(found: float, expected: float, dtype: ir.DataType | None) -> bool:
    """Whether a number is the expected one, as far as its type can hold it."""
    return math.isclose(found, expected, rel_tol=_TOLERANCE.get(dtype, 1e-4) if dtype is not None else 1e-4)


def is_attribute(found: Any, expected: Any) -> bool:
    """Whether an attribute has the expected value; of several texts any will do."""
    if isinstance(expected, float) and isinstance(found, (int, float)):
        return math.isclose(found, expected, rel_tol=1e-4, abs_tol=1e-8)
    if isinstance(expected, list) and isinstance(found, str):
        return found in expected
    if isinstance(expected, list) and found is not None and not isinstance(found, (int, float)):
        return list(found) == expected
    return bool(found == expected)
