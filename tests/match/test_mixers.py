"""What is computed between convolutions besides: what belongs to them, and what does not."""

from __future__ import annotations

import onnx
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


def taken(model: onnx.ModelProto) -> set[str]:
    """The operators of all regions of convolutions."""
    return {n.op_type for r in matches(model, "Convolutions").regions for n in r.nodes}


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


@pytest.mark.parametrize(
    ("op", "belongs"),
    [
        ("ReduceL2 <axes = [1, 2]> (r)", True),
        ("ReduceMean <axes = [-2, -3], keepdims = 1> (r)", True),
        ("ReduceMax <axes = [2]> (r)", False),
        ("ReduceLogSum <axes = [1, 2]> (r)", False),
    ],
)
def test_all_positions_of_channels_that_are_last_belong_to_them(op: str, belongs: bool) -> None:
    """What ConvNeXt V2 norms its channels by."""
    normed = f"r = Relu (u) g = {op} k = ReduceMean <axes = [3]> (g) q = Div (g, k) h = Mul (r, q)"
    block = BLOCK.replace("r = Relu (u)", normed).replace("MatMul (r, down)", "MatMul (h, down)")
    assert (op.split()[0] in largest(block)) == belongs
    if belongs:
        assert len(largest(block)) == len(ALL) + 4


GATED = """b = Conv (x, w) t = Transpose <perm = [0, 2, 3, 1]> (b) u = MatMul (t, up) {}
    f = Transpose <perm = [0, 3, 1, 2]> (c) d = Conv <pads = [1, 1, 1, 1], group = 6> (f, w1)
    l = Transpose <perm = [0, 2, 3, 1]> (d) {} m = MatMul (j, down)
    e = Transpose <perm = [0, 3, 1, 2]> (m) y = Conv (e, w2)"""


@pytest.mark.parametrize(
    ("cut", "joined", "belongs"),
    [
        ("g, c = Split <axis = -1> (u, halves)", "j = Concat <axis = 3> (g, l)", True),
        ("g = Slice (u, none, six, last) c = Slice (u, six, twelve, last)", "j = Concat <axis = -1> (g, l)", True),
        ("g, c = Split <axis = 3> (u, n)", "j = Concat <axis = 3> (g, l)", False),
    ],
    ids=["split", "cut", "split where is not known"],
)
def test_channels_that_are_last_are_cut_and_joined(cut: str, joined: str, belongs: bool) -> None:
    """MambaOut: some of a product's columns are convolved."""
    integers = (
        "int64[2] halves = {6, 6}, int64[1] none = {0}, int64[1] six = {6}, int64[1] twelve = {12}, int64[1] last = {3}"
    )
    text = (
        f"g (float[2, 6, 5, 5] x, int64[2] n) => (float[2, 8, 5, 5] y) <{integers}> {{ {GATED.format(cut, joined)} }}"
    )
    found = taken(parse(text, WEIGHTS))
    assert ("Split" in found or "Slice" in found) == belongs


@pytest.mark.parametrize(
    ("body", "belongs"),
    [
        ("f = Transpose <perm = [0, 3, 1, 2]> (x) c = Conv (f, w) y = Transpose <perm = [0, 2, 3, 1]> (c)", True),
        ("f = Transpose <perm = [0, 3, 2, 1]> (x) c = Conv (f, w) y = Transpose <perm = [0, 3, 2, 1]> (c)", False),
        ("c = Conv (x, w) y = Relu (c)", False),
    ],
    ids=["turned over", "turned to something else", "not turned"],
)
def test_one_convolution_that_the_model_turns_over_is_a_region(body: str, belongs: bool) -> None:
    assert bool(taken(parse(f"g (float[2, 6, 6, 6] x) => (float[2, 6, 6, 6] y) {{ {body} }}", WEIGHTS))) == belongs


SQUEEZED = "c = Conv (x, w) m = {} a = Conv (m, {}) g = Sigmoid (a) p = Mul (c, g) y = Conv (p, w2)"


@pytest.mark.parametrize(
    ("op", "belongs"),
    [
        ("GlobalAveragePool (c)", True),
        ("GlobalMaxPool (c)", True),
        ("ReduceMean <axes = [2, 3]> (c)", True),
        ("ReduceMean <axes = [-1, -2], keepdims = 1> (c)", True),
        ("ReduceL2 <axes = [2, 3]> (c)", True),
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
        ("p = Slice (c, n, three, first) q = Slice (c, three, six, first) f = Concat <axis = 1> (p, q)", False),
        (SHUFFLE.replace("whole", "long"), False),
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
        "cut from where is not known",
        "another image",
        "cut along what is not known",
    ],
)
def test_channels_in_another_order_belong_to_the_convolutions(body: str, belongs: bool) -> None:
    integers = "int64[5] apart = {2, 3, 2, 5, 5}, int64[5] lines = {2, 6, 5, 1, 5}, int64[4] whole = {2, 6, 5, 5}, "
    integers += "int64[4] long = {2, 6, 25, 1}, "
    integers += "int64[2] halves = {3, 3}, int64[2] high = {2, 3}, int64[1] none = {0}, int64[1] three = {3}, "
    integers += "int64[1] six = {6}, int64[1] first = {1}"
    model = parse(
        f"g (float[2, 6, 5, 5] x, int64[1] n) => (float[2, 8, a, b] y) <{integers}> {{ {SHUFFLED.format(body)} }}",
        WEIGHTS,
    )
    found = taken(model)
    assert bool(found & {"Reshape", "Split", "Slice"}) == belongs


@pytest.mark.parametrize(
    ("grown", "belongs"),
    [
        ("d = DepthToSpace <blocksize = 2> (c)", True),
        ("d = ConvTranspose <strides = [2, 2]> (c, t)", True),
        ("d = ConvTranspose <strides = [1, 1]> (c, t)", False),
        ("d = ConvTranspose <strides = [2, 2]> (c, g)", False),
        ("d = SpaceToDepth <blocksize = 2> (c)", False),
    ],
    ids=["pixels of channels", "one pixel makes four", "two make one", "weights that are given", "channels of pixels"],
)
def test_images_of_more_pixels_belong_to_the_convolutions(grown: str, belongs: bool) -> None:
    weights = WEIGHTS | {"t": (8, 2, 2, 2), "v": (3, 2, 1, 1)}
    body = f"b = Conv (x, w) c = Conv (b, w2) {grown} e = Relu (d) y = Conv (e, v)"
    text = f"g (float[2, 6, 6, 6] x, float[8, 2, 2, 2] g) => (float[2, 3, h, k] y) {{ {body} }}"
    assert (grown.split()[2] in taken(parse(text, weights))) == belongs


@pytest.mark.parametrize(
    ("pads", "mode", "belongs"),
    [
        ("{0, 0, 1, 2, 0, 0, 3, 0}", "reflect", True),
        ("{0, 0, 1, 2, 0, 0, 3, 0}", "edge", True),
        ("{0, 0, 1, 2, 0, 0, 3, 0}", "wrap", False),
        ("{0, 1, 1, 2, 0, 0, 3, 0}", "reflect", False),
        ("{0, 0, 1, 6, 0, 0, 3, 0}", "reflect", False),
        ("{0, 0, 1, -2, 0, 0, 3, 0}", "reflect", False),
        ("", "reflect", False),
        ("overridable {0, 0, 1, 2, 0, 0, 3, 0}", "reflect", False),
    ],
    ids=["mirrored", "repeated", "around", "channels too", "too far", "cut off", "not known", "callers may change it"],
)
def test_images_that_go_on_behind_their_ends_belong_to_the_convolutions(pads: str, mode: str, belongs: bool) -> None:
    body = f'b = Conv (x, w) d = Pad <mode = "{mode}"> (b, p) y = Conv (d, w3)'
    given = f"<int64[8] p = {pads.removeprefix('overridable ')}>" if pads else ""
    inputs = "float[2, 6, 6, 6] x" + ("" if pads.startswith("{") else ", int64[8] p")
    weights = WEIGHTS | {"w3": (8, 7 if "{0, 1" in pads else 6, 1, 1)}
    model = parse(f"g ({inputs}) => (float[2, 8, h, k] y) {given} {{ {body} }}", weights, opset=19)
    assert ("Pad" in taken(model)) == belongs


@pytest.mark.parametrize(("node", "strides"), [("ConvTranspose", 2), ("Conv", 1)])
def test_two_that_make_images_larger_are_a_region(node: str, strides: int) -> None:
    """As SAM makes its masks larger: two of them, or one beside a convolution, but no single one."""
    weights = {"t": (6, 6, strides, strides)}
    one = f"y = {node} <strides = [{strides}, {strides}]> (x, t)"
    two = f"z = {node} <strides = [{strides}, {strides}]> (x, t) r = Relu (z) {one.replace('(x', '(r')}"
    found = [taken(parse(f"g (float[2, 6, 6, 6] x) => (float[2, 6, h, k] y) {{ {b} }}", weights)) for b in (one, two)]
    assert (found[0], found[1]) == (set(), {node, "Relu"})


NEAREST = 'Resize <mode = "nearest", coordinate_transformation_mode = "asymmetric"'
CROPPED = 'Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize">'


@pytest.mark.parametrize(
    ("body", "belongs"),
    [
        (f'f = {NEAREST}, nearest_mode = "floor"> (c, , by3)', True),
        (f"f = {NEAREST}> (c, , by2)", True),
        (f"f = {NEAREST}> (c, , by3)", False),
        ('f = Resize <mode = "nearest"> (c, , by3)', True),
        ('f = Resize <mode = "nearest"> (c, , , to)', True),
        ('f = Resize <mode = "nearest"> (c, , more)', False),
        ('f = Resize <mode = "nearest"> (c, , by1_5)', False),
        ('f = Resize <mode = "linear"> (c, , by2)', False),
        ('m = GlobalAveragePool (c) f = Resize <mode = "linear"> (m, , , to)', True),
        ('m = GlobalAveragePool (c) f = Resize <mode = "cubic"> (m, , , to)', False),
        ('m = MaxPool <kernel_shape = [5, 1]> (c) f = Resize <mode = "linear"> (m, , , to)', False),
        (f"m = GlobalAveragePool (c) f = {CROPPED} (m, around, , to)", False),
        ('k = Neg (z) f = Resize <mode = "nearest"> (c, , k)', False),
    ],
)
def test_pixels_that_are_repeated_belong_to_the_convolutions(body: str, belongs: bool) -> None:
    constants = "float[4] by2 = {1, 1, 2, 2}, float[4] by3 = {1, 1, 3, 3}, float[4] more = {1, 2, 2, 2}, "
    constants += "float[4] by1_5 = {1, 1, 1.5, 1.5}, int64[4] to = {2, 6, 10, 15}, "
    constants += "float[8] around = {0, 0, 0, 0, 1, 1, 2, 2}"
    model = parse(
        f"g (float[2, 6, 5, 5] x, float[4] z) => (float[2, a, b, d] y) <{constants}> {{ {SHUFFLED.format(body)} }}",
        WEIGHTS,
    )
    found = taken(model)
    assert ("Resize" in found) == belongs


def test_turns_at_the_ends_belong_to_the_convolutions() -> None:
    """What comes with its channels last, and goes on so, is not turned over."""
    body = "i = Transpose <perm = [0, 3, 1, 2]> (x) b = Conv (i, w) c = Conv (b, w2)"
    body += " y = Transpose <perm = [0, 2, 3, 1]> (c)"
    model = parse(f"g (float[2, 5, 5, 6] x) => (float[2, 5, 5, 8] y) {{ {body} }}", WEIGHTS)
    region = max(matches(model, "Convolutions").regions, key=lambda r: len(r.nodes))
    assert sorted(n.op_type for n in region.nodes) == ["Conv", "Conv", "Transpose", "Transpose"]


NORMED = """b = Conv (x, w) {} r = Relu (n) y = Conv (r, w2)"""


@pytest.mark.parametrize(
    ("body", "belongs"),
    [
        ("n = InstanceNormalization (b, s, s)", True),
        ("n = GroupNormalization <num_groups = 2> (b, s, s)", True),
        ("g = Reshape (b, apart) i = InstanceNormalization (g, ones, zeros) n = Reshape (i, whole)", True),
        ("g = Reshape (b, apart) i = InstanceNormalization (g, ones, zeros) e = Exp (i) n = Reshape (e, whole)", False),
        ("g = Reshape (b, across) i = InstanceNormalization (g, ones, zeros) n = Reshape (i, whole)", False),
        ("n = InstanceNormalization (b, z, s)", False),
    ],
    ids=["of channels", "of groups", "written out", "with something between", "across images", "by a value"],
)
def test_norms_of_groups_belong_to_the_convolutions(body: str, belongs: bool) -> None:
    constants = "int64[3] apart = {2, 2, -1}, int64[3] across = {1, 2, -1}, int64[4] whole = {2, 6, 5, 5}, "
    constants += "float[2] ones = {1, 1}, float[2] zeros = {0, 0}"
    model = parse(
        f"g (float[2, 6, 5, 5] x, float[6] z) => (float[2, 8, 5, 5] y) <{constants}> {{ {NORMED.format(body)} }}",
        WEIGHTS,
        21,
    )
    found = taken(model)
    assert bool(found & {"InstanceNormalization", "GroupNormalization"}) == belongs


def test_norms_with_weights_by_group_do_not() -> None:
    """As they were in opset 18: there is no kernel for them, and none for what they would be part of."""
    body = NORMED.format("n = GroupNormalization <num_groups = 2> (b, two, two)")
    given = "float[2] two = {1, 2}"
    model = parse(f"g (float[2, 6, 5, 5] x) => (float[2, 8, 5, 5] y) <{given}> {{ {body} }}", WEIGHTS, 18)
    found = taken(model)
    assert "GroupNormalization" not in found


LINES = """b = Conv (x, l) t = Transpose <perm = [0, 2, 1]> (b) {} f = Transpose <perm = [0, 2, 1]> (n) r = Relu (f)
    y = Conv (r, m)"""


@pytest.mark.parametrize(
    ("body", "belongs"),
    [
        ("n = LayerNormalization (t, s)", True),
        ("k = LayerNormalization (t, s) e = Exp (k) n = Mul (e, t)", True),
        ("k = MatMul (t, square) n = Relu (k)", False),
    ],
)
def test_norms_of_lines_belong_to_the_convolutions_and_products_do_not(body: str, belongs: bool) -> None:
    """What is normed over its channels after each convolution, as by wav2vec 2.0's large models."""
    weights = {"l": (6, 6, 3), "m": (8, 6, 3), "s": (6,), "square": (6, 6)}
    model = parse(f"g (float[2, 6, 9] x) => (float[2, 8, 5] y) {{ {LINES.format(body)} }}", weights)
    found = [[n.op_type for n in r.nodes] for r in matches(model, "Convolutions").regions]
    assert any(ops.count("Conv") == 2 for ops in found) == belongs
    assert not any("MatMul" in ops for ops in found)


@pytest.mark.parametrize(("flat", "belongs"), [("flat", True), ("mixed", False), ("rows", False)])
def test_sequences_of_positions_belong_to_the_convolutions(flat: str, belongs: bool) -> None:
    constants = "int64[3] flat = {2, 8, 25}, int64[3] mixed = {2, 25, 8}, int64[3] rows = {2, 40, 5}"
    body = f"b = Conv (x, w) c = Conv (b, w2) r = Reshape (c, {flat}) y = Transpose <perm = [0, 2, 1]> (r)"
    model = parse(f"g (float[2, 6, 5, 5] x) => (float[2, m, n] y) <{constants}> {{ {body} }}", WEIGHTS)
    found = taken(model)
    assert ({"Reshape", "Transpose"} <= found) == belongs


def test_shapes_that_are_computed_come_along() -> None:
    """Of sizes that are open exporters compute the shape that an image had."""
    body = """b = Conv (x, w) k = Shape (b) g = Reshape (b, apart) i = InstanceNormalization (g, ones, zeros)
        n = Reshape (i, k) r = Relu (n) y = Conv (r, w2)"""
    given = "int64[3] apart = {0, 2, -1}, float[2] ones = {1, 1}, float[2] zeros = {0, 0}"
    model = parse(f"g (float[n, 6, h, v] x) => (float[n, 8, h, v] y) <{given}> {{ {body} }}", WEIGHTS)
    found = max(matches(model, "Convolutions").regions, key=lambda r: len(r.nodes))
    assert sum(n.op_type == "Conv" for n in found.nodes) == 2
    assert [n.op_type for n in found.shape_nodes] == ["Shape"]


def test_shapes_of_something_else_do_not() -> None:
    body = """b = Conv (x, w) h = Softmax (b) k = Shape (h) g = Reshape (b, apart)
        i = InstanceNormalization (g, ones, zeros) n = Reshape (i, k) r = Add (n, h) y = Conv (r, w2)"""
    given = "int64[3] apart = {0, 2, -1}, float[2] ones = {1, 1}, float[2] zeros = {0, 0}"
    model = parse(f"g (float[n, 6, h, v] x) => (float[n, 8, h, v] y) <{given}> {{ {body} }}", WEIGHTS)
    assert all(sum(n.op_type == "Conv" for n in r.nodes) < 2 for r in matches(model, "Convolutions").regions)
