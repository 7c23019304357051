"""The one form of attributes that patterns are written against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir as ir
import pytest

from fusion_cli.graph.index import GraphIndex
from tests.helpers.region_tools import parsed


def attributes(body: str, opset: int = 17) -> Mapping[str, Any]:
    """Of the last node over x [2, 8, 4]; a, b, c, d are vectors of one number for Slice."""
    model: ir.Model = parsed(f"g (float[2, 8, 4] x) => (float[i, j, k] y) {{ {body} }}", opset)
    return GraphIndex(model.graph).attributes(list(model.graph)[-1])


def sliced(start: int, end: int, axis: int, step: int) -> Mapping[str, Any]:
    numbers = " ".join(
        f"{n} = Constant <value_ints = [{v}]> ()" for n, v in zip("abcd", (start, end, axis, step), strict=True)
    )
    return attributes(f"{numbers} y = Slice (x, a, b, c, d)")


@pytest.mark.parametrize(
    ("start", "end", "axis"), [(4, 8, 1), (-4, 8, 1), (4, 2**63 - 1, -2), (-4, 2**31 - 1, 1), (4, 99, 1)]
)
def test_bounds_of_a_slice_count_from_the_start(start: int, end: int, axis: int) -> None:
    found = sliced(start, end, axis, 1)
    assert [found[n] for n in ("axes", "starts", "ends", "steps")] == [[-2], [4], [8], [1]]


def test_a_slice_that_goes_backwards_keeps_its_bounds() -> None:
    found = sliced(-1, -(2**63), 1, -1)
    assert [found[n] for n in ("axes", "starts", "ends", "steps")] == [[-2], [-1], [-(2**63)], [-1]]


@pytest.mark.parametrize(
    ("opset", "written", "axis"),
    [(13, "", -1), (13, "<axis = 1>", -2), (11, "", [-2, -1]), (11, "<axis = 2>", -1), (11, "<axis = -2>", [-2, -1])],
)
def test_an_old_softmax_runs_over_all_axes_from_one_on(opset: int, written: str, axis: object) -> None:
    assert attributes(f"y = Softmax {written} (x)", opset)["axis"] == axis


def test_axes_count_from_the_end() -> None:
    assert attributes("y = ReduceMean <axes = [2, 1]> (x)")["axes"] == [-2, -1]
    assert attributes("y = ReduceMean <axes = [-1]> (x)")["axes"] == [-1]
