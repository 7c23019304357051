"""Rotations along axes, as torch.roll is exported, become lookups; what is none does not."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from fusion_cli.simplify import Simplified
from tests.helpers.algebra_models import model_of, operators, same

ONCE = "early = Slice (x, none, three, {0}) late = Slice (x, three, end, {0}) y = Concat <axis = {1}> (late, early)"
TWICE = (
    "a = Slice (x, none, three, one) b = Slice (x, three, end, one) c = Concat <axis = 1> (b, a) "
    "d = Slice (c, none, minus, two) e = Slice (c, minus, end, two) y = Concat <axis = 2> (e, d)"
)
NUMBERS = {"none": 0, "three": 3, "minus": -1, "end": 2**63 - 1, "one": 1, "two": 2, "each_other": 2, "last": 3}
KNOWN = "float[n, 7, 5, 8] x"


def simplified(body: str, inputs: str = KNOWN) -> Simplified:
    model = model_of(body, inputs)
    del model.graph.initializer[:]
    model.graph.initializer.extend(numpy_helper.from_array(np.array([v]), k) for k, v in NUMBERS.items())
    return same(model)


@pytest.mark.parametrize(
    ("body", "inputs", "left"),
    [
        (ONCE.format("one", 1), KNOWN, "Gather"),
        (ONCE.format("two", -2), KNOWN, "Gather"),
        (TWICE, KNOWN, "Reshape Gather Reshape"),
        (TWICE, "float[2, 7, 5, 8] x", "Reshape Gather Reshape"),
        (TWICE.replace("y = Concat", "z = Concat") + " t = Exp (c) y = Add (z, t)", KNOWN, "Gather Exp Gather Add"),
    ],
    ids=["once", "from the end", "twice", "of known sizes", "both results read"],
)
def test_rotations_are_looked_up(body: str, inputs: str, left: str) -> None:
    found = simplified(body, inputs)
    assert sorted(operators(found).split()) == sorted(left.split())
    assert {r.rule for r in found.algebra} == {"RollGather"}


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (ONCE.format("last", 3), KNOWN),  # halves of heads, which rotary embeddings turn
        (ONCE.format("one", 1), "float[n, h, 5, 8] x"),
        (ONCE.format("one", 1), "float[n, 7, 5, w] x"),
        (ONCE.format("one", 1), "float[n, 7, 2, 3] x"),
        (ONCE.format("one", 1).replace("(late, early)", "(early, late)"), KNOWN),
        (ONCE.format("one", 1).replace("three, end", "two, end"), KNOWN),
        (ONCE.format("one", 1).replace("end, one)", "end, one, each_other)"), KNOWN),
    ],
    ids=["the last axis", "unknown size", "unknown rows", "few", "as it was", "overlap", "steps"],
)
def test_what_is_no_rotation_of_rows_is_left(body: str, inputs: str) -> None:
    assert "RollGather" not in {r.rule for r in simplified(body, inputs).algebra}
