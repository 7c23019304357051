"""Operands of operators in ONNX text: how they are declared, and numbers for them."""

from __future__ import annotations

import numpy as np

RNG = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def tensor(name: str, dims: object = "", dtype: str = "float") -> str:
    """A declaration in ONNX text; without dimensions, of a scalar."""
    text = dims if isinstance(dims, str) else ", ".join(map(str, dims))  # type: ignore[call-overload]
    return f"{dtype}[{text}] {name}" if text else f"{dtype} {name}"
