"""Which whole model is written: the original, the simplified one, or that with kernels, as they are timed in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile

import onnx_ir as ir

from fusion_cli.costs import Device
from fusion_cli.listener import NOBODY, Listener
from fusion_cli.load import load_model
from fusion_cli.measured import WORDS, Choice, Measurement, ModelName, Timed
from fusion_cli.outline import put_back
from fusion_cli.save.stream import write_model
from fusion_cli.sessions import CPU, CUDA, CUDA_GRAPH, CannotRun, Providers
from fusion_cli.sessions.process import Opener, Runner
from fusion_cli.sessions.timing import Speed, Timing, pooled
from fusion_cli.verify.feeds import Feeds

SECONDS = 1.5
"""How long each whole model is timed beside the first, at most but for slow ones, whose rounds are few."""
_ROUNDS = 1000
_PATIENCE = 10.0
"""Seconds after which no further sitting is begun: large models take long to open."""
_PROVIDERS: Mapping[Device, Providers] = {"cpu": CPU, "cuda": CUDA, "cuda graph": CUDA_GRAPH}
Open = Callable[..., Runner]


@dataclass(frozen=True, eq=False)
class Setting:
    """Where models are timed, and with what. `decides`: what is faster must be so here; elsewhere it may not be
    slower."""

    feeds: Feeds
    device: Device = "cpu"
    decides: bool = True
    seconds: float = SECONDS
    sittings: int = 3

    def open(self, model: Open) -> Runner:
        """As applications open it. Raises CannotRun."""
        return model(use="timing", providers=_PROVIDERS[self.device])


def measure(models: Sequence[Open], setting: Setting) -> Timing:
    """The models' times, in turn. Raises CannotRun.

    In sittings, each with sessions of its own: two sessions of one model may differ by some percent, which then widens
    the interval, and those opened later tend to be faster, so that another is the first each time. All models are open
    at a time.
    """
    start, seconds = time.monotonic(), setting.seconds * (len(models) - 1)
    sittings: list[Timing] = []
    while len(sittings) < setting.sittings and time.monotonic() - start < _PATIENCE:
        at = len(sittings) % len(models)
        first, *others = [setting.open(model) for model in (*models[at:], *models[:at])]
        share, most = seconds / setting.sittings, _ROUNDS // setting.sittings
        samples = first.time_against(others, setting.feeds, seconds=share, most=most).samples
        sittings.append(Timing((*samples[len(models) - at :], *samples[: len(models) - at])))
        del first, others  # the memory is free before they are opened again
    return pooled(sittings)


def choose(
    models: Mapping[ModelName, Open],
    settings: Sequence[Setting],
    *,
    least: ModelName = "original",
    asked: ModelName | None = None,
    forced: bool = False,
    listener: Listener = NOBODY,
) -> Choice:
    """Time models, the first of them the original, and choose the fastest; of those that differ by no more than noise
    the one that was `asked` for, else the simplest. None simpler than `least` is chosen, and the last one if
    `forced`. Raises CannotRun where they run in no setting that decides."""
    names = list(models)
    timings = _timings(list(models.values()), settings, listener)
    chosen, why = names.index(asked or least), "nothing is faster by more than noise"
    for other in range(names.index(least), len(names)):
        if other != chosen and is_faster(timings, other, against=chosen):
            chosen, why = other, f"faster than {WORDS[names[chosen]]} by more than noise"
    if forced:
        chosen, why = len(names) - 1, "--force keeps it whatever its time"
    return Choice(names[chosen], why, tuple(_measurement(names, *each) for each in timings.items()))


def is_faster(timings: Mapping[Setting, Timing], model: int, against: int) -> bool:
    """Whether one model is faster than another in a setting that decides, and slower in none."""
    speeds = {setting: timing.speed(model, against=against) for setting, timing in timings.items()}
    return any(s.is_faster for at, s in speeds.items() if at.decides) and not any(s.is_slower for s in speeds.values())


def _timings(models: Sequence[Open], settings: Sequence[Setting], listener: Listener) -> dict[Setting, Timing]:
    """By setting, but for those that a model does not run in, as not every one makes a CUDA graph."""
    found: dict[Setting, Timing] = {}
    for number, setting in enumerate(settings):
        listener.step(number, len(settings), f"{len(models)} models on {setting.device}")
        try:
            found[setting] = measure(models, setting)
        except CannotRun:
            if setting.device != "cuda graph" and setting.decides:
                raise
    return found


def _measurement(names: Sequence[ModelName], setting: Setting, timing: Timing) -> Measurement:
    timed = tuple(Timed(name, timing.us(i), timing.speed(i)) for i, name in enumerate(names))
    return Measurement(setting.device, timed, timing.rounds, {n: array.shape for n, array in setting.feeds.items()})


def speeds_alone(
    fused: Path,
    library: Path,
    groups: Mapping[str, Collection[str]],
    setting: Setting,
    opener: Opener,
    listener: Listener = NOBODY,
    beside: Collection[str] = (),
) -> dict[str, Speed]:
    """For each group of operators how much faster the fused model is with only their kernels than with none, or with
    those of `beside` and theirs than with those of `beside`. Raises CannotRun."""
    found: dict[str, Speed] = {}
    for number, (name, ops) in enumerate(groups.items()):
        listener.step(number, len(groups), f"with the kernels of {name} {'too' if beside else 'alone'}")
        with ExitStack() as files:

            def only(kept: Collection[str], files: ExitStack = files) -> Open:
                file = files.enter_context(NamedTemporaryFile(dir=fused.parent, suffix=".onnx"))
                write_model(_with_only(kept, fused), Path(file.name))
                return partial(opener, Path(file.name), libraries=[library])

            without = only(beside) if beside else partial(opener, fused)
            found[name] = measure([without, only({*beside, *ops})], setting).speed(1)
    return found


def _with_only(ops: Collection[str], fused: Path) -> ir.Model:
    model = load_model(fused)
    put_back(model, lambda name: name not in ops)
    return model


def unhelpful(speeds: Mapping[str, Speed], trusted: Collection[str] = ()) -> list[str]:
    """The groups to take back, by how fast the model is with each alone: those that do not make it faster, whether or
    not it is with all together, for what is within noise is to come out the same each time. Those that are `trusted`
    stay unless they make it slower. None where all would go."""
    bad = [name for name, s in speeds.items() if (s.is_slower if name in trusted else not s.is_faster)]
    return bad if len(bad) < len(speeds) else []
