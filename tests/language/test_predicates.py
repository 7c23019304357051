"""What predicates answer, and how a condition falls into parts."""

from __future__ import annotations

import pytest

from fusion_cli.graph.index import GraphIndex
from fusion_cli.language.predicates import PREDICATES, conjuncts, holds
from tests.helpers.graphs import parse, simplified


@pytest.fixture(scope="module")
def index() -> GraphIndex:
    text = "g (float[n, 6] x, float[n, 6] z) => (float[n, 6] y, u, w) { y = Add (x, z) u = Odd (x) w = Odd (z) }"
    model = parse(text.replace("Odd", "other.Odd"))
    model.opset_import.add(domain="other", version=1)
    return GraphIndex(simplified(model).graph)


def asked(index: GraphIndex, condition: str) -> bool:
    values = {v.name: v for n in index.nodes for v in (*n.inputs, *n.outputs) if v is not None}
    return holds(condition, values, index)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("same_shape(x, y)", True),
        ("same_shape(x, u)", False),
        ("same_shape(u, w)", False),
        ("divisible(dim(x, 1), 3)", True),
        ("divisible(dim(x, 1), 4)", False),
        ("divisible(dim(x, 0), 1)", False),
        ("size(x, 1) == 6", True),
        ("size(x) == 6", False),
        ("size(u) == 6", False),
        ("rank(x) == 2 and rank(y) == 3 or rank(z) == 2", True),
    ],
)
def test_a_condition_holds_or_not(index: GraphIndex, condition: str, expected: bool) -> None:
    assert asked(index, condition) == expected


@pytest.mark.parametrize(
    ("equation", "axes"),
    [
        ("ij,jk->ik", [-1, -2]),
        ("bij,jk->bik", [-1, -2]),
        ("ijl,jlk->ik", None),
        ("ij,jk->ijk", None),
        ("ij->i", None),
        ("iij,jk->ik", [-1, -2]),
        ("ijj,jk->ik", None),
    ],
)
def test_an_equation_sums_over_one_axis(equation: str, axes: list[int] | None) -> None:
    assert PREDICATES["summed"](None, equation) == axes


def test_a_condition_is_split_where_all_parts_have_to_hold() -> None:
    assert conjuncts("rank(x) == 2 and (dim(x, 0) == 1 or dim(x, 1) == 1)") == [
        "rank(x) == 2",
        "(dim(x, 0) == 1 or dim(x, 1) == 1)",
    ]
    assert conjuncts("rank(x) == 2 and rank(y) == 2 or rank(z) == 2") == [
        "rank(x) == 2 and rank(y) == 2 or rank(z) == 2"
    ]
    assert conjuncts("dtype(x) == 'a and b'") == ["dtype(x) == 'a and b'"]
