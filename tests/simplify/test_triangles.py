"""Constant masks of later keys are comparisons of positions, and no other constants are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from fusion_cli.sessions import open_model
from fusion_cli.simplify import simplify
from tests.helpers.graphs import parse

SIZE = 8
SEEN = np.tri(SIZE, dtype=np.bool_)
NUMBERS = (
    "int64[1] none = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[1] five = {5}, "
    "int64[1] last = {-1}, int64[2] nones = {0, 0}, int64[2] both = {2, 3}, "
    "float zero = {0.0}, float unit = {1.0}, float much = {10000.0}, float low = {-65504.0}"
)
CUT = "rows = Slice (kept, none, five, two) part = Slice (rows, none, five, three)"
OPEN = """shape = Shape (x) end = Slice (shape, two, three)
    rows = Slice (kept, none, end, two) part = Slice (rows, none, end, three)"""


def model_of(body: str, kept: np.ndarray, x: str = "float[2, 3, 5, 5] x", opset: int = 18) -> onnx.ModelProto:
    proto = parse(f"g ({x}) => (float[a, b, c, d] y) <{NUMBERS}> {{ {body} }}", opset=opset)
    proto.graph.initializer.append(numpy_helper.from_array(kept, "kept"))
    return proto


def rules_of(model: onnx.ModelProto, sizes: Mapping[str, int] = {}) -> set[str]:
    """The rules that were applied; what is left computes what the model did, to the last bit."""
    found = simplify(ir.from_proto(model), lambda: ir.from_proto(model))
    dims = [d.dim_value or sizes[d.dim_param] for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    (want,), (got,) = (
        open_model(proto.SerializeToString(), use="reference").run({"x": x}).values()
        for proto in (model, ir.to_proto(found.model))
    )
    np.testing.assert_array_equal(got, want)
    return {r.rule for r in found.algebra}


@pytest.mark.parametrize(
    ("kept", "body"),
    [
        (SEEN.astype(np.float32), f"{CUT} h = Equal (part, zero) y = Where (h, low, x)"),
        (SEEN, f"{CUT} y = Where (part, x, low)"),
        (~SEEN, f"{CUT} y = Where (part, low, x)"),
        (~SEEN, f"{CUT} n = Not (part) y = Where (n, x, low)"),
        (np.where(SEEN, 0, -np.inf).astype(np.float32), f"{CUT} y = Add (x, part)"),
        (SEEN.astype(np.float32), f"{CUT} h = Sub (unit, part) m = Mul (h, much) y = Sub (x, m)"),
        (SEEN.astype(np.uint8), f"{CUT} c = Cast <to = 9> (part) y = Where (c, x, low)"),
    ],
    ids=["ones", "seen", "hidden", "turned", "added", "computed", "bytes"],
)
def test_what_is_made_of_a_triangle_is_compared(kept: np.ndarray, body: str) -> None:
    assert "TriangleMask" in rules_of(model_of(body, kept[None, None]))


@pytest.mark.parametrize("length", [1, 2, 5, SIZE])
def test_it_is_cut_to_any_length(length: int) -> None:
    model = model_of(f"{OPEN} y = Where (part, x, low)", SEEN[None, None], "float[2, 3, n, n] x")
    assert "TriangleMask" in rules_of(model, {"n": length})


def test_rectangles_have_a_triangle_at_their_start() -> None:
    kept = np.tri(SIZE, SIZE + 2, dtype=np.bool_)[None, None]
    body = "rows = Slice (kept, none, three, two) y = Where (rows, x, low)"
    assert "TriangleMask" in rules_of(model_of(body, kept, f"float[2, 1, 3, {SIZE + 2}] x"))


OTHERS = {
    "from another place on": (SEEN, "r = Slice (kept, one, last, two) p = Slice (r, none, five, three)"),
    "other keys": (SEEN, "r = Slice (kept, none, five, two) p = Slice (r, three, n8, three)"),
    "the diagonal hidden": (np.tri(SIZE, k=-1, dtype=np.bool_), CUT.replace("part", "p")),
    "one more seen": (SEEN | (np.arange(SIZE**2).reshape(SIZE, SIZE) == 4), CUT.replace("part", "p")),
    "one fewer": (SEEN & (np.arange(SIZE**2).reshape(SIZE, SIZE) != 4 * SIZE + 3), CUT.replace("part", "p")),
    "all seen": (np.ones((SIZE, SIZE), np.bool_), CUT.replace("part", "p")),
    "turned over": (SEEN.T.copy(), CUT.replace("part", "p")),
}


@pytest.mark.parametrize(("kept", "cut"), OTHERS.values(), ids=OTHERS)
def test_other_masks_are_read(kept: np.ndarray, cut: str) -> None:
    rows = SIZE - 2 if "one, last" in cut else 5
    model = model_of(f"{cut} y = Where (p, x, low)", kept[None, None], f"float[2, 3, {rows}, 5] x")
    model.graph.initializer.append(numpy_helper.from_array(np.array([SIZE]), "n8"))
    assert "TriangleMask" not in rules_of(model)


def test_a_cut_of_open_size_from_another_place_on_is_read() -> None:
    cut = OPEN.replace(
        "rows = Slice (kept, none, end, two)", "next = Add (end, one) rows = Slice (kept, one, next, two)"
    )
    model = model_of(f"{cut} y = Where (part, x, low)", SEEN[None, None], "float[2, 3, n, n] x")
    assert "TriangleMask" not in rules_of(model, {"n": 5})


def test_a_cut_of_two_axes_at_once_is_read() -> None:
    cut = OPEN.partition("rows")[0] + "ends = Concat <axis = 0> (end, end) part = Slice (kept, nones, ends, both)"
    model = model_of(f"{cut} y = Where (part, x, low)", SEEN[None, None], "float[2, 3, n, n] x")
    assert "TriangleMask" not in rules_of(model, {"n": 5})


@pytest.mark.parametrize("others", [(2, 1), (3,), (2, 3)])
def test_a_mask_for_each_sequence_or_head_is_compared(others: tuple[int, ...]) -> None:
    kept = np.broadcast_to(SEEN[:5, :5], (*others, 5, 5))
    assert "TriangleMask" in rules_of(model_of("y = Where (kept, x, low)", np.ascontiguousarray(kept)))


def test_masks_that_differ_are_read() -> None:
    kept = np.stack([SEEN, SEEN, SEEN | (np.arange(SIZE) == 2)])[None]
    assert "TriangleMask" not in rules_of(model_of(f"{CUT} y = Where (part, x, low)", kept))


def test_what_else_reads_it_keeps_the_matrix() -> None:
    body = f"{CUT} f = Cast <to = 1> (part) y = MatMul (x, f)"
    assert "TriangleMask" not in rules_of(model_of(body, SEEN[None, None]))


def test_older_opsets_keep_it() -> None:
    assert "TriangleMask" not in rules_of(model_of("y = Where (kept, x, low)", SEEN[None, None, :5, :5], opset=11))


def test_readers_share_one_comparison() -> None:
    body = f"{CUT} h = Not (part) w = Where (h, low, x) e = Exp (w) y = Where (h, zero, e)"
    model = model_of(body, SEEN[None, None])
    assert "TriangleMask" in rules_of(model)
    left = [n.op_type for n in simplify(ir.from_proto(model), lambda: ir.from_proto(model)).model.graph]
    assert left == ["LessOrEqual", "Not", "Where", "Exp", "Where"]
