"""What timing whole models showed, and which of them is written for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from fusion_cli.sessions.timing import Speed

ModelName = Literal["original", "simplified", "kernels"]
"""A whole model that can be written, in this order from the simplest."""
WORDS: Mapping[ModelName, str] = {
    "original": "the original",
    "simplified": "the simplified model",
    "kernels": "the simplified model with kernels",
}


@dataclass(frozen=True)
class Timed:
    """A whole model's time in microseconds, and its speed against the original's."""

    model: ModelName
    us: float
    speed: Speed


@dataclass(frozen=True)
class Choice:
    """Which whole model is written and why, and what was timed: the candidates, simplest first, in how many rounds, on
    inputs of which shapes."""

    chosen: ModelName
    why: str
    candidates: tuple[Timed, ...] = ()
    rounds: int = 0
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def speed_of(self, model: ModelName) -> Speed | None:
        """A candidate's speed against the original's, if it was timed."""
        return next((c.speed for c in self.candidates if c.model == model), None)
