"""Attention with what surrounds it as one region: heads, rotary embedding, projection, residual, feed-forward."""

from __future__ import annotations

import pytest

from fusion_cli.types import Region
from tests.helpers.graphs import matches, parse

X, Y = "float[b, s, 64] x", "float[b, s, 64] y"
WEIGHTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("wq", "wk", "wv", "wo"), (64, 64)),
    **dict.fromkeys(("up", "gate"), (64, 128)),
    **dict.fromkeys(("bo", "scale", "g1", "g2", "g3", "g4", "b1", "b2", "b3", "b4"), (64,)),
    **dict.fromkeys(("cos", "sin"), (8, 16)),
    **dict.fromkeys(("hcos", "hsin"), (8, 4)),
    "wg": (64, 32),
    "packed": (64, 192),
    "down": (128, 64),
}
NUMBERS = {"tiny": 1e-6, "d": 0.25, "half": 0.5, "one": 1.0, "root": 1.41421356, "low": -10000.0}
VECTORS = {
    **{f"i{i}": [i] for i in (0, 1, 2, 4, 8)},
    "all": [99],
    "last": [-1],
    "heads": [0, 0, 4, 16],
    "two_heads": [0, 0, 2, 16],
    "merged": [0, 0, 64],
    "rows": [-1, 64],
    "wide": [-1, 128],
    "three": [-1, 8, 64],
    "three_wide": [-1, 8, 128],
    "four": [0, 4, -1, 16],
    "five": [1, 1, 2, 1, 1],
    "apart": [-1, 2, 2, 2, 3, 64],
    "windows": [-1, 6, 64],
    "image": [-1, 4, 6, 64],
}
CONSTANTS = " ".join(
    [f"{n} = Constant <value = float {{{x}}}> ()" for n, x in NUMBERS.items()]
    + [f"{n} = Constant <value = int64[{len(v)}] {{{str(v)[1:-1]}}}> ()" for n, v in VECTORS.items()]
    + [f"n{i} = Constant <value = int64 {{{i}}}> ()" for i in (0, 1, 2)]
)
HEADS = "{0}l = MatMul ({1}, w{0}) {0}r = Reshape ({0}l, heads) {0} = Transpose <perm = [0, 2, 1, 3]> ({0}r)"
ATTENTION = """kt = Transpose <perm = [0, 1, 3, 2]> ({1}) s0 = MatMul ({0}, kt) sc = Mul (s0, d) p = Softmax (sc)
    ah = MatMul (p, v) at = Transpose <perm = [0, 2, 1, 3]> (ah) a = Reshape (at, merged)"""
PROJECTION = "om = MatMul (a, wo) o = Add (om, bo)"


def heads(source: str) -> str:
    return " ".join(HEADS.format(h, source) for h in "qkv")


def block(source: str = "x", q: str = "q", k: str = "k", between: str = "", projection: str = PROJECTION) -> str:
    """Attention over linear layers of `source`; its projected result is `o`."""
    return f"{heads(source)} {between} {ATTENTION.format(q, k)} {projection}"


def regions(body: str, rule: str, inputs: str = X, outputs: str = Y, opset: int = 17) -> list[Region]:
    model = parse(f"g ({inputs}) => ({outputs}) {{ {CONSTANTS} {body} }}", WEIGHTS, opset)
    return [r for r in matches(model, rule).regions if r.rule == rule]


def largest(body: str, rule: str, inputs: str = X, outputs: str = Y) -> Region:
    """The largest region of a rule: it must begin at the three linear layers and have one result, `y`."""
    region = max(regions(body, rule, inputs, outputs), key=lambda r: len(r.nodes))
    assert {"ql", "kl", "vl"} <= {v.name for v in region.inputs}
    assert [v.name for v in region.outputs] == ["y"]
    return region


def count(region: Region, op: str) -> int:
    return sum(n.op_type == op for n in region.nodes)


ROPE = """{0}u, {0}w = Split <axis = -1> ({1}) {0}n = Neg ({0}w) {0}j = Concat <axis = -1> ({0}n, {0}u)
    {0}a = Mul ({1}, cos) {0}c = Mul ({0}j, sin) {2} = Add ({0}a, {0}c)"""
TWO = """{0}u, {0}w = Split <axis = -1> ({1}) {0}a = Mul ({0}u, hcos) {0}b = Mul ({0}w, hsin) {0}c = Sub ({0}a, {0}b)
    {0}d = Mul ({0}u, hsin) {0}e = Mul ({0}w, hcos) {0}f = Add ({0}d, {0}e) {2} = Concat <axis = -1> ({0}c, {0}f)"""
PARTIAL = "{0}x = Slice ({0}, i0, i8, last) {0}y = Slice ({0}, i8, all, last) {1} {0}z = Concat <axis = -1> ({2})"


def turn(h: str, form: str) -> str:
    """Rotary embedding of `q` or `k`, whole or partial, in the value `qz` or `kz`."""
    if form == "whole":
        return ROPE.format(h, h, f"{h}z")
    first = form == "first part"
    part = TWO.format(f"{h}i", f"{h}x" if first else f"{h}y", f"{h}o")
    return PARTIAL.format(h, part, f"{h}o, {h}y" if first else f"{h}x, {h}o")


@pytest.mark.parametrize("form", ["whole", "first part", "last part"])
@pytest.mark.parametrize("scaled", [False, True], ids=["", "scaled"])
def test_heads_with_rotary_embedding(form: str, scaled: bool) -> None:
    between = f"{turn('q', form)} {turn('k', form)}"
    q, k = "qz", "kz"
    if scaled:
        between += " qs = Mul (qz, d) ks = Div (kz, d)"
        q, k = "qs", "ks"
    body = block(q=q, k=k, between=between, projection="y = Identity (a)")
    region = largest(body, "AttentionHeads")
    assert count(region, "Neg" if form == "whole" else "Sub") == 2
    assert count(region, "MatMul") == 2
    assert count(region, "Transpose") == 5


def test_heads_repeated_for_groups_and_scaled_on_both_sides() -> None:
    repeat = "ku = Unsqueeze (k, i2) ke = Expand (ku, five) kg = Reshape (ke, four) qs = Mul (q, d) ks = Mul (kg, d)"
    body = block(q="qs", k="ks", between=repeat, projection="y = Identity (a)")
    body = body.replace("MatMul (x, wk)", "MatMul (x, wg)").replace("(kl, heads)", "(kl, two_heads)")
    region = largest(body, "AttentionHeads")
    assert count(region, "Unsqueeze") == 1
    assert count(region, "Mul") == 3


def test_the_smaller_readings_are_offered_too() -> None:
    """A target that cannot compile the whole can take the part without the heads' transposes."""
    sizes = {len(r.nodes) for r in regions(block(projection="y = Identity (a)"), "AttentionHeads")}
    assert sizes == {4, 6, 13}


RESIDUALS = {
    "projection": "y = Identity (o)",
    "residual": "y = Add (o, x)",
    "residual first": "y = Add (x, o)",
    "norm": "n = LayerNormalization (o, g1, b1) y = Add (n, x)",
    "scale": "sl = Mul (scale, o) y = Add (sl, x)",
}


@pytest.mark.parametrize("residual", RESIDUALS.values(), ids=RESIDUALS)
@pytest.mark.parametrize("rotated", [False, True], ids=["", "rotary"])
def test_projection_and_residual(residual: str, rotated: bool) -> None:
    between = f"{turn('q', 'whole')} {turn('k', 'whole')}" if rotated else ""
    names = {"q": "qz", "k": "kz"} if rotated else {}
    region = largest(f"{block(between=between, **names)} {residual}", "AttentionProjection")
    assert count(region, "MatMul") == 3
    assert count(region, "Neg") == 2 * rotated


def norm(source: str, result: str, i: int) -> str:
    return f"{result} = LayerNormalization ({source}, g{i}, b{i})"


GELU = "e0 = Div ({0}, root) e1 = Erf (e0) e2 = Add (e1, one) e3 = Mul ({0}, e2) {1} = Mul (e3, half)"
FFN = {
    "gelu": f"hu = MatMul ({{0}}, up) {GELU.format('hu', 'ha')} {{1}} = MatMul (ha, down)",
    "swiglu": "hu = MatMul ({0}, up) hg = MatMul ({0}, gate) sg = Sigmoid (hg) sl0 = Mul (hg, sg) hm = Mul (sl0, hu) "
    "{1} = MatMul (hm, down)",
    "relu": "hu = MatMul ({0}, up) ha = Relu (hu) {1} = MatMul (ha, down)",
}
BLOCKS = {
    "pre-norm": ("m1", norm("x", "m1", 1), f"r = Add (x, o) {norm('r', 'm2', 2)} {{ffn}} y = Add (r, h)", "m2"),
    "post-norm": (
        "x",
        "",
        f"r = Add (o, x) {norm('r', 'm1', 1)} {{ffn}} t = Add (h, m1) {norm('t', 'y', 2)}",
        "m1",
    ),
    "sandwich": (
        "m1",
        norm("x", "m1", 1),
        f"{norm('o', 'on', 2)} r = Add (x, on) {norm('r', 'm2', 3)} {{ffn}} {norm('h', 'hn', 4)} y = Add (r, hn)",
        "m2",
    ),
    "norm after": ("x", "", f"{norm('o', 'on', 1)} r = Add (x, on) {{ffn}} {norm('h', 'hn', 2)} y = Add (r, hn)", "r"),
    "scaled branches": (
        "m1",
        norm("x", "m1", 1),
        f"os = Mul (o, scale) r = Add (os, x) {norm('r', 'm2', 2)} {{ffn}} hs = Mul (h, scale) y = Add (r, hs)",
        "m2",
    ),
    "branches times a number": (
        "m1",
        norm("x", "m1", 1),
        f"os = Mul (o, d) r = Add (os, x) {norm('r', 'm2', 2)} {{ffn}} hs = Div (h, root) y = Add (r, hs)",
        "m2",
    ),
    "sandwich times a number": (
        "m1",
        norm("x", "m1", 1),
        f"{norm('o', 'on', 2)} os = Mul (on, d) r = Add (x, os) {norm('r', 'm2', 3)} {{ffn}} {norm('h', 'hn', 4)} "
        "hs = Mul (hn, d) y = Add (r, hs)",
        "m2",
    ),
    "rows scaled": (
        "m1",
        norm("x", "m1", 1),
        f"os = Mul (scale, o) r = Add (x, os) {norm('r', 'm2', 2)} m3 = Reshape (m2, rows) {{ffn}} "
        "h3 = Reshape (h, three) hs = Mul (h3, scale) y = Add (r, hs)",
        "m3",
    ),
    "sandwich of rows": (
        "m1",
        norm("x", "m1", 1),
        f"{norm('o', 'on', 2)} r = Add (x, on) {norm('r', 'm2', 3)} m3 = Reshape (m2, rows) {{ffn}} "
        f"h3 = Reshape (h, three) {norm('h3', 'hn', 4)} y = Add (r, hn)",
        "m3",
    ),
    "parallel": ("m1", norm("x", "m1", 1), "{ffn} t = Add (o, h) y = Add (t, x)", "m1"),
    "parallel, residual first": ("m1", norm("x", "m1", 1), "{ffn} t = Add (x, o) y = Add (h, t)", "m1"),
    "parallel, feed-forward first": ("m1", norm("x", "m1", 1), "{ffn} t = Add (x, h) y = Add (t, o)", "m1"),
    "parallel, two norms": (
        "m1",
        norm("x", "m1", 1),
        f"{norm('x', 'm2', 2)} {{ffn}} t = Add (h, o) y = Add (t, x)",
        "m2",
    ),
}


@pytest.mark.parametrize("ffn", FFN)
@pytest.mark.parametrize(("source", "before", "after", "input_"), BLOCKS.values(), ids=BLOCKS)
def test_attention_and_feed_forward(source: str, before: str, after: str, input_: str, ffn: str) -> None:
    body = f"{before} {block(source)} {after.format(ffn=FFN[ffn].format(input_, 'h'))}"
    region = largest(body, "AttentionFFN")
    assert count(region, "MatMul") == 3 + FFN[ffn].count("MatMul")


def test_attention_and_feed_forward_with_rotary_embedding() -> None:
    """Both readings are offered: from before the rotation, and from after it."""
    source, before, after, input_ = BLOCKS["pre-norm"]
    between = f"{turn('q', 'whole')} {turn('k', 'whole')}"
    body = f"{before} {block(source, 'qz', 'kz', between)} {after.format(ffn=FFN['swiglu'].format(input_, 'h'))}"
    assert count(largest(body, "AttentionFFN"), "Neg") == 2
    assert {0, 2} == {count(r, "Neg") for r in regions(body, "AttentionFFN")}


def test_rotary_embedding_may_be_of_more_digits() -> None:
    """Between casts, of which the first belongs to what comes before."""
    rope = ROPE.replace("cos", "wide_cos").replace("sin", "wide_sin")
    turned = "{0}2 = Cast <to = 11> ({0}) " + rope.replace("{1}", "{0}2").replace("{2}", "{0}3")
    between = " ".join(f"{turned.format(h)} {h}z = Cast <to = 1> ({h}3)" for h in "qk")
    wide = "wide_cos = Cast <to = 11> (cos) wide_sin = Cast <to = 11> (sin)"
    body = f"{wide} {block('x', 'qz', 'kz', between)} y = Identity (o)"
    assert count(largest(body, "AttentionProjection"), "Neg") == 2


@pytest.mark.parametrize("name", ["pre-norm", "post-norm"])
@pytest.mark.parametrize("order", ["qkv", "vkq"])
def test_a_whole_layer(name: str, order: str) -> None:
    """From the layer's input on, in whichever order queries, keys and values are computed."""
    source, before, after, input_ = BLOCKS[name]
    linear = " ".join(HEADS.format(h, source) for h in order)
    ffn = after.format(ffn=FFN["relu"].format(input_, "h"))
    (region,) = regions(f"{before} {linear} {ATTENTION.format('q', 'k')} {PROJECTION} {ffn}", "TransformerLayer")
    assert region.inputs[0].name == "x"
    assert [v.name for v in region.outputs] == ["y"]
    assert count(region, "MatMul") == 8


@pytest.mark.parametrize("name", ["pre-norm", "post-norm"])
def test_a_whole_layer_of_windows(name: str) -> None:
    """Which are taken from an image for the attention alone, and are what the layer is computed of then."""
    source, before, after, input_ = BLOCKS[name]
    turned = "Transpose <perm = [0, 1, 3, 2, 4, 5]>"
    taken = f"ip = Reshape ({source}, apart) it = {turned} (ip) w = Reshape (it, windows)"
    put_back = f"bp = Reshape (a1, apart) bt = {turned} (bp) o = Reshape (bt, image)"
    attention = f"{heads('w')} {ATTENTION.format('q', 'k')} {PROJECTION.replace('o = Add', 'a1 = Add')}"
    whole = f"x = Abs (i) {before} {taken} {attention} {put_back} {after.format(ffn=FFN['relu'].format(input_, 'h'))}"
    inputs, outputs = "float[n, 4, 6, 64] i", "float[n, 4, 6, 64] z"
    (region,) = regions(f"{whole} z = Abs (y)", "TransformerLayer", inputs, outputs)
    assert count(region, "MatMul") == 8
    assert [v.shape[-2] for v in (region.inputs[0], region.outputs[0]) if v.shape is not None] == [6, 6]


@pytest.mark.parametrize("name", ["pre-norm", "post-norm"])
def test_a_whole_layer_whose_queries_keys_and_values_are_one_product(name: str) -> None:
    source, before, after, input_ = BLOCKS[name]
    linear = PARTS.replace("(x, packed)", f"({source}, packed)")
    ffn = after.format(ffn=FFN["relu"].format(input_, "h"))
    (region,) = regions(f"{before} {linear} {ATTENTION.format('q', 'k')} {PROJECTION} {ffn}", "TransformerLayer")
    assert (region.inputs[0].name, [v.name for v in region.outputs]) == ("x", ["y"])
    assert (count(region, "MatMul"), count(region, "Split")) == (6, 1)


@pytest.mark.parametrize("packed", [False, True], ids=["products", "one product"])
def test_a_whole_layer_of_cosines_whose_norms_come_after(packed: bool) -> None:
    """As in Swin v2: queries and keys are as long as one."""
    source, before, after, input_ = BLOCKS["norm after"]
    unit = "{0}s = ReduceL2 <axes = [-1], keepdims = 1> ({0}) {0}e = Clip ({0}s, tiny) {0}z = Div ({0}, {0}e) "
    linear = PARTS if packed else heads(source)
    attention = f"{unit.format('q')} {unit.format('k')} {ATTENTION.format('qz', 'kz')} {PROJECTION}"
    ffn = after.format(ffn=FFN["relu"].format(input_, "h"))
    (region,) = regions(f"{before} {linear} {attention} {ffn}", "TransformerLayer")
    assert (region.inputs[0].name, [v.name for v in region.outputs]) == ("x", ["y"])
    assert (count(region, "MatMul"), count(region, "ReduceL2")) == (6 if packed else 8, 2)


PARTS = """w = MatMul (x, packed) ql, kl, vl = Split <axis = -1, num_outputs = 3> (w)
    qr = Reshape (ql, heads) q = Transpose <perm = [0, 2, 1, 3]> (qr)
    kr = Reshape (kl, heads) k = Transpose <perm = [0, 2, 1, 3]> (kr)
    vr = Reshape (vl, heads) v = Transpose <perm = [0, 2, 1, 3]> (vr)"""


@pytest.mark.parametrize(("others", "inputs"), [("", ["w"]), ("z = Neg (kl)", ["ql", "kl", "vl"])])
def test_parts_of_one_product_are_read_where_they_lie(others: str, inputs: list[str]) -> None:
    body = f"{PARTS} {ATTENTION.format('q', 'k')} {PROJECTION} y = Add (o, x) {others}"
    outputs = Y + (", float[b, s, 64] z" if others else "")
    found = regions(body, "AttentionProjection", outputs=outputs, opset=18)
    region = max((r for r in found if r.outputs[0].name == "y"), key=lambda r: len(r.nodes))
    assert [v.name for v in region.inputs if v.name in ("w", "ql", "kl", "vl")] == inputs
    assert count(region, "Split") == (not others)


def test_layers_of_two_dimensions_between() -> None:
    """Linear layers on [batch * seq, width] matrices, with reshapes around them."""
    projection = "a2 = Reshape (a, rows) om = Gemm (a2, wo, bo) o = Reshape (om, three)"
    ffn = f"""r = Add (o, x) {norm("r", "m2", 2)} nr = Reshape (m2, rows) hu = Gemm (nr, up)
        hr = Reshape (hu, three_wide) ha = Relu (hr) hb = Reshape (ha, wide) hd = Gemm (hb, down)
        h = Reshape (hd, three) y = Add (h, r)"""
    body = f"{norm('x', 'm1', 1)} {block('m1', projection=projection)} {ffn}"
    region = largest(body, "AttentionFFN", inputs="float[b, 8, 64] x", outputs="float[b, 8, 64] y")
    assert count(region, "Gemm") == 3


@pytest.mark.parametrize("late", [False, True])
def test_a_result_that_others_need_stays_a_result(late: bool) -> None:
    """The residual sum, or the heads' keys, are read outside: the region gives them too, or leaves them out."""
    source, before, after, input_ = BLOCKS["pre-norm"]
    name, shape = ("r", "float[b, s, 64] r") if late else ("k", "float[b, 4, s, 16] k")
    body = f"{before} {block(source)} {after.format(ffn=FFN['relu'].format(input_, 'h'))}"
    for region in regions(body, "AttentionFFN", outputs=f"{Y}, {shape}"):
        made = {v.name for n in region.nodes for v in n.outputs}
        assert (name in made) == (name in {v.name for v in region.outputs})


def test_a_mask_computed_from_the_shape_of_the_heads() -> None:
    """A region that begins before the heads would need its own result; one that begins after those of the queries, and
    before the others, does not."""
    mask = """sh = Shape (q) qn = Gather (sh, n2) r0 = Range (n0, qn, n1) rc = Unsqueeze (r0, i1)
        future = Greater (r0, rc)"""
    attention = ATTENTION.replace("p = Softmax (sc)", "m = Where (future, low, sc) p = Softmax (m)").format("q", "k")
    source, before, after, input_ = BLOCKS["pre-norm"]
    body = f"{before} {heads(source)} {mask} {attention} {PROJECTION} {after}"
    found = regions(body.format(ffn=FFN["gelu"].format(input_, "h")), "AttentionFFN")
    assert {v.name for r in found for v in r.outputs} == {"y"}
    assert all("q" in {v.name for v in r.inputs} for r in found)


def test_a_bias_computed_from_the_heads() -> None:
    """As DeBERTa's, of queries by positions: the views of the heads that it is made of are read as they come, and what
    else moves or scales keys is the region's."""
    bias = "pq = MatMul (q, table) near = GatherElements <axis = 3> (pq, places)"
    attention = ATTENTION.replace("p = Softmax (sc)", "m = Add (sc, near) p = Softmax (m)").format("q", "k")
    source, before, after, input_ = BLOCKS["pre-norm"]
    body = f"{before} {heads(source)} {bias} {attention} {PROJECTION} {after}"
    more = "float[16, 32] table, int64[b, 4, s, s] places"
    found = regions(body.format(ffn=FFN["gelu"].format(input_, "h")), "AttentionFFN", f"{X}, {more}")
    region = max(found, key=lambda r: len(r.nodes))
    assert {"q", "near"} <= {v.name for v in region.inputs}
    assert {"k", "v", "q"} & {v.name for n in region.nodes for v in n.outputs} == {"k", "v"}


def test_a_layer_may_end_in_a_clip() -> None:
    """Which does without the next one's norm."""
    source, before, after, input_ = BLOCKS["pre-norm"]
    linear = " ".join(HEADS.format(h, source) for h in "qkv")
    ffn = after.format(ffn=FFN["relu"].format(input_, "h")).replace("y = ", "e = ")
    clip = "high = Constant <value = float {100.0}> () y = Clip (e, low, high)"
    body = f"{before} {linear} {ATTENTION.format('q', 'k')} {PROJECTION} {ffn} {clip}"
    region = max(regions(body, "TransformerLayer"), key=lambda r: len(r.nodes))
    assert count(region, "Clip") == 1
