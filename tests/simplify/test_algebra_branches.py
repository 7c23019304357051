"""Convolutions of one value whose results are added: which become one, and which are left."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from fusion_cli.simplify import Simplified, simplify
from tests.helpers.algebra_models import PAD, operators, same
from tests.helpers.graphs import parse, read_in

WEIGHTS = {
    "whole": (6, 6, 3, 3),
    "column": (6, 6, 3, 1),
    "line": (6, 6, 1, 3),
    "point": (6, 6, 1, 1),
    "pairs": (6, 2, 3, 3),
    "deep": (6, 1, 3, 3),
    "deeper": (6, 1, 5, 5),
    "bias": (6,),
    "scale": (6, 1, 1),
    "shift": (1, 6, 1, 1),
    "few": (1, 6, 3, 3),
    "other": (6, 6, 3, 3),
    "point2": (6, 6, 1, 1),
    "four": (6, 6, 2, 2),
    "more": (6, 1, 1),
    "rows": (7, 1),
    "tall": (6, 6, 7, 1),
    "few2": (1, 6, 3, 3),
    "one": (1, 1),
}
IMAGE = "float[2, 6, 7, 5] x"
C, D, E = (
    f"c = Conv {PAD} (x, whole)",
    "d = Conv <pads = [1, 0, 1, 0]> (x, column, bias)",
    "e = Conv <pads = [0, 1, 0, 1]> (x, line)",
)
DEEP = f"c = Conv <group = 6, pads = [2, 2, 2, 2]> (x, deeper) d = Conv <group = 6, {PAD[1:-1]}> (x, deep)"


def model_of(body: str, inputs: str = IMAGE) -> onnx.ModelProto:
    return parse(f"g ({inputs}) => (float[a, b, h, w] y) {{ {body} }}", read_in(body, WEIGHTS))


def is_merged(found: Simplified) -> bool:
    return "ConvBranches" in {r.rule for r in found.algebra}


MERGED = {
    "two": (f"{C} {D} y = Add (c, d)", "Conv"),
    "the other way round": (f"{C} {D} y = Add (d, c)", "Conv"),
    "three": (f"{C} {D} {E} s = Add (d, c) y = Add (e, s)", "Conv"),
    "lines before what has taps for both": (f"{C} {D} {E} s = Add (d, e) y = Add (s, c)", "Conv"),
    "numbers by channel": (f"{C} f = Mul (x, scale) y = Add (f, c)", "Conv"),
    "channels alone": (f"{DEEP} f = Mul (x, scale) s = Add (c, d) y = Add (s, f)", "Conv"),
    "channels in groups": (
        f"c = Conv <group = 3, {PAD[1:-1]}> (x, pairs) f = Mul (x, scale) y = Add (f, c)",
        "Conv",
    ),
    "steps": (
        f"c = Conv <strides = [2, 2], {PAD[1:-1]}> (x, whole) d = Conv <strides = [2, 2]> (x, point) y = Add (c, d)",
        "Conv",
    ),
    "before what is added too": (f"{C} {D} r = Relu (x) s = Add (c, d) y = Add (r, s)", "Relu Conv Add"),
    "a difference": (f"{C} {D} y = Sub (d, c)", "Conv"),
    "numbers for the whole": (f"{C} {D} s = Add (c, d) m = Mul (s, scale) y = Add (m, shift)", "Conv"),
    "before a channel is repeated": (
        f"c = Conv {PAD} (x, few) d = Conv {PAD} (x, few2) s = Add (c, d) y = Mul (s, scale)",
        "Conv Mul",
    ),
    "what is read, too": (f"{DEEP} s = Add (c, d) t = Add (x, s) y = Mul (t, scale)", "Conv"),
    "a difference from what is read": (
        "c = Conv <group = 6, pads = [1, 1, 1, 1]> (x, deep, bias) f = Mul (x, more) s = Sub (c, f) m = Mul (s, scale)"
        " y = Add (x, m)",
        "Conv",
    ),
    "behind a branch that stays": (
        f"r = Relu (x) e = Mul (r, more) {C} {D} s = Add (c, d) y = Add (e, s)",
        "Relu Mul Conv Add",
    ),
    "two of each": (
        f"{C} {D} r = Relu (x) p = Conv {PAD} (r, other) q = Conv (r, point) s = Add (c, d) t = Add (p, q)"
        " y = Add (t, s)",
        "Conv Relu Conv Add",
    ),
}


@pytest.mark.parametrize(("body", "left"), MERGED.values(), ids=MERGED)
def test_branches_become_one_convolution(body: str, left: str) -> None:
    found = same(model_of(body))
    assert is_merged(found)
    assert sorted(operators(found).split()) == sorted(left.split())


SAME = '<auto_pad = "SAME_UPPER">'
FAR = ", pads = [2, 2, 2, 2]"
LEFT = {
    "read twice": f"{C} {D} s = Add (c, d) r = Relu (c) y = Add (s, r)",
    "of something else": f"{C} r = Relu (x) d = Conv (r, point) y = Add (c, d)",
    "more taps than both": f"{D} {E} y = Add (d, e)",
    "other groups": f"{C} d = Conv <group = 6, {PAD[1:-1]}> (x, deep) y = Add (c, d)",
    "repeated channels": f"{C} d = Conv {PAD} (x, few) y = Add (c, d)",
    "padded by the runtime": f"c = Conv {SAME} (x, whole) d = Conv {SAME} (x, other) y = Add (c, d)",
    "repeated rows": f"{D} c = Conv (x, tall) y = Add (c, d)",
    "a repeated channel": f"c = Conv {PAD} (x, few) f = Mul (x, one) y = Add (f, c)",
    "other distances": f"c = Conv {PAD} (x, whole) d = Conv <dilations = [2, 2]{FAR}> (x, other) y = Add (c, d)",
    "between the taps": f"c = Conv <dilations = [2, 2], {PAD[1:-1]}> (x, four) d = Conv (x, point) y = Add (c, d)",
    "a product": f"{C} {D} y = Mul (c, d)",
    "added to a part": f"{C} {D} m = ReduceMean <axes = [2]> (x) s = Add (d, m) p = Relu (s) y = Add (c, p)",
    "numbers by row": f"{C} f = Mul (x, rows) y = Add (f, c)",
    "a residual connection": f"{C} y = Add (c, x)",
    "a residual connection by channel": "c = Conv <group = 6, pads = [1, 1, 1, 1]> (x, deep) y = Add (x, c)",
    "a gate": f"{C} {D} s = Add (c, d) r = Sigmoid (s) m = Mul (c, r) y = Add (m, d)",
    "no convolution": "c = Mul (x, scale) d = Mul (x, more) y = Add (c, d)",
}


@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT)
def test_what_else_is_added_is_left(body: str) -> None:
    assert not is_merged(same(model_of(body)))


def test_other_steps_are_left() -> None:
    body = "c = Conv <strides = [2, 2]> (x, point) d = Conv (x, point2) y = Add (c, d)"
    assert not is_merged(same(model_of(body, "float[2, 6, 1, 1] x")))


def test_a_branch_whose_neighbour_is_smaller_stays() -> None:
    """What is left of the sum would have another shape than the graph says."""
    found = same(model_of(f"{C} {D} m = ReduceMean <axes = [2]> (x) s = Add (d, m) t = Add (m, c) y = Add (s, t)"))
    assert not is_merged(found)


def test_weights_that_do_not_fit_their_type_stay() -> None:
    model = model_of(f"{C} d = Conv {PAD} (x, other) {E} s = Add (c, e) y = Add (s, d)")
    for tensor in model.graph.initializer:
        shape = WEIGHTS[tensor.name]
        tensor.CopyFrom(numpy_helper.from_array(np.full(shape, 2e38 if shape[2] > 1 else 1, np.float32), tensor.name))
    found = simplify(ir.from_proto(model), partial(ir.from_proto, model))
    assert operators(found) == "Conv Conv Add"


def test_convolutions_drawn_at_random_become_one_wherever_they_can() -> None:
    rng, merged = np.random.default_rng(5), 0
    for _ in range(120):
        groups, steps = int(rng.choice([1, 2, 6])), rng.integers(1, 3, 2).tolist()
        rest, both, shapes = rng.integers(-2, 3, 2), [], {}
        for name in ("c", "d"):
            taps, apart = rng.integers(1, 4, 2), rng.integers(1, 3, 2)
            sides = rest + (taps - 1) * apart  # what is padded at either side of an axis
            if (sides < 0).any():
                continue
            begin = rng.integers(0, sides + 1)
            pads, shapes[f"w{name}"] = [*begin, *(sides - begin)], (6, 6 // groups, *taps.tolist())
            numbers = (
                f"group = {groups}, strides = {steps}, dilations = {apart.tolist()}, pads = {[int(n) for n in pads]}"
            )
            both.append(f"{name} = Conv <{numbers}> (x, w{name})")
        if len(both) == 2:
            text = f"g (float[2, 6, 8, 9] x) => (float[a, b, h, w] y) {{ {' '.join(both)} y = Add (c, d) }}"
            merged += is_merged(same(parse(text, shapes)))
    assert merged > 5
