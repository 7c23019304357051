"""Element types, once: their names, what ONNX and C++ call them, and what kernels compute in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir


@dataclass(frozen=True)
class DType:
    """An element type.

    `storage` is its C++ type in memory, `compute` the one that its values are computed in. `is_planned`: kernels made
    from plans handle it; those that people write handle all.
    """

    onnx: ir.DataType
    storage: str
    compute: str
    is_planned: bool = False

    @property
    def name(self) -> str:
        """Its common name, as numpy has it."""
        return self.numpy.name

    @property
    def numpy(self) -> np.dtype[np.generic]:
        return self.onnx.numpy()

    @property
    def bytes(self) -> int:
        return int(self.onnx.itemsize)

    @property
    def largest(self) -> float:
        """The largest finite number; its negative is the lowest one. Of floats only."""
        return float(self.onnx.max)


_TYPES = (
    DType(ir.DataType.FLOAT, "float", "float", True),
    DType(ir.DataType.FLOAT16, "fusion::half", "float", True),
    DType(ir.DataType.BFLOAT16, "fusion::bfloat", "float", True),
    DType(ir.DataType.DOUBLE, "double", "double"),
    DType(ir.DataType.INT64, "int64_t", "int64_t", True),
    DType(ir.DataType.INT32, "int32_t", "int32_t", True),
    DType(ir.DataType.INT16, "int16_t", "int16_t"),
    DType(ir.DataType.INT8, "int8_t", "int8_t"),
    DType(ir.DataType.UINT64, "uint64_t", "uint64_t"),
    DType(ir.DataType.UINT32, "uint32_t", "uint32_t"),
    DType(ir.DataType.UINT16, "uint16_t", "uint16_t"),
    DType(ir.DataType.UINT8, "uint8_t", "uint8_t"),
    DType(ir.DataType.BOOL, "bool", "bool", True),
)
DTYPES: Mapping[str, DType] = {t.name: t for t in _TYPES}
PLANNED = frozenset(t.name for t in _TYPES if t.is_planned)
ONNX_FLOATS = frozenset(t.onnx for t in _TYPES if t.onnx.is_floating_point())
FLOATS = frozenset(t.name for t in _TYPES if t.onnx in ONNX_FLOATS and t.is_planned)
"""The floating-point types that kernels take, all of which they compute in float32."""
NARROW = frozenset(name for name in FLOATS if DTYPES[name].storage != DTYPES[name].compute)
"""Those that are rounded where they are stored."""
_NAMES = {t.onnx: t.name for t in _TYPES}


def name_of(dtype: ir.DataType | None) -> str:
    """The common name of an element type, such as "float32"; "unknown" if there is none."""
    return "unknown" if dtype is None else _NAMES.get(dtype, dtype.name.lower())


def element_bytes(name: str) -> int:
    """Bytes of an element; of a type that is not in the table, those of most."""
    return DTYPES[name].bytes if name in DTYPES else 4
