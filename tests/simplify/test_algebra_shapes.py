"""Shapes that are known become constants, and what they were computed by goes; those that are not are computed."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from fusion_cli.sizes.dims import dims_of
from tests.helpers.foreign import Both, same
from tests.helpers.graphs import parse, read_in, simplified

RNG = np.random.default_rng(5)
SIZES = "shape = Shape (x) batch = Gather (shape, at0) length = Gather (shape, at1)"
ONES = "int64[1] at0 = {0}, int64[1] at1 = {1}"


def reshaped(target: str, given: str = "float[b, s, 6] x", constants: str = "", rank: int = 3) -> onnx.ModelProto:
    axes = ", ".join("mnop"[:rank])
    return parse(
        f"g ({given}) => (float[{axes}] y) <{ONES}{constants}> {{ {SIZES} {target} z = Relu (x) y = Reshape (z, t) }}"
    )


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in simplified(model).graph]


def shape_of_reshape(model: onnx.ModelProto) -> list[int]:
    (node,) = (n for n in simplified(model).graph if n.op_type == "Reshape")
    target = node.inputs[1]
    assert target is not None
    assert target.const_value is not None
    return target.const_value.numpy().tolist()


@pytest.mark.parametrize(
    ("target", "constants", "written"),
    [
        ("t = Concat <axis = 0> (batch, length, two)", ", int64[2] two = {2, 3}", [0, 0, 2, 3]),
        ("t = Concat <axis = 0> (batch, rest, three)", ", int64[1] rest = {-1}, int64[1] three = {3}", [0, -1, 3]),
        (
            "i = Cast <to = 6> (shape) b32 = Gather (i, at0) b64 = Cast <to = 7> (b32) "
            "t = Concat <axis = 0> (b64, two, rest)",
            ", int64[1] two = {2}, int64[1] rest = {-1}",
            [0, 2, -1],
        ),
        ("m = Mul (batch, length) t = Concat <axis = 0> (m, two)", ", int64[2] two = {2, 3}", [-1, 2, 3]),
    ],
)
def test_what_a_shape_comes_to_is_written(both: Both, target: str, constants: str, written: list[int]) -> None:
    model = reshaped(target, constants=constants, rank=len(written))
    assert shape_of_reshape(model) == written
    runs = both(model)
    for b, s in ((1, 1), (2, 5), (3, 4)):
        same(runs, x=RNG.normal(size=(b, s, 6)).astype(np.float32))


def test_a_batch_of_nothing_is_reshaped_too(both: Both) -> None:
    """What is left of nothing cannot be told: a size beside one that may be 0 goes on being computed."""
    model = reshaped(
        "twice = Mul (length, two) t = Concat <axis = 0> (batch, twice, three)",
        constants=", int64[1] two = {2}, int64[1] three = {3}",
    )
    assert "Concat" in operators(model)
    runs = both(model)
    for b, s in ((0, 4), (2, 0), (2, 3)):
        same(runs, x=RNG.normal(size=(b, s, 6)).astype(np.float32))


def test_two_sizes_that_are_not_the_operands_are_computed(both: Both) -> None:
    model = reshaped(
        "l = Mul (length, two) b3 = Mul (batch, three) t = Concat <axis = 0> (b3, l, at1)",
        constants=", int64[1] two = {2}, int64[1] three = {3}",
    )
    assert "Concat" in operators(model)
    runs = both(model)
    for b, s in ((0, 4), (2, 0), (2, 3), (1, 1)):
        same(runs, x=RNG.normal(size=(b, s, 6)).astype(np.float32))


EXPANDED = (
    "ones = ConstantOfShape <value = int64[1] {1}> (two) minus = Mul (ones, less) left = Equal (wanted, minus) "
    "target = Where (left, ones, wanted) e = Expand (x, target) y = Relu (e)"
)


@pytest.mark.parametrize("size", ["s", 4])
def test_what_exporters_write_for_an_expansion_is_understood(size: int | str) -> None:
    """A -1 stands for the operand's own size: 1 takes its place."""
    model = parse(
        f"g (float[b, {size}] u, float[1] x) => (float[m, n] y) <{ONES}, int64[1] two = {{2}}, "
        f"int64 less = {{-1}}> {{ wanted = Shape (u) {EXPANDED} }}"
    )
    result = simplified(model).graph.outputs[0]
    assert dims_of(result) == ("b", size)


def test_an_expansion_to_what_is_there_goes() -> None:
    model = parse(
        f"g (float[b, s] x) => (float[m, n] y) <{ONES}, int64[1] two = {{2}}, int64 less = {{-1}}> {{ "
        f"wanted = Shape (x) {EXPANDED} }}"
    )
    assert operators(model) == ["Relu"]


def test_a_difference_of_sizes_may_be_minus_one(both: Both) -> None:
    """Sizes are not negative, but what is computed of them can be."""
    model = parse(
        f"g (float[n] u, float[1] x) => (float[m] y) <{ONES}, int64[1] five = {{5}}, int64[1] less = {{-1}}, "
        "int64[1] ones = {1}> { shape = Shape (u) wanted = Sub (shape, five) left = Equal (wanted, less) "
        "target = Where (left, ones, wanted) e = Expand (x, target) y = Relu (e) }"
    )
    assert dims_of(simplified(model).graph.outputs[0]) != ("n - 5",)
    runs = both(model, dims={"n": 7})
    for n in (4, 6, 9):
        same(runs, u=np.zeros(n, np.float32), x=np.ones(1, np.float32))


def test_sizes_of_inputs_that_may_differ_are_compared_when_the_model_runs(both: Both) -> None:
    model = parse(
        f"g (float[n] u, float[k] v, float[1] x) => (float[m] y) <{ONES}, int64[1] three = {{3}}> {{ a = Shape (u) "
        "b = Shape (v) same = Equal (a, b) target = Where (same, three, a) e = Expand (x, target) y = Relu (e) }"
    )
    assert isinstance(simplified(model).graph, ir.Graph)
    runs = both(model)
    for n, k in ((2, 2), (2, 4), (3, 3)):
        same(runs, u=np.zeros(n, np.float32), v=np.zeros(k, np.float32), x=np.ones(1, np.float32))


@pytest.mark.parametrize(
    ("target", "goes"),
    [("t = Concat <axis = 0> (batch, length, six)", True), ("t = Concat <axis = 0> (length, batch, six)", False)],
)
def test_a_reshape_to_what_there_is_goes(both: Both, target: str, goes: bool) -> None:
    model = reshaped(target, constants=", int64[1] six = {6}")
    assert ("Reshape" not in operators(model)) == goes
    same(both(model), x=RNG.normal(size=(2, 5, 6)).astype(np.float32))


@pytest.mark.parametrize(
    ("first", "second", "left"),
    [
        ("{-1, 6}", "{2, -1}", ["Exp", "Reshape", "Relu"]),
        ("{0, 18}", "{2, 3, 6}", ["Exp", "Relu"]),
        ("{6, 6}", "{0, 2, 3}", ["Exp", "Reshape", "Reshape", "Relu"]),
    ],
    ids=["one", "none", "a size of the one between"],
)
def test_of_two_reshapes_one_is_left(both: Both, first: str, second: str, left: list[str]) -> None:
    rank = second.count(",") + 1
    axes = ", ".join("abc"[:rank])
    sizes = f"int64[2] first = {first}, int64[{rank}] second = {second}"
    model = parse(
        f"g (float[2, 3, 6] x) => (float[{axes}] y) <{sizes}>"
        " { e = Exp (x) p = Reshape (e, first) q = Reshape (p, second) y = Relu (q) }"
    )
    assert operators(model) == left
    same(both(model), x=RNG.normal(size=(2, 3, 6)).astype(np.float32))


APART = "p = Reshape (x, apart) q = Add (p, r)"
ADDED = {
    "rows and columns": (f"{APART} t = Add (q, s) y = Reshape (t, back)", ["Add", "Reshape", "Add"]),
    "the other way round": (
        "p = Reshape (x, apart) q = Add (r, p) t = Add (s, q) y = Reshape (t, back)",
        ["Add", "Reshape", "Add"],
    ),
    "one as large": ("p = Reshape (x, apart) t = Add (w, p) y = Reshape (t, back)", ["Reshape", "Add"]),
    "another reshape that is added": (
        "v = Reshape (z, apart) p = Reshape (x, apart) t = Add (v, p) y = Reshape (t, back)",
        ["Add"],
    ),
    "rows alone": (f"{APART} y = Reshape (q, back)", ["Reshape", "Add", "Reshape"]),
    "another shape behind it": (f"{APART} t = Add (q, s) y = Reshape (t, other)", ["Reshape", "Add", "Add", "Reshape"]),
    "fewer axes": ("p = Reshape (x, apart) q = Add (p, f) y = Reshape (q, back)", ["Reshape", "Add", "Reshape"]),
    "fewer axes and one as large": (
        "p = Reshape (x, apart) q = Add (p, f) t = Add (w, q) y = Reshape (t, back)",
        ["Add", "Reshape", "Add"],
    ),
    "a sum that is read": (
        f"{APART} t = Add (q, s) m = ReduceMax <keepdims = 0> (q) u = Reshape (t, back) y = Add (u, m)",
        ["Reshape", "Add", "Add", "ReduceMax", "Reshape", "Add"],
    ),
    "a product": ("p = Reshape (x, apart) t = Mul (w, p) y = Reshape (t, back)", ["Reshape", "Mul", "Reshape"]),
}


@pytest.mark.parametrize(("body", "left"), ADDED.values(), ids=ADDED)
def test_what_is_added_in_another_shape_is_added_in_its_own(both: Both, body: str, left: list[str]) -> None:
    given = {"x": (2, 6, 20), "z": (2, 6, 20), "r": (2, 6, 4, 1), "s": (2, 6, 1, 5), "w": (2, 6, 4, 5), "f": (4, 5)}
    used = read_in(body, given)
    inputs = ", ".join(f"float[{', '.join(map(str, size))}] {name}" for name, size in used.items())
    sizes = "int64[4] apart = {2, 6, 4, 5}, int64[3] back = {2, 6, 20}, int64[3] other = {12, 4, 5}"
    model = parse(f"g ({inputs}) => (float[a, b, c] y) <{sizes}> {{ {body} }}")
    assert sorted(operators(model)) == sorted(left)
    same(both(model), **{name: RNG.normal(size=size).astype(np.float32) for name, size in used.items()})
