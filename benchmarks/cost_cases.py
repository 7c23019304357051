"""What the cost model is held against: measured times, the predictions for them, and what each term is worth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from zlib import crc32

from fusion_cli.analyse import Analysis, analyse
from fusion_cli.clock import Clock
from fusion_cli.costs import Device, Terms
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.score import default_sizes, forecasts, load_profile
from fusion_cli.score.forecast import model_span
from fusion_cli.types import Options

_ENDLESS = 1e15
_HELD_OUT = 3
"""One of so many cases is not fitted to."""


@dataclass(frozen=True)
class Measured:
    """Microseconds of ONNX Runtime and of the fused model, and the rules of its fusions; None where not measured."""

    before: float | None
    after: float | None
    rules: tuple[str, ...]
    speed: tuple[float, float] | None = None
    """The ends of the interval, of 95% confidence, of how many times as fast the fused model is; None where it was not
    kept."""


@dataclass(frozen=True)
class Case:
    """A model, how it was run ("kernels": device time alone), and what was measured of it."""

    id: str
    path: Path
    options: Options
    device: Device | None
    """None: the time of its kernels alone."""
    measured: Measured
    is_model: bool

    @property
    def name(self) -> str:
        return f"{self.id}, {self.device or 'kernels'}"

    @property
    def is_held_out(self) -> bool:
        """Whether nothing was fitted to it: by its model's name, so that all its runs are, or none."""
        return crc32(self.id.encode()) % _HELD_OUT == 0


@dataclass(frozen=True)
class Prediction:
    """A case with its predicted times, by terms, and in total without each of them."""

    case: Case
    before: Terms
    after: Terms
    without: Mapping[str, tuple[float, float]]
    same: bool
    """Whether the fusions are those that were measured; else nothing is said of the fused time."""


ABLATIONS: Mapping[str, Callable[[DeviceProfile], DeviceProfile]] = {
    "compute": lambda p: replace(
        p, tflops=dict.fromkeys(p.tflops, _ENDLESS), simple_gops=_ENDLESS, special_gops=_ENDLESS
    ),
    "memory": lambda p: replace(p, bandwidth_gbs=_ENDLESS),
    "cache": lambda p: replace(p, cache_bandwidth_gbs=_ENDLESS, near_bandwidth_gbs=_ENDLESS),
    "tiles": lambda p: replace(p, tiles=(), multiprocessors=0),
    "launch": lambda p: replace(p, launch_us={}),
    "dispatch": lambda p: replace(p, node_us=0, op_us=0, kernel_us=0, shape_node_us=0, run_us=0, graph_us=0),
}
"""A device on which what a term counts costs nothing."""


class Predictor:
    """Predictions for cases; a model is analysed once for all ways that it was run, or, with `keep`, once for all."""

    def __init__(self, keep: bool = False) -> None:
        self._keep = keep
        self._known: dict[Path, tuple[Analysis, Mapping[str, int]]] = {}

    def predict(self, case: Case) -> Prediction:
        """Raises FusionError where the model cannot be read."""
        found, sizes = self._found(case)
        profile = load_profile(found.targets[0])
        before, after = _times(case, found, profile, sizes)
        ablated = {term: _times(case, found, change(profile), sizes) for term, change in ABLATIONS.items()}
        return Prediction(
            case, before, after, {k: (b.total, a.total) for k, (b, a) in ablated.items()}, _same(case, found)
        )

    def totals(self, case: Case, profile: DeviceProfile) -> tuple[float, float, bool]:
        """Predicted times with another profile, of the fusions chosen with the usual one, and whether those are what
        was measured. Raises FusionError where the model cannot be read."""
        found, sizes = self._found(case)
        before, after = _times(case, found, profile, sizes)
        return before.total, after.total, _same(case, found)

    def _found(self, case: Case) -> tuple[Analysis, Mapping[str, int]]:
        if case.path not in self._known:
            if not self._keep:
                self._known.clear()
            found = analyse(case.path, case.options, Clock(case.options))
            self._known[case.path] = found, default_sizes(found.model, case.options)[0]
        return self._known[case.path]


def _same(case: Case, found: Analysis) -> bool:
    return tuple(sorted(c.region.rule for c in found.chosen)) == case.measured.rules


def _times(case: Case, found: Analysis, profile: DeviceProfile, sizes: Mapping[str, int]) -> tuple[Terms, Terms]:
    if case.device is None:  # timed with nothing of it in the cache
        graph, profile = found.model.graph, replace(profile, cache_bytes=0.0)
        return model_span(graph, (), profile, sizes).device, model_span(graph, found.chosen, profile, sizes).device
    found_times = forecasts(found.model.graph, found.chosen, profile, sizes)
    return next((f.before, f.after) for f in found_times if f.device == case.device)
