"""Attention in windows: what lies between is computed in their order, and rows are looked up once from one to the next;
where rows do not come back, or what lies between knows where they are, all stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest
from onnx import numpy_helper

from fusion_cli.simplify import Simplified
from fusion_cli.simplify.algebra import moves
from tests.helpers.algebra_models import model_of, operators, same

HEIGHT, WIDTH, WIDE, ROWS = 4, 6, 8, 6
"""An image of four windows, 2 by 3, of rows of eight elements."""
IMAGE = f"float[n, {HEIGHT}, {WIDTH}, {WIDE}] x"
OUT = "float[a, b, c, d] y"
ROLLED = np.roll(np.arange(HEIGHT * WIDTH), 7)
CONSTANTS: Mapping[str, object] = {
    "apart": [-1, 2, 2, 2, 3, WIDE],
    "rows": [-1, ROWS, WIDE],
    "whole": [-1, HEIGHT, WIDTH, WIDE],
    "tokens": [-1, HEIGHT * WIDTH, WIDE],
    "rolled": ROLLED,
    "back": np.argsort(ROLLED),
    "matrix": [-1, WIDE],
    "numbered": np.roll(np.arange(2 * HEIGHT * WIDTH), 5).reshape(2 * HEIGHT, WIDTH) - HEIGHT,
    "twice": np.arange(2 * HEIGHT * WIDTH).reshape(2 * HEIGHT, WIDTH) // 2,
    "none": [0],
    "one": [1],
    "two": [2],
    "minus": [-1],
    "end": [2**63 - 1],
    "low": [-(2**63)],
    "six": [WIDTH],
    "wide": [WIDE],
    "pairs": [-1, 2],
    "grid": [-1, WIDE, 2, 2, 3, 2],
    "mixed": [-1, 2, WIDE, 12],
    "other": [-1, 2, WIDE, 2, 3, 2],
}
FLOATS = {
    "scale": (WIDE,),
    "shift": (1, 1, 1, WIDE),
    "weight": (WIDE, WIDE),
    "places": (HEIGHT, WIDTH, 1),
    "wider": (WIDE, 2 * WIDE),
    "smaller": (2 * WIDE, WIDE),
}
RNG = np.random.default_rng(8)


def into(source: str, to: str, shifted: bool = False) -> str:
    """Windows of an image, whose rows are shifted before."""
    shift = f"{to}f = Reshape ({source}, tokens) {to}s = Gather <axis = 1> ({to}f, rolled) "
    return (shift if shifted else "") + (
        f"{to}p = Reshape ({f'{to}s' if shifted else source}, apart) "
        f"{to}t = Transpose <perm = [0, 1, 3, 2, 4, 5]> ({to}p) {to} = Reshape ({to}t, rows) "
    )


def back(source: str, to: str, shifted: bool = False) -> str:
    """The image of windows."""
    taken = f"{to}p = Reshape ({source}, apart) {to}t = Transpose <perm = [0, 1, 3, 2, 4, 5]> ({to}p) "
    if not shifted:
        return taken + f"{to} = Reshape ({to}t, whole) "
    return (
        taken
        + f"{to}f = Reshape ({to}t, tokens) {to}s = Gather <axis = 1> ({to}f, back) {to} = Reshape ({to}s, whole) "
    )


def layer(source: str, to: str, shifted: bool = False) -> str:
    """A norm, something in windows, a residual, and something row by row with another."""
    return (
        f"{to}n = LayerNormalization <axis = 3> ({source}, scale) "
        + into(f"{to}n", f"{to}w", shifted)
        + f"{to}a = Softmax <axis = 1> ({to}w) "
        + back(f"{to}a", f"{to}b", shifted)
        + f"{to}r = Add ({source}, {to}b) {to}m = LayerNormalization <axis = -1> ({to}r, scale) "
        f"{to}u = MatMul ({to}m, wider) {to}g = Sigmoid ({to}u) {to}d = MatMul ({to}g, smaller) "
        f"{to}c = Add ({to}d, shift) {to} = Add ({to}c, {to}r) "
    )


def simplified(body: str, inputs: str = IMAGE, outputs: str = OUT) -> Simplified:
    model = model_of(body, inputs, outputs=outputs)
    del model.graph.initializer[:]
    arrays = {k: np.asarray(v, np.int64) for k, v in CONSTANTS.items()}
    arrays |= {k: RNG.normal(size=s).astype(np.float32) for k, s in FLOATS.items()}
    model.graph.initializer.extend(numpy_helper.from_array(a, k) for k, a in arrays.items())
    return same(model)


def places(found: Simplified) -> dict[str, int]:
    return {r.rule: r.places for r in found.algebra}


def left(found: Simplified) -> Counter[str]:
    return Counter(operators(found).split())


@pytest.mark.parametrize("inputs", [IMAGE, IMAGE.replace("n", "2"), IMAGE.replace("n", "1")], ids=["any", "two", "one"])
def test_layers_of_windows_look_rows_up_where_these_change(inputs: str) -> None:
    body = "e = Exp (x) " + layer("e", "f") + layer("f", "g", shifted=True) + layer("g", "h") + "y = Relu (h)"
    found = simplified(body, inputs)
    counts = left(found)
    assert places(found)["WindowOrder"] == 3
    assert (counts["Transpose"], counts["Gather"]) == (2, 2)  # at both ends, and between
    names = operators(found).split()
    assert "Transpose" in names[: names.index("LayerNormalization")]


def test_layers_of_the_same_windows_move_nothing_between() -> None:
    found = simplified("e = Exp (x) " + layer("e", "f") + layer("f", "g") + "y = Relu (g)")
    assert places(found)["WindowOrder"] == 2
    assert (left(found)["Transpose"], left(found)["Gather"]) == (2, 0)


def test_sums_of_sums_move_nothing_between() -> None:
    def attention(source: str, to: str) -> str:
        norm = f"{to}n = LayerNormalization ({source}, scale) "
        return norm + into(f"{to}n", f"{to}w") + f"{to}a = Softmax <axis = 1> ({to}w) " + back(f"{to}a", f"{to}b")

    body = (
        "e = Exp (x) " + attention("e", "f") + "g = Add (e, fb) " + attention("g", "h") + "i = Add (hb, g) y = Relu (i)"
    )
    found = simplified(body)
    assert places(found)["WindowOrder"] == 2
    assert (left(found)["Transpose"], left(found)["Gather"]) == (2, 0)


def test_norms_behind_what_windows_give_are_of_windows() -> None:
    """As in Swin v2, which has no norm before."""
    body = (
        "e = Exp (x) "
        + into("e", "w")
        + "s = Softmax <axis = 1> (w) "
        + back("s", "b")
        + "m = LayerNormalization (b, scale) r = Add (m, e) y = Relu (r)"
    )
    found = simplified(body)
    assert places(found) == {"WindowOrder": 1}
    names = operators(found).split()
    assert names.index("LayerNormalization") < names.index("Add") < len(names) - 1 - names[::-1].index("Transpose")


def residual(before: str, between: str, after: str, total: str = "v = Add (e, b) y = Relu (v)") -> str:
    return f"e = Exp (x) {before} {between} {after} {total}"


SAME = "s = Softmax <axis = 1> (w) "
OTHERS = {
    "not put back": residual(into("e", "w"), SAME, back("s", "b", shifted=True)),
    "of another value": residual(into("e", "w"), SAME, back("s", "b"), "q = Sin (x) v = Add (q, b) y = Relu (v)"),
    "read before it is put back": residual(
        into("e", "w"),
        SAME,
        back("s", "b"),
        "v = Add (e, b) r = Relu (v) u = Exp (bt) h = ReduceSum (u) y = Add (r, h)",
    ),
    "a norm that is read": residual(
        "k = Mul (e, scale) " + into("k", "w"), SAME, back("s", "b"), "v = Add (e, b) r = Relu (v) y = Mul (r, k)"
    ),
    "of two values": residual("q = Sin (x) k = Mul (e, q) " + into("k", "w"), SAME, back("s", "b")),
    "numbers by place": residual("k = Mul (e, places) " + into("k", "w"), SAME, back("s", "b")),
    "the result": residual(into("e", "w"), SAME, back("s", "b"), "y = Add (e, b)"),
}


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS.keys())
def test_other_sums_are_left(body: str) -> None:
    assert "WindowOrder" not in places(simplified(body))


def test_a_sequence_that_is_put_first_is_left() -> None:
    body = (
        "e = Exp (x) t = Transpose <perm = [1, 0, 2]> (e) s = Softmax <axis = 0> (t) "
        "b = Transpose <perm = [1, 0, 2]> (s) v = Add (e, b) y = Relu (v)"
    )
    assert not places(simplified(body, "float[3, 24, 8] x", "float[a, b, c] y"))


@pytest.mark.parametrize(
    ("total", "last"),
    [
        ("v = Add (e, b) o = MatMul (v, weight) r = Relu (o) y = Exp (r)", "Relu Reshape Transpose Reshape Exp"),
        ("v = Add (e, b) o = Mul (v, places) r = Relu (o) y = Exp (r)", "Add Reshape Transpose Reshape Mul Relu Exp"),
        (
            "v = Add (e, b) r = Neg (v) o = Mul (v, places) y = Mul (o, r)",
            "Add Reshape Transpose Reshape Neg Mul Mul",
        ),
        (
            "v = Add (e, b) u = MatMul (v, wider) r = Relu (u) y = Exp (r)",
            "Add Reshape Transpose Reshape MatMul Relu Exp",
        ),
    ],
    ids=["row by row", "by place", "read twice", "wider"],
)
def test_rows_are_put_back_as_late_as_may_be(total: str, last: str) -> None:
    found = simplified(residual(into("e", "w"), SAME, back("s", "b"), total))
    assert places(found) == {"WindowOrder": 1}
    assert Counter(operators(found).split()[-len(last.split()) :]) == Counter(last.split())


GRID = (
    "u = Slice (r, none, end, one, two) l = Slice (r, one, end, one, two) "
    "a = Slice (u, none, end, two, two) b = Slice (l, none, end, two, two) "
    "c = Slice (u, one, end, two, two) d = Slice (l, one, end, two, two) "
)
PATCHES = {
    "by column": (GRID + "y = Concat <axis = 3> (a, b, c, d)", IMAGE, True),
    "by row": (GRID + "y = Concat <axis = -1> (a, c, b, d)", IMAGE, True),
    "in no order": (GRID + "y = Concat <axis = 3> (a, b, d, c)", IMAGE, False),
    "not all": (GRID + "y = Concat <axis = 3> (a, b, c)", IMAGE, False),
    "one twice": (GRID + "y = Concat <axis = 3> (a, b, c, c)", IMAGE, False),
    "of two images": (
        GRID.replace("l = Slice (r", "f = Exp (r) l = Slice (f") + "y = Concat <axis = 3> (a, b, c, d)",
        IMAGE,
        False,
    ),
    "along another axis": (GRID + "y = Concat <axis = 1> (a, b, c, d)", IMAGE, False),
    "an odd size": (GRID + "y = Concat <axis = 3> (a, b, a, b)", IMAGE.replace("6", "7"), False),
    "few": (GRID + "y = Concat <axis = 3> (a, b, c, d)", IMAGE.replace("8", "4"), False),
}


@pytest.mark.parametrize(("body", "inputs", "joined"), PATCHES.values(), ids=PATCHES.keys())
def test_patches_are_joined_by_a_transpose(body: str, inputs: str, joined: bool) -> None:
    found = simplified("r = Relu (x) " + body, inputs)
    assert ("SliceTranspose" in places(found)) == joined
    assert (left(found)["Slice"] == 0) == joined


COMPUTED = "m = ReduceMax <keepdims = 0> (x) s = Sigmoid (m) c = Ceil (s) i = Cast <to = 7> (c) k = Reshape (i, one) "
"""A number that is one, which nobody knows before."""


@pytest.mark.parametrize(("axis", "step"), [("k", "one"), ("one", "t")], ids=["axis", "step"])
def test_patches_are_left_where_it_is_not_known_what_is_cut(axis: str, step: str) -> None:
    body = (
        f"{COMPUTED} t = Add (k, k) a = Slice (x, none, end, two, two) b = Slice (x, one, end, two, two) "
        f"d = Slice (a, none, end, {axis}, {step}) e = Slice (b, none, end, {axis}, {step}) "
        "y = Concat <axis = 3> (d, e)"
    )
    assert "SliceTranspose" not in places(simplified(body, IMAGE.replace("n", "2")))


def test_a_slice_of_all_goes_unless_it_turns_it_round() -> None:
    assert left(simplified("s = Slice (x, none, end, two) y = Relu (s)")) == Counter(Relu=1)
    assert left(simplified("s = Slice (x, minus, low, two, minus) y = Relu (s)")) == Counter(Slice=1, Relu=1)


GRID = (
    "w = Reshape (r, apart) i = Transpose <perm = [0, 5, 1, 3, 2, 4]> (w) g = Reshape (i, {}) "
    "t = Transpose <perm = [0, 3, 5, 2, 4, 1]> (g) y = Reshape (t, rows) "
)
"""From windows of an image to a grid's, its channels first in between, as MaxViT has them."""
BEFORE_EXP = "Relu Reshape Transpose Exp Reshape"
TURNED = "v = Reshape (t, whole) u = Transpose <perm = [0, 2, 1, 3]> (v) y = Reshape (u,"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (into("r", "y", shifted=True), "Relu Reshape Gather Reshape"),
        (into("r", "y"), "Relu Reshape Transpose Reshape"),
        ("q = Reshape (r, tokens) g = Gather <axis = 1> (q, rolled) y = Gather <axis = 1> (g, back)", "Relu Reshape"),
        (
            "q = Reshape (r, tokens) e = Exp (q) g = Gather <axis = 1> (e, rolled) h = Gather <axis = 1> (g, back) "
            "y = Exp (h)",
            "Relu Reshape Exp Exp",
        ),
        ("q = Reshape (r, tokens) y = Gather <axis = 1> (q, rolled)", "Relu Reshape Gather"),
        (GRID.format("grid"), "Relu Reshape Gather Reshape"),
        (GRID.format("other").replace("3, 5, 2, 4, 1]", "3, 5, 1, 4, 2]"), "Relu" + 3 * " Reshape" + 2 * " Transpose"),
        ("q = Transpose <perm = [0, 3, 1, 2]> (r) y = Reshape (q, rows)", "Relu Transpose Reshape"),
        (
            "q = Transpose <perm = [0, 1, 3, 2]> (r) m = Reshape (q, mixed) t = Transpose <perm = [0, 1, 3, 2]> (m) "
            "y = Reshape (t, rows)",
            "Relu Transpose Reshape Transpose Reshape",
        ),
        (
            GRID.replace("g = Reshape (i,", "e = Exp (i) g = Reshape (e,")
            .replace("y = Reshape (t,", TURNED)
            .format("grid"),
            BEFORE_EXP + 2 * " Transpose Reshape",
        ),
    ],
    ids=[
        "windows of rolled rows",
        "windows",
        "as before",
        "as before in the same shape",
        "rolled",
        "a grid",
        "no rows on the way",
        "no rows",
        "other rows on the way",
        "rows along another axis before",
    ],
)
def test_rows_are_looked_up_once(body: str, expected: str) -> None:
    found = simplified("r = Relu (x) " + body, outputs="float[a, b, c] y")
    assert left(found) == Counter(expected.split())


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (into("r", "y", shifted=True), "Relu Reshape Gather"),
        (into("r", "y"), "Relu Reshape Transpose Reshape"),
        (
            f"{into('r', 'w', shifted=True)} e = Exp (w) {back('e', 'b', shifted=True)} {into('b', 'y')}",
            "Relu Reshape Gather Exp Reshape Gather",
        ),
        # Rows that have numbers by now, in an order that windows are made of.
        (
            "q = Reshape (r, matrix) g = Gather (q, numbered) p = Reshape (g, apart) "
            "t = Transpose <perm = [0, 1, 3, 2, 4, 5]> (p) y = Reshape (t, rows)",
            "Relu Reshape Gather",
        ),
        ("q = Reshape (r, matrix) g = Gather (q, twice) y = Reshape (g, rows)", "Relu Reshape Gather"),
    ],
    ids=["windows of rolled rows", "windows", "from windows to others", "numbered rows", "rows that come twice"],
)
def test_rows_have_numbers_among_all_where_it_is_known_how_many_there_are(body: str, expected: str) -> None:
    found = simplified("r = Relu (x) " + body, IMAGE.replace("n", "2"), "float[a, b, c] y")
    assert left(found) == Counter(expected.split())
    gathers = [node for node in found.model.graph if node.op_type == "Gather"]
    assert all(node.attributes.get_int("axis", 0) == 0 for node in gathers)


def test_rows_are_looked_up_by_blocks_where_numbers_for_all_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "_MOST_NUMBERED", 47)
    found = simplified("r = Relu (x) " + into("r", "y", shifted=True), IMAGE.replace("n", "2"), "float[a, b, c] y")
    assert left(found) == Counter("Relu Reshape Gather Reshape".split())


PADDED = (
    "{0}s = Shape ({0}) {0}h = Gather ({0}s, one) {0}m = Mod ({0}h, two) "
    "{0}l = Concat <axis = 0> (none, none, none, none, none, {0}m, none, none) {0}e = Reshape ({0}l, pairs) "
    "{0}r = Slice ({0}e, minus, low, none, minus) {0}t = Transpose <perm = [1, 0]> ({0}r) {0}c = Reshape ({0}t, minus) "
    "{1} = Pad ({0}, {0}c) "
)
"""An odd height is padded, by what PyTorch's pairs from the last axis on become."""


def test_sizes_behind_pads_of_nothing_are_known() -> None:
    """As TorchScript exports Swin: what is missing of whole patches is computed of sizes that such a Pad gave."""
    body = (
        PADDED.format("x", "p")
        + PADDED.format("p", "q")
        + "s = Shape (q) v = Gather (s, one) d = Div (v, two) l = Concat <axis = 0> (minus, d, two, six, wide) "
        "w = Reshape (q, l) y = Exp (w)"
    )
    found = simplified(body, outputs="float[a, b, c, d, e] y")
    assert left(found) == Counter(Reshape=1, Exp=1)
    assert places(found) == {"PadNothing": 2}
