"""The graphs of the tests of the attention idiom, each with what was found in it."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import FunctionType
from typing import Any
from unittest import mock

import numpy as np
import onnx_ir as ir

from fusion_cli.match import MatchResult
from fusion_cli.types import Region
from tests.helpers import attention_texts
from tests.match import test_idioms_attention, test_idioms_attention_shapes

SIZES = {"b": 2, "s": 5, "t": 7, "u": 7, "n": 8, "z": 3, "p": 4}
RUN_TIME = {"four": np.array([2, 4, 5, 7])}


@dataclass(frozen=True, eq=False)
class Recognised:
    """The regions of the rule AttentionHeads in a graph of such a test, the largest first."""

    name: str
    regions: tuple[Region, ...]

    @property
    def model(self) -> ir.Model:
        graph = self.regions[0].nodes[0].graph
        assert isinstance(graph, ir.Graph)
        return ir.Model(graph, ir_version=10)

    def feeds(self) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(5)
        return {str(v.name): RUN_TIME.get(str(v.name), _random(v, rng)) for v in self.model.graph.inputs}


def _random(value: ir.Value, rng: np.random.Generator) -> np.ndarray:
    dims = value.shape if value.shape is not None else ()
    shape = [d if isinstance(d, int) else SIZES[str(d.value)] for d in dims]
    if value.name == "sink":
        shape[-1] = 1
    assert value.dtype is not None
    numbers = rng.normal(size=shape) if value.dtype.is_floating_point() else rng.integers(0, 2, shape)
    return numbers.astype(value.dtype.numpy())


@cache
def recognised() -> Mapping[str, Recognised]:
    """By name of the test and of its parameters (or their number), where the idiom is part of a region."""
    found = (Recognised(name, regions) for name, regions in _regions() if regions)
    return {f.name: f for f in found}


def _regions() -> Iterator[tuple[str, tuple[Region, ...]]]:
    for name, function in (vars(test_idioms_attention) | vars(test_idioms_attention_shapes)).items():
        if name.startswith("test_") and isinstance(function, FunctionType):
            for case, arguments in _cases(function):
                results: list[MatchResult] = []
                record = _recording(results, attention_texts.matches)
                with (
                    mock.patch.object(attention_texts, "matches", record),
                    mock.patch.object(test_idioms_attention, "matches", record),
                ):
                    function(**arguments)
                for i, result in enumerate(results):
                    regions = [r for r in result.regions if r.rule == "AttentionHeads"]
                    yield (
                        f"{name.removeprefix('test_')}{case}{f' {i}' if i else ''}",
                        tuple(sorted(regions, key=lambda r: -len(r.nodes))),
                    )


def _recording(results: list[MatchResult], matches: Any) -> Any:
    def record(*args: Any) -> MatchResult:
        results.append(matches(*args))
        return results[-1]

    return record


def _cases(function: FunctionType) -> Iterator[tuple[str, dict[str, Any]]]:
    """The sets of parameters that pytest would call the test with."""
    marks = [m for m in getattr(function, "pytestmark", ()) if m.name == "parametrize"]
    axes = []
    for mark in marks:
        names, values = mark.args
        names = [names] if isinstance(names, str) else list(names)
        if len(names) == 1:
            values = [(v,) for v in values]
        values = list(values)
        ids = list(mark.kwargs.get("ids") or range(len(values)))
        axes.append([(str(i), dict(zip(names, v, strict=True))) for i, v in zip(ids, values, strict=True)])
    assert set(inspect.signature(function).parameters) == {n for axis in axes for n in axis[0][1]}, function
    for chosen in itertools.product(*axes):
        merged = {name: value for _, part in chosen for name, value in part.items()}
        yield f"[{'-'.join(i for i, _ in chosen)}]" if chosen else "", merged
