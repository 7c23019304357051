"""Which whole model is written: the original, the simplified one, or that with kernels, as they are timed in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from fusion_cli.load import load_model
from fusion_cli.measured import WORDS, Choice, ModelName, Timed
from fusion_cli.outline import DOMAIN
from fusion_cli.save.stream import write_model
from fusion_cli.sessions.process import Opener, Runner
from fusion_cli.sessions.timing import Speed, Timing, pooled
from fusion_cli.verify.feeds import Feeds

SECONDS = 3.0
"""How long whole models are timed, at most but for slow ones, whose rounds are few."""
_SITTINGS = 2
_ROUNDS = 1000
_PATIENCE = 10.0
"""Seconds after which no further sitting is begun: large models take long to open."""
Open = Callable[[], Runner]


def measure(models: Sequence[Open], feeds: Feeds, *, seconds: float = SECONDS) -> Timing:
    """The models' times, in turn, for about so long. Raises CannotRun.

    In two sittings, each with sessions of its own: two sessions of one model may differ by some percent, which then
    widens the interval. All models are open at a time.
    """
    start = time.monotonic()
    sittings: list[Timing] = []
    while len(sittings) < _SITTINGS and time.monotonic() - start < _PATIENCE:
        first, *others = [open_model() for open_model in models]
        sittings.append(first.time_against(others, feeds, seconds=seconds / _SITTINGS, most=_ROUNDS // _SITTINGS))
        del first, others  # the memory is free before they are opened again
    return pooled(sittings)


def choose(
    models: Mapping[ModelName, Open],
    feeds: Feeds,
    *,
    least: ModelName = "original",
    asked: ModelName | None = None,
    forced: bool = False,
) -> Choice:
    """Time models, the first of them the original, and choose the fastest; of those that differ by no more than noise
    the one that was `asked` for, else the simplest. None simpler than `least` is chosen, and the last one if
    `forced`."""
    names = list(models)
    timing = measure(tuple(models.values()), feeds)
    chosen, why = names.index(asked or least), "nothing is faster by more than noise"
    for other in range(names.index(least), len(names)):
        if other != chosen and timing.speed(other, against=chosen).is_faster:
            chosen, why = other, f"faster than {WORDS[names[chosen]]} by more than noise"
    if forced:
        chosen, why = len(names) - 1, "--force keeps it whatever its time"
    timed = tuple(Timed(name, timing.us(i), timing.speed(i)) for i, name in enumerate(names))
    return Choice(names[chosen], why, timed, timing.rounds, {name: array.shape for name, array in feeds.items()})


def speeds_alone(
    fused: Path, library: Path, groups: Mapping[str, Collection[str]], feeds: Feeds, opener: Opener
) -> dict[str, Speed]:
    """For each group of operators how much faster the fused model is with only their kernels than with none. Raises
    CannotRun."""
    found: dict[str, Speed] = {}
    for name, ops in groups.items():
        with NamedTemporaryFile(dir=fused.parent, suffix=".onnx") as file:
            write_model(_with_only(ops, fused), Path(file.name))
            alone = partial(opener, Path(file.name), libraries=[library], use="timing")
            found[name] = measure([partial(opener, fused, use="timing"), alone], feeds, seconds=SECONDS / 2).speed(1)
    return found


def _with_only(ops: Collection[str], fused: Path) -> ir.Model:
    model = load_model(fused)
    InlinePass(lambda f: f.domain == DOMAIN and f.name not in ops)(model)
    return model


def unhelpful(speeds: Mapping[str, Speed], *, together: bool) -> list[str]:
    """The groups to take back, by how fast the model is with each alone: where all `together` make it faster, those
    that make it slower, else those that do not make it faster. None where all would go."""
    bad = [name for name, speed in speeds.items() if (speed.is_slower if together else not speed.is_faster)]
    return bad if len(bad) < len(speeds) else []
