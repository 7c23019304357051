"""What is computed between convolutions besides: what belongs to them, and what does not."""

from __future__ import annotations

import pytest

from tests.helpers.graphs import matches, parse

WEIGHTS: dict[str, tuple[int, ...]] = {
    "w1": (6, 1, 3, 3),
    "w": (6, 6, 1, 1),
    "w2": (8, 6, 1, 1),
    "one": (6, 1, 1, 1),
    "s": (6,),
    "up": (6, 12),
    "down": (12, 6),
}
BLOCK = """b = Conv (x, w) c = Conv <pads = [1, 1, 1, 1], group = 6> (b, w1) t = Transpose <perm = [0, 2, 3, 1]> (c)
    n = LayerNormalization (t, s) u = MatMul (n, up) r = Relu (u) d = MatMul (r, down)
    f = Transpose <perm = [0, 3, 1, 2]> (d) e = Add (x, f) y = Conv (e, w2)"""
ALL = sorted(
    ["Conv", "Conv", "Transpose", "LayerNormalization", "MatMul", "Relu", "MatMul", "Transpose", "Add", "Conv"]
)


def largest(body: str) -> list[str]:
    """The operators of the largest region of convolutions."""
    model = parse(f"g (float[2, 6, 5, 5] x, float[12, 6] z) => (float[2, 8, 5, 5] y) {{ {body} }}", WEIGHTS)
    found = matches(model, "Convolutions").regions
    return sorted(max(([n.op_type for n in r.nodes] for r in found), key=len, default=[]))


def test_what_is_between_two_turns_belongs_to_the_convolutions() -> None:
    assert largest(BLOCK) == ALL


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("perm = [0, 3, 1, 2]", "perm = [0, 3, 2, 1]"),
        ("MatMul (r, down)", "MatMul (r, z)"),
        ("LayerNormalization (t, s)", "Softmax <axis = 1> (t)"),
    ],
    ids=["turned to something else", "a product of two values", "rows of another axis"],
)
def test_what_is_not_back_where_it_was_does_not(old: str, new: str) -> None:
    assert old in BLOCK
    assert "MatMul" not in largest(BLOCK.replace(old, new))


SQUEEZED = "c = Conv (x, w) m = {} a = Conv (m, {}) g = Sigmoid (a) p = Mul (c, g) y = Conv (p, w2)"


@pytest.mark.parametrize(
    ("op", "belongs"),
    [
        ("GlobalAveragePool (c)", True),
        ("GlobalMaxPool (c)", True),
        ("ReduceMean <axes = [2, 3]> (c)", True),
        ("ReduceMean <axes = [-1, -2], keepdims = 1> (c)", True),
        ("ReduceMean <axes = [1]> (c)", False),
        ("ReduceMean <axes = [3]> (c)", False),
        ("AveragePool <kernel_shape = [5, 5]> (c)", True),
        ("MaxPool <kernel_shape = [5, 5]> (c)", True),
    ],
)
def test_one_number_of_several_positions_belongs_to_the_convolutions(op: str, belongs: bool) -> None:
    """Squeeze and excitation."""
    filters = "one" if "[1]" in op else "w"
    assert (op.split()[0] in largest(SQUEEZED.format(op, filters))) == belongs


SHUFFLED = """b = Conv (x, w) c = Relu (b) {} y = Conv (f, w2)"""
SHUFFLE = "r = Reshape (c, apart) t = Transpose <perm = [0, 2, 1, 3, 4]> (r) f = Reshape (t, whole)"


@pytest.mark.parametrize(
    ("body", "belongs"),
    [
        (SHUFFLE, True),
        (SHUFFLE.replace("[0, 2, 1, 3, 4]", "[0, 2, 1, 4, 3]"), False),
        (SHUFFLE.replace("apart", "lines").replace("[0, 2, 1, 3, 4]", "[0, 1, 3, 2, 4]"), False),
        (SHUFFLE.replace("apart", "lines"), False),
        ("p, q = Split <axis = 1> (c, halves) f = Concat <axis = -3> (q, p)", True),
        ("p, q = Split <axis = 2> (c, high) f = Concat <axis = 2> (q, p)", False),
        (
            "p = Slice (c, none, three, first) q = Slice (c, three, six, first) f = Concat <axis = 1> (q, p, q)",
            True,
        ),
        ("p = Slice (c, none, three, n) q = Slice (c, three, six, n) f = Concat <axis = 2> (q, p)", False),
    ],
    ids=[
        "shuffled",
        "turned besides",
        "lines, exchanged",
        "lines and channels, exchanged",
        "split",
        "split by lines",
        "cut",
        "cut where is not known",
    ],
)
def test_channels_in_another_order_belong_to_the_convolutions(body: str, belongs: bool) -> None:
    integers = "int64[5] apart = {2, 3, 2, 5, 5}, int64[5] lines = {2, 6, 5, 1, 5}, int64[4] whole = {2, 6, 5, 5}, "
    integers += "int64[2] halves = {3, 3}, int64[2] high = {2, 3}, int64[1] none = {0}, int64[1] three = {3}, "
    integers += "int64[1] six = {6}, int64[1] first = {1}"
    model = parse(
        f"g (float[2, 6, 5, 5] x, int64[1] n) => (float[2, 8, 5, 5] y) <{integers}> {{ {SHUFFLED.format(body)} }}",
        WEIGHTS,
    )
    found = {n.op_type for r in matches(model, "Convolutions").regions for n in r.nodes}
    assert bool(found & {"Reshape", "Split", "Slice"}) == belongs
