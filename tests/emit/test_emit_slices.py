"""Slices, splits and joins as CPU kernels, against ONNX Runtime's own nodes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fusion_cli.plan import plan_region
from fusion_cli.types import FusedOp, Region
from tests.helpers.emit_helpers import library, open_session, run
from tests.helpers.plan_builder import fused_op
from tests.helpers.region_tools import all_values, largest_error, whole
from tests.helpers.slice_graphs import (
    CACHE,
    GATED_PARTS,
    GRAPHS,
    PACKED_ATTENTION,
    ROPE_HALVES,
    ROPE_PAIRS,
    Graph,
    feeds,
)

DTYPES = {"float": 2e-5, "float16": 4e-3}
NARROW = (ROPE_HALVES, ROPE_PAIRS, PACKED_ATTENTION, GATED_PARTS, CACHE)
"""Those that show everything that 16-bit floats take other code for."""

CASES = [*((graph, "float") for graph in GRAPHS), *((graph, "float16") for graph in NARROW)]


def operator(graph: Graph, dtype: str) -> tuple[FusedOp, Region]:
    region = whole(graph.model(dtype))
    return fused_op(f"{graph.name}_{dtype}", plan_region(region)), region


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library([operator(*case)[0] for case in CASES], tmp_path_factory.mktemp("slices")).path


@pytest.mark.parametrize(("graph", "dtype"), CASES, ids=[f"{g.name}-{d}" for g, d in CASES])
def test_kernels_agree_with_nodes(graph: Graph, dtype: str, built: Path) -> None:
    op, region = operator(graph, dtype)
    session = open_session(op, built)
    for sizes in (*graph.sizes, {name: size + 30 for name, size in graph.sizes[0].items()}):
        model = graph.model(dtype)
        values = all_values(model, feeds(model, sizes, np.random.default_rng()), [region])
        found = run(session, *(values[str(v.name)] for v in region.inputs))
        for value, got in zip(region.outputs, found, strict=True):
            want = values[str(value.name)]
            assert got.shape == want.shape
            assert largest_error(got, want) <= DTYPES[dtype], f"{value.name} at {sizes}"
