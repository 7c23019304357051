"""Times made up: what is written must not depend, in tests, on how fast the machine is at the moment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import onnx

from fusion_cli.load import FUSED_KEY
from fusion_cli.sessions.timing import Timing

ROUNDS = 10


def timing(*us: float) -> Timing:
    """Models that take the same in every round."""
    return Timing(tuple((each,) * ROUNDS for each in us))


def later_is_faster(models: Sequence[object], setting: object) -> Timing:
    """In place of `measure`: each model twice as fast as the one before."""
    return timing(*(100.0 / 2**i for i in range(len(models))))


def measured(us: Callable[[str, frozenset[str]], float]) -> Callable[..., Timing]:
    """In place of `measure`: what `us` says of "original", "simplified" or "kernels", and for the last with kernels of
    which rules."""

    def measure(models: Sequence[partial[Any]], setting: object) -> Timing:
        return timing(*(us(*_known(model)) for model in models))

    return measure


def _known(model: partial[Any]) -> tuple[str, frozenset[str]]:
    (path,) = model.args
    proto = onnx.load(path)
    if model.keywords.get("libraries"):
        return "kernels", frozenset(f.name.rpartition("_")[0] for f in proto.functions)
    return "simplified" if FUSED_KEY in {p.key for p in proto.metadata_props} else "original", frozenset()
