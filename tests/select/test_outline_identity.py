"""Which regions are one operator: equal bodies and kernels, whatever the names; nothing that computes otherwise."""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex
from fusion_cli.match.make_region import make_region
from fusion_cli.outline import outline
from fusion_cli.plan import plan_region
from fusion_cli.types import Candidate, FusedOp, Region
from tests.helpers.graphs import parse, simplified


def pairs(text: str) -> tuple[ir.Model, list[Region]]:
    """A model, and regions of each two of its nodes."""
    model = simplified(parse(text))
    index, nodes = GraphIndex(model.graph), list(model.graph)
    return model, [make_region(index, nodes[i : i + 2], "Pair", "auto", 1) for i in range(0, len(nodes), 2)]


def outlined(text: str, *, planned: bool = False, kernels: tuple[str, ...] = ()) -> tuple[FusedOp, ...]:
    model, regions = pairs(text)
    regions = [replace(r, kernel=k) for r, k in zip(regions, kernels or ["auto"] * len(regions), strict=True)]
    return outline(model, [Candidate(r, plan_region(r) if planned else None, {}, ("cpu",)) for r in regions])


TWO = """g (float[n, 8] x, float[n, 8] z) => (float[n, 8] y, float[n, 8] u) {{
    a = LeakyRelu <alpha = 0.25> (x) y = Exp (a) b = LeakyRelu <alpha = {alpha}> (z) u = {op} (b) }}"""


def test_equal_regions_are_one_operator() -> None:
    for planned in (False, True):
        (op,) = outlined(TWO.format(alpha=0.25, op="Exp"), planned=planned)
        assert len(op.call_names) == 2


def test_regions_with_other_attributes_or_operators_are_not() -> None:
    for planned in (False, True):
        assert len(outlined(TWO.format(alpha=0.5, op="Exp"), planned=planned)) == 2
        assert len(outlined(TWO.format(alpha=0.25, op="Sin"), planned=planned)) == 2


def test_regions_of_other_kernels_are_not() -> None:
    assert len(outlined(TWO.format(alpha=0.25, op="Exp"), kernels=("mine", "mine"))) == 1
    assert len(outlined(TWO.format(alpha=0.25, op="Exp"), kernels=("mine", "auto"))) == 2


def test_regions_of_other_types_and_sizes_are_not() -> None:
    text = "g (float[n, 8] x, {z} z) => (float[n, 8] y, {z} u) {{ a = Sin (x) y = Exp (a) b = Sin (z) u = Exp (b) }}"
    for planned in (False, True):
        assert len(outlined(text.format(z="float[n, 8]"), planned=planned)) == 1
        assert len(outlined(text.format(z="float16[n, 8]"), planned=planned)) == 2
        assert len(outlined(text.format(z="float[n, 9]"), planned=planned)) == 2


def test_the_names_of_sizes_do_not_matter() -> None:
    text = """g (float[n, k] x, float[m, l] z) => (float[n, k] y, float[m, l] u) {
        a = Sin (x) y = Exp (a) b = Sin (z) u = Exp (b) }"""
    for planned in (False, True):
        assert len(outlined(text, planned=planned)) == 1
