"""What the GPU benchmark measures, and where its files lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

WORK = Path(".gpu-work")
ARCHIVE = WORK / "work.tar.xz"
TARGET = "sm_90a"
FACTS = "facts.json"
"""In each packed folder: how many regions each rule fused, and whether they were forced."""


@dataclass(frozen=True)
class Case:
    """One example at one input shape. `width` and `heads` are a transformer's, 0 for the convolutions."""

    example: str
    shape: tuple[int, ...]
    dtype: str
    width: int = 0
    heads: int = 0

    @property
    def dims(self) -> Mapping[str, tuple[int, int]]:
        """The example's symbolic dimensions, fixed to this shape."""
        names = {0: "batch", 1: "seq"} if self.width else {0: "batch", 2: "height", 3: "width"}
        return {name: (self.shape[axis], self.shape[axis]) for axis, name in names.items()}


CASES = (
    Case("transformer_ts17", (1, 256, 768), "float32", 768, 12),
    Case("transformer_dyn23", (1, 256, 768), "float32", 768, 12),
    Case("conv_stack", (1, 3, 224, 224), "float32"),
    Case("transformer_ts17_fp16_d768", (1, 128, 768), "float16", 768, 12),
    Case("transformer_dyn23_fp16_d768", (1, 128, 768), "float16", 768, 12),
    Case("transformer_ts17_fp16_d4096", (1, 2048, 4096), "float16", 4096, 32),
    Case("transformer_dyn23_fp16_d4096", (1, 2048, 4096), "float16", 4096, 32),
)
