"""Slices, splits and joins in regions: the numbers, and that what is sliced is read where it lies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.plan import Plan, plan_region
from fusion_cli.plan.shape_program import run_shape_program
from fusion_cli.planir.stages import Linear, Pointwise
from tests.helpers.region_tools import all_values, check_model, check_region, parsed, region_of, whole
from tests.helpers.slice_graphs import (
    CACHE,
    GATED,
    GATED_PARTS,
    GRAPHS,
    NORMED_PAIRS,
    NORMED_ROPE,
    ROPE_HALVES,
    TURNED_PARTS,
    Graph,
    feeds,
)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


@pytest.mark.parametrize("dtype", ["float", "float16"])
@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
def test_numbers_and_kernels(graph: Graph, dtype: str) -> None:
    model = graph.model(dtype)
    region = whole(model)
    for sizes in graph.sizes:
        given = feeds(model, sizes, np.random.default_rng())
        plan = check_region(region, all_values(model, given, [region]), 1e-5 if dtype == "float" else 4e-3)
        assert len(plan.stages) == graph.kernels


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng().standard_normal(shape).astype(np.float32)


def roles(plan: Plan) -> list[str]:
    return [t.role for t in plan.tensors]


def test_slices_are_read_where_they_lie() -> None:
    """Each element of a packed projection is written once and read once, by the kernel that needs it."""
    plan = plan_region(whole(GATED.model()))
    product, gate, _ = plan.stages
    (packed,) = (s.tensor for s in product.stores)
    assert [plan.root(o.tensor) for o in gate.operands] == [packed, packed]


@pytest.mark.parametrize("graph", [NORMED_ROPE, NORMED_PAIRS], ids=lambda g: g.name)
def test_rows_that_are_normed_are_whole_and_read_by_parts(graph: Graph) -> None:
    """As Qwen 3 and Flux turn their heads: a norm is not computed again for the parts that it is turned by."""
    plan = plan_region(whole(graph.model()))
    rows, turned = plan.stages
    (normed,) = (s.tensor for s in rows.stores)
    read = [plan.tensors[o.tensor] for o in turned.operands if plan.root(o.tensor) == normed]
    assert {t.role for t in read} == {"view"}


@pytest.mark.parametrize("graph", [GATED_PARTS, TURNED_PARTS], ids=lambda g: g.name)
def test_parts_that_gate_one_another_are_products_of_parts_of_the_weights(graph: Graph) -> None:
    """The second's epilogue reads what the first made; nobody writes both, and the weights are read where they lie."""
    plan = plan_region(whole(graph.model("float16")))
    first, second, *_ = (s for s in plan.stages if isinstance(s, Linear))
    assert not any(isinstance(s, Pointwise) for s in plan.stages)
    weights = [plan.tensors[s.operands[s.b].tensor] for s in (first, second)]
    assert [t.role for t in weights] == ["view", "view"]
    assert len({plan.root(s.operands[s.b].tensor) for s in (first, second)}) == 1
    (made,) = (s.tensor for s in first.stores)
    assert made in {o.tensor for o in second.operands}


GATE, CUT = "g = Mul (f, c)", "a, c = Split <axis = -1, num_outputs = 2> (b)"


@pytest.mark.parametrize(
    ("of", "instead"),
    [
        ("float[B, S, 16] y)", "float[B, S, 16] y, float[B, S, 48] b)"),  # all of it is asked for
        (GATE, "r = Softmax (c)  g = Mul (f, r)"),  # rows of a part are asked for
        (GATE, "i = Mul (f, c)  r = ReduceMax <axes = [-1]> (b)  g = Add (i, r)"),  # and of the whole
        (CUT, "a = Slice (b, zero, middle, minus)  c, d = Split <axis = -1> (b)"),  # three parts
        (GATE, "i = Mul (f, c)  r = ReduceMax <axes = [-1]> (h)  g = Add (i, r)"),  # and of the product
        ("b = Add (h, bias)", "d = Mul (h, h)  b = Add (d, bias)"),  # no product with a bias
    ],
)
def test_other_parts_are_cut_of_the_whole(of: str, instead: str) -> None:
    text = GATED_PARTS.text.replace(of, instead)
    assert text != GATED_PARTS.text
    plan = plan_region(whole(replace(GATED_PARTS, text=text, opset=17).model("float16")))
    assert sum(isinstance(s, Linear) for s in plan.stages) == 2


@pytest.mark.parametrize(("dtype", "half"), [("float", "24"), ("float16", "20")])
def test_parts_that_kernels_of_two_products_do_not_take_are_cut_of_the_whole(dtype: str, half: str) -> None:
    """Parts in float32 would be copied, and those of other than eights are read one by one."""
    text = GATED_PARTS.text.replace("48", str(2 * int(half))).replace("24", half)
    plan = plan_region(whole(replace(GATED_PARTS, text=text).model(dtype)))
    assert sum(isinstance(s, Linear) for s in plan.stages) == 2


def test_joined_values_are_written_in_place() -> None:
    plan = plan_region(whole(CACHE.model()))
    assert "temp" not in roles(plan)
    written = [s.tensor for stage in plan.stages for s in stage.stores]
    assert [plan.tensors[t].role for t in written] == ["view", "view"]
    assert {plan.root(t) for t in written} == set(plan.outputs)


def test_both_halves_of_a_rotation_are_one_pass() -> None:
    """One kernel over half the elements, which loads each operand's halves once."""
    plan = plan_region(whole(ROPE_HALVES.model()))
    (stage,) = plan.stages
    assert len(stage.operands) == 6
    host = run_shape_program(plan.shape_program, {0: (2, 3, 5, 8), 1: (5, 8), 2: (5, 8)})
    assert host[stage.dims] == (2, 3, 5, 4)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("turned", [0, 4])
@pytest.mark.parametrize("packed", [False, True])
def test_rotary_embedding_operator(interleaved: int, turned: int, packed: bool) -> None:
    shape, heads = ("B, S, 24", "num_heads = 3") if packed else ("B, 3, S, 8", "num_heads = 0")
    half = (turned or 8) // 2
    text = f"""g (float[{shape}] x, float[B, S, {half}] c, float[B, S, {half}] s) => (float[{shape}] y) {{
        y = RotaryEmbedding <interleaved = {interleaved}, rotary_embedding_dim = {turned}, {heads}> (x, c, s)
    }}"""
    x = normal(2, 5, 24) if packed else normal(2, 3, 5, 8)
    plan = check_model(text, {"x": x, "c": normal(2, 5, half), "s": normal(2, 5, half)}, opset=23)
    assert len(plan.stages) == (2 if turned else 1)


EQUATIONS = {
    "ibh,hnd->ibnd": ((3, 2, 8), (8, 2, 4)),
    "ibnd,jbnd->bnij": ((3, 2, 2, 4), (5, 2, 2, 4)),
    "bnij,jbnd->ibnd": ((2, 2, 3, 5), (5, 2, 2, 4)),
    "ibnd,hnd->ibh": ((3, 2, 2, 4), (6, 2, 4)),
    "ki,jk->ji": ((3, 4), (5, 3)),
    "i,j->ij": ((3,), (5,)),
    "ijbn->bnij": ((3, 2, 4, 5),),
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(equation: str) -> None:
    shapes = EQUATIONS[equation]
    names = ("x", "w")[: len(shapes)]
    inputs = ", ".join(f"float[{', '.join(map(str, s))}] {n}" for n, s in zip(names, shapes, strict=True))
    out = ", ".join(equation.split("->")[1])
    text = f"""g ({inputs}) => (float[{out}] y) {{ y = Einsum <equation = "{equation}"> ({", ".join(names)}) }}"""
    check_model(text, {n: normal(*s) for n, s in zip(names, shapes, strict=True)})


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("(float[5, 4] x, int64[3] i) => (float[3, 4] y) { y = Gather (x, i) }", codes.OPERATOR),
        ("(float[5, 4] x, int64[3] i) => (float[5, 3] y) { y = Gather <axis = 1> (x, i) }", codes.CONSTANT),
        (
            "(float[5, 4] x) => (float[3, 4] y) { i = Constant <value_ints = [0, 1, 3]> ()  y = Gather (x, i) }",
            codes.ATTRIBUTE,
        ),
        ('(float[3, 3] x) => (float[3] y) { y = Einsum <equation = "ii->i"> (x) }', codes.ATTRIBUTE),
        (
            '(float[3, 4] x, float[3, 4] w) => (float[3] y) { y = Einsum <equation = "ij,ij->i"> (x, w) }',
            codes.ATTRIBUTE,
        ),
        (
            "(float[5, 4] x, float[2] f) => (float[N, 4] y) { i = Cast <to = 7> (f)  y = Slice (x, i, i) }",
            codes.SHAPE_PROGRAM,
        ),
    ],
)
def test_what_is_not_compiled(text: str, code: str) -> None:
    with pytest.raises(Unsupported) as refused:
        plan_region(whole(parsed(f"g {text}")))
    assert refused.value.code == code


def test_operators_of_other_domains_are_not_compiled() -> None:
    text = """<ir_version: 10, opset_import: ["": 20, "com.microsoft": 1]>
    g (float[2, 4] x) => (float[2, 2] y) { y = com.microsoft.BiasSplitGelu (x, x) }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    with pytest.raises(Unsupported, match=r"FUS202: .*found com\.microsoft\.BiasSplitGelu"):
        plan_region(region_of(list(model.graph)))


@pytest.mark.parametrize(
    "others", ["z = Softmax <axis = -1> (o)", "z = Identity (o)"], ids=["reads it", "gives it out"]
)
def test_what_is_joined_of_joined_values_is_whole_where_something_else_needs_it(others: str) -> None:
    text = f"""g (float[n, 3, 4] h, float[n, 5, 2] a, float[n, 5, 2] b) => (float[n, 8, 4] y, float[n, 5, 4] z) {{
        o = Concat <axis = -1> (a, b) {others} y = Concat <axis = 1> (h, o)
    }}"""
    plan = check_model(text, {"h": normal(2, 3, 4), "a": normal(2, 5, 2), "b": normal(2, 5, 2)})
    assert len([t for t in plan.tensors if t.role == "view"]) == 4
