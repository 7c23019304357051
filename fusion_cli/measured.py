"""What running models showed: whether the numbers hold, how long they take, and which of them is written for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from fusion_cli.costs import Device
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
class Measurement:
    """Whole models timed in turn, simplest first, on what device, in how many rounds, on inputs of which shapes."""

    device: Device
    models: tuple[Timed, ...]
    rounds: int
    sizes: Mapping[str, tuple[int, ...]]

    def speed_of(self, model: ModelName) -> Speed | None:
        """A candidate's speed against the original's, if it was timed."""
        return next((c.speed for c in self.models if c.model == model), None)


@dataclass(frozen=True)
class Choice:
    """Which whole model is written and why, and what was measured: at the sizes that decide first."""

    chosen: ModelName
    why: str
    measured: tuple[Measurement, ...] = ()
    measured_at: str = ""
    """When an earlier run on this machine measured that, in UTC; "" where this one did."""

    def speed_of(self, model: ModelName) -> Speed | None:
        """A candidate's speed against the original's where that decides, if it was timed."""
        return self.measured[0].speed_of(model) if self.measured else None


@dataclass(frozen=True)
class OpCheck:
    """One fused operator's own test: its kernel against its nodes run by ONNX Runtime, on the same inputs."""

    op: str
    target: str
    error: float
    """Largest absolute difference over the largest magnitude of the reference."""
    tolerance: float
    before_us: float | None = None
    after_us: float | None = None
    is_slower: bool = False
    """By more than noise."""
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance


@dataclass(frozen=True)
class OutputCheck:
    """One graph output, fused against original."""

    output: str
    error: float
    tolerance: float

    @property
    def share(self) -> float:
        """What of the tolerance the error takes."""
        return self.error / self.tolerance

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance


@dataclass(frozen=True)
class Verification:
    """What running original and fused model side by side showed; `skipped` says why it could not be run. `sizes` are
    the shapes of the inputs, of one run after the other."""

    outputs: tuple[OutputCheck, ...] = ()
    ops: tuple[OpCheck, ...] = ()
    skipped: str = ""
    sizes: tuple[Mapping[str, tuple[int, ...]], ...] = ()

    @property
    def ok(self) -> bool:
        return all(o.ok for o in self.outputs)
