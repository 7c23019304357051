"""What a kernel has to do, and how long a device takes for it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fusion_cli.devices.profile import DeviceProfile

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8, "bool": 1, "float64": 8}
SPECIAL = frozenset(
    "Acos Acosh Asin Asinh Atan Atanh Cos Cosh Erf Exp Log Pow Sigmoid Sin Sinh Softplus Tan Tanh".split()
)


@dataclass(frozen=True)
class Work:
    """One kernel: matrix operations (as the vendor's kernel would need time for them, see `slowdown`), bytes through
    memory, and elementwise operations, simple and special (exp and the like)."""

    name: str
    bytes: float
    flops: float = 0.0
    dtype: str = "float32"
    simple: float = 0.0
    special: float = 0.0
    slowdown: float = 1.0

    def time_us(self, profile: DeviceProfile) -> float:
        """Device time, dispatch aside."""
        arithmetic = self.simple / (profile.simple_gops * 1e3) + self.special / (profile.special_gops * 1e3)
        moved = self.bytes / (profile.bandwidth(self.bytes) * profile.share(self.name))
        matrix = self.flops / profile.matrix_rate(self.dtype)
        return max(matrix, moved) * self.slowdown + arithmetic if self.flops else max(moved, arithmetic)


def count(dims: Sequence[int]) -> int:
    return math.prod(dims)


def total_bytes(works: Iterable[Work]) -> int:
    return int(sum(w.bytes for w in works))


def operations_of(op_type: str) -> tuple[int, int]:
    """Simple and special operations per element of an ONNX operator as ONNX Runtime runs it in one node."""
    return _COMPOSITE.get(op_type, (0, 1) if op_type in SPECIAL else (1, 0))


_COMPOSITE: Mapping[str, tuple[int, int]] = {
    "LayerNormalization": (6, 0),
    "SkipLayerNormalization": (7, 0),
    "SkipSimplifiedLayerNormalization": (5, 0),
    "SimplifiedLayerNormalization": (4, 0),
    "RMSNormalization": (4, 0),
    "InstanceNormalization": (6, 0),
    "GroupNormalization": (6, 0),
    "BatchNormalization": (2, 0),
    "Softmax": (3, 1),
    "LogSoftmax": (3, 1),
    "Gelu": (4, 1),
    "BiasGelu": (5, 1),
    "FastGelu": (7, 1),
    "QuickGelu": (2, 1),
    "Swish": (1, 1),
    "Mish": (1, 2),
    "HardSwish": (4, 0),
    "HardSigmoid": (3, 0),
    "Clip": (2, 0),
}
