"""Arithmetic with tensors of one number that changes nothing is left out, and nothing else is."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from fusion_cli.simplify import simplify
from fusion_cli.simplify.algebra.numbers import uniform
from tests.helpers.graphs import parse

LAST_HIDDEN = np.arange(25).reshape(1, 1, 5, 5) < 24
VISIBLE = {
    "seen": np.ones((1, 1, 5, 1), np.bool_),
    "hidden": np.zeros((1, 1, 5, 1), np.bool_),
    "some": np.tri(5, dtype=np.bool_)[None, None],
    "most": LAST_HIDDEN,
}
NUMBERS = "zero = Constant <value = float {0}> () low = Constant <value = float {-65504}> ()"
SHAPE = "whole = Constant <value = int64[4] {2, 1, 5, 5}> ()"


def operators(body: str, x: str = "float[2, 3, 5, 5] x", y: str = "float[2, 3, 5, 5] y") -> list[str]:
    def model() -> ir.Model:
        proto = parse(f"g ({x}) => ({y}) {{ {NUMBERS} {SHAPE} {body} }}")
        proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in VISIBLE.items())
        proto.graph.initializer.append(numpy_helper.from_array(np.zeros(5, np.float32), "bias"))
        return ir.from_proto(proto)

    found = simplify(model(), model)
    is_applied = "NeutralTensor" in {r.rule for r in found.algebra}
    left = [node.op_type for node in found.model.graph if node.op_type != "Identity"]
    assert is_applied == (left == ["Softmax"])
    return left


@pytest.mark.parametrize(
    "body",
    [
        "e = Expand (seen, whole) m = Where (e, zero, low) a = Add (x, m)",
        "e = Expand (seen, whole) m = Where (e, zero, low) a = Add (m, x)",
        "e = Expand (seen, whole) m = Where (e, zero, low) a = Sub (x, m)",
        "m = ConstantOfShape (whole) a = Add (x, m)",
        "m = ConstantOfShape <value = float[1] {1}> (whole) a = Mul (x, m)",
        "m = ConstantOfShape <value = float[1] {1}> (whole) a = Div (x, m)",
    ],
)
def test_what_changes_nothing_is_left_out(body: str) -> None:
    assert operators(f"{body} y = Softmax <axis = -1> (a)") == ["Softmax"]


@pytest.mark.parametrize("mask", ["Where (e, zero, low)", "Where (n, low, zero)"])
def test_masks_of_sizes_that_are_not_known_are_left_out(mask: str) -> None:
    body = f"s = Shape (x) e = Expand (seen, s) n = Expand (hidden, s) m = {mask} a = Add (x, m)"
    left = operators(f"{body} y = Softmax <axis = -1> (a)", "float[B, 3, 5, 5] x", "float[B, 3, 5, 5] y")
    assert left == ["Softmax"]


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("m = Where (some, zero, low) a = Add (x, m)", "Add"),
        ("m = Where (most, zero, low) a = Add (x, m)", "Add"),
        ("e = Expand (seen, whole) m = Where (e, low, zero) a = Add (x, m)", "Add"),
        ("m = ConstantOfShape (whole) a = Sub (m, x)", "Sub"),
        ("m = ConstantOfShape (whole) a = Mul (x, m)", "Mul"),
        ("a = Add (x, bias)", "Add"),
    ],
    ids=["hides some", "hides the last", "hides all", "the other way round", "zeros", "a bias"],
)
def test_what_changes_something_stays(body: str, left: str) -> None:
    assert left in operators(f"{body} y = Softmax <axis = -1> (a)")


def test_a_tensor_that_enlarges_what_it_is_added_to_stays() -> None:
    body = "m = ConstantOfShape (whole) a = Add (x, m) y = Softmax <axis = -1> (a)"
    assert "Add" in operators(body, "float[1, 1, 1, 5] x", "float[2, 1, 5, 5] y")


COUNTED = """n = Shape (x) k = Gather (n, three) c = Range ({start}, k, {step}) u = Unsqueeze (c, axes)
    seen = GreaterOrEqual (u, zeroth)"""
MEETS = "m = And (seen, mask) w = Where (m, zero, low) a = Add (x, w) y = Softmax <axis = -1> (a)"
INTS = "int64 three = {3}, int64 zeroth = {0}, int64 one = {1}, int64 minus = {-1}, int64[3] axes = {0, 1, 3}"


def masked(body: str, y: str = "float[b, 3, q, q] y") -> ir.Model:
    text = f"g (float[b, 3, q, q] x, bool[b, 1, 1, q] mask) => ({y}) <{INTS}> {{ {NUMBERS} {body} }}"
    return simplify(ir.from_proto(parse(text)), lambda: ir.from_proto(parse(text))).model


def operators_of(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def test_a_mask_by_key_stays_one_where_every_query_meets_it() -> None:
    """As torch.export writes the mask of an encoder: positions are counted, and compared with zero."""
    model = masked(f"{COUNTED.format(start='zeroth', step='one')} {MEETS}")
    assert operators_of(model) == ["Where", "Add", "Softmax"]
    (where, *_) = model.graph
    assert where.outputs[0].shape == ir.Shape(["b", 1, 1, "q"])


@pytest.mark.parametrize(
    ("start", "step", "expected"),
    [("zeroth", "one", True), ("one", "one", True), ("minus", "one", None), ("zeroth", "minus", None)],
    ids=["from zero", "from more", "from less", "downwards"],
)
def test_what_may_be_less_is_compared(start: str, step: str, expected: bool | None) -> None:
    text = f"g (int64 n) => (bool[k] y) <{INTS}> {{ c = Range ({start}, n, {step}) y = GreaterOrEqual (c, zeroth) }}"
    (found,) = ir.from_proto(parse(text)).graph.outputs
    assert uniform(found) is expected


@pytest.mark.parametrize(
    "body",
    ["y = And (seen, mask)", "m = And (seen, mask) w = Where (m, zero, low) y = Softmax <axis = -2> (w)"],
    ids=["an output", "no elementwise reader"],
)
def test_what_others_see_keeps_its_shape(body: str) -> None:
    y = "bool[b, 1, q, q] y" if body.startswith("y") else "float[b, 1, q, q] y"
    assert "And" in operators_of(masked(f"{COUNTED.format(start='zeroth', step='one')} {body}", y))


@pytest.mark.parametrize(
    ("operator", "value", "left"), [("And", True, False), ("Or", False, False), ("Or", True, True)]
)
def test_truth_and_falsehood(operator: str, value: bool, left: bool) -> None:
    def model() -> ir.Model:
        proto = parse(f"g (bool[2, 3, 4] x) => (bool[2, 3, 4] y) {{ m = {operator} (known, x) y = Not (m) }}")
        proto.graph.initializer.append(numpy_helper.from_array(np.full((2, 3, 4), value), "known"))
        return ir.from_proto(proto)

    assert (operator in operators_of(simplify(model(), model).model)) == left


def test_conditions_that_always_hold_go_together() -> None:
    """As torch.export writes a causal mask: both sequences are the first, and nothing else hides keys."""
    text = f"""g (float[b, 3, q, q] x) => (float[b, 3, q, q] y) <bool always = {{1}}, {INTS}>
    {{
        {NUMBERS} s = Shape (x) e = Expand (zeroth, s) same = Equal (e, zeroth) p = And (always, same)
        seen = Greater (x, zero) m = And (p, seen) w = Where (m, zero, low) a = Add (x, w) y = Softmax <axis = -1> (a)
    }}"""
    model = simplify(ir.from_proto(parse(text)), lambda: ir.from_proto(parse(text))).model
    assert operators_of(model) == ["Greater", "Where", "Add", "Softmax"]


@pytest.mark.parametrize(
    ("op", "first", "second", "expected"),
    [
        ("Equal", "zeroth", "zeroth", True),
        ("Equal", "zeroth", "one", False),
        ("Equal", "one", "zeroth", False),
        ("Equal", "one", "n", None),
        ("Less", "zeroth", "one", True),
        ("LessOrEqual", "one", "zeroth", False),
        ("Greater", "one", "zeroth", True),
        ("GreaterOrEqual", "one", "n", None),
    ],
)
def test_numbers_are_compared(op: str, first: str, second: str, expected: bool | None) -> None:
    text = f"g (int64 n) => (bool[k] y) <{INTS}> {{ e = Expand ({first}, axes) y = {op} (e, {second}) }}"
    (found,) = ir.from_proto(parse(text)).graph.outputs
    assert uniform(found) is expected


CHOICES = [
    ("c = Where (seen, x, z) y = Softmax <axis = -1> (c)", True),
    ("c = Where (hidden, z, x) y = Softmax <axis = -1> (c)", True),
    ("c = Where (some, x, z) y = Softmax <axis = -1> (c)", False),
    ("c = Where (seen, row, x) y = Softmax <axis = -1> (c)", False),  # as large as x, which is not chosen
    ("c = Where (seen, row, x) y = Mul (c, x)", True),
    ("y = Where (seen, row, x)", False),
]


@pytest.mark.parametrize(("body", "goes"), CHOICES, ids=[body for body, _ in CHOICES])
def test_a_choice_that_is_always_the_same_is_handed_on(body: str, goes: bool) -> None:
    inputs = "float[2, 3, 5, 5] x, float[2, 3, 5, 5] z, float[1, 1, 1, 5] row"

    def model() -> ir.Model:
        proto = parse(f"g ({inputs}) => (float[2, 3, 5, 5] y) {{ {body} }}")
        proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in VISIBLE.items())
        return ir.from_proto(proto)

    found = simplify(model(), model)
    assert ("WhereAlways" in {r.rule for r in found.algebra}) == goes
    assert ("Where" in [n.op_type for n in found.model.graph]) == (not goes)
