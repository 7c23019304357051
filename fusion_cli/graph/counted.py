"""Constants that count: consecutive numbers along one axis, such as the positions that a decoder's mask compares."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

MOST_COUNTED = 1 << 16
"""Longer ones stay arrays: functions have copies of those that they embed."""


def counted_from(array: np.ndarray[Any, Any]) -> int | None:
    """The first of several consecutive integers that lie along the one axis of a size above one; None of others."""
    if array.dtype.kind != "i" or not 1 < array.size <= MOST_COUNTED or max(array.shape) != array.size:
        return None
    flat = array.reshape(-1)
    first = int(flat[0])
    return first if flat[1] == first + 1 and np.array_equal(flat, np.arange(first, first + flat.size)) else None


def counts(value: ir.Value) -> bool:
    """Whether a constant does."""
    tensor = value.const_value
    if tensor is None or value.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return False
    return 1 < tensor.size <= MOST_COUNTED and counted_from(tensor.numpy()) is not None
