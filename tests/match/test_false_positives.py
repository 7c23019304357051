"""Nothing is called what it is not: models with one thing broken, and each idiom found in them against its meaning.

The oracle (tests/helpers/definitions.py) knows no rules: it runs the nodes of a match alone and compares
with the definition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import fusion_cli.match
from fusion_cli.match.found import Idioms, Match
from tests.helpers.definitions import CHECKS, Instance, complaint
from tests.helpers.graphs import idioms, parse, simplified
from tests.match.test_match_properties import SEEDS, rules, seed

SIZES = {"batch": 2, "seq": 6}
MUTANTS = 16
"""Of each seed, by which something is recognised or not; the same ones each time."""


class _Found(Idioms):
    """Idioms that can be looked at afterwards."""

    last: Idioms

    def __init__(self) -> None:
        super().__init__()
        _Found.last = self


@pytest.fixture(autouse=True)
def _look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion_cli.match, "Idioms", _Found)


def found(model: ir.Model, *names: str) -> list[Match]:
    """Every reading of these idioms, or of all that have a check."""
    fusion_cli.match.find_regions(model, rules())
    by_name = _Found.last.by_name
    return [m for name in names or CHECKS for m in by_name.get(name, ())]


def feeds_for(model: onnx.ModelProto, rng: np.random.Generator) -> dict[str, np.ndarray]:
    feeds: dict[str, np.ndarray] = {}
    angles = rng.normal(size=(SIZES["seq"], 8))
    turned = np.concatenate([angles, angles], -1)
    for value in model.graph.input:
        shape = [d.dim_value or SIZES[d.dim_param] for d in value.type.tensor_type.shape.dim]
        given = {"cos": np.cos(turned), "sin": np.sin(turned), "mask": np.tri(SIZES["seq"]) > 0}.get(value.name)
        array = rng.normal(size=shape) if given is None else np.broadcast_to(given, shape)
        feeds[value.name] = array.astype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    return feeds


# ---- one thing broken


def _constant(model: onnx.ModelProto, array: np.ndarray) -> str:
    name = f"broken_{len(model.graph.initializer)}"
    model.graph.initializer.append(numpy_helper.from_array(array, name))
    return name


def _number(model: onnx.ModelProto, name: str) -> np.ndarray | None:
    nodes = [n for n in model.graph.node if n.output[0] == name and n.op_type == "Constant"]
    return numpy_helper.to_array(nodes[0].attribute[0].t) if nodes else None


def other_number(model: onnx.ModelProto, rng: Random) -> None:
    """Another number, or one with another sign, where one is read."""
    places = [(n, i) for n in model.graph.node for i, v in enumerate(n.input) if _number(model, v) is not None]
    node, i = rng.choice(places)
    array = _number(model, node.input[i])
    assert array is not None
    changed = array * rng.choice([-1, 2, 0.97, 3]) if array.dtype.kind == "f" else array + rng.choice([-1, 1, 4])
    node.input[i] = _constant(model, changed.astype(array.dtype))


def per_row(model: onnx.ModelProto, rng: Random) -> None:
    """A weight per row in place of one per column."""
    shapes = {t.name: tuple(t.dims) for t in model.graph.initializer}
    places = [
        (n, i) for n in model.graph.node for i, v in enumerate(n.input) if n.op_type in ("Add", "Mul") and v in shapes
    ]
    node, i = rng.choice(places)
    rows = rng.choice([(SIZES["seq"], 1), (1, SIZES["seq"], 1), (6,), (6, 1)])
    node.input[i] = _constant(model, np.random.default_rng(rng.randrange(99)).normal(size=rows).astype(np.float32))


OTHERS = {
    "Add": "Sub", "Sub": "Add", "Mul": "Add", "Div": "Mul", "Erf": "Tanh", "Tanh": "Erf", "Sigmoid": "HardSigmoid",
    "Neg": "Abs", "Sqrt": "Abs", "ReduceMean": "ReduceMax", "Exp": "Softplus", "Softplus": "Relu", "Relu": "Abs",
}  # fmt: skip


def other_operator(model: onnx.ModelProto, rng: Random) -> None:
    node = rng.choice([n for n in model.graph.node if n.op_type in OTHERS])
    node.op_type = OTHERS[node.op_type]


def other_attribute(model: onnx.ModelProto, rng: Random) -> None:
    """Another axis, or an order of axes with two of them exchanged."""
    kinds = ("axis", "axes", "perm")
    places = [(n, a) for n in model.graph.node for a in n.attribute if a.name in kinds]
    _, attribute = rng.choice(places)
    if attribute.name == "axis":
        attribute.i = rng.choice([-2, -1, 1, 2])
    elif attribute.name == "axes":
        attribute.ints[:] = rng.choice([[-2], [-1], [1], [-2, -1]])
    else:
        i, j = rng.sample(range(len(attribute.ints)), 2)
        attribute.ints[i], attribute.ints[j] = attribute.ints[j], attribute.ints[i]


def other_order(model: onnx.ModelProto, rng: Random) -> None:
    node = rng.choice([n for n in model.graph.node if n.op_type in ("Sub", "Div", "Concat", "Where", "Pow", "MatMul")])
    i, j = (1, 2) if node.op_type == "Where" else (0, 1)
    node.input[i], node.input[j] = node.input[j], node.input[i]


def other_value(model: onnx.ModelProto, rng: Random) -> None:
    """An operand that was computed a little earlier in place of the right one."""
    nodes = [n for n in model.graph.node if n.op_type != "Constant"]
    at = rng.choice(range(2, len(nodes)))
    node = nodes[at]
    node.input[rng.randrange(len(node.input))] = rng.choice(nodes[max(at - 6, 0) : at]).output[0]


def between(model: onnx.ModelProto, rng: Random) -> None:
    """An operator more."""
    nodes = [n for n in model.graph.node if n.op_type != "Constant"]
    node = rng.choice(nodes[1:])
    at = list(model.graph.node).index(node)
    i = rng.randrange(len(node.input))
    op = rng.choice(["Relu", "Abs", "Softsign", "Sqrt", "Floor"])
    model.graph.node.insert(at, helper.make_node(op, [node.input[i]], ["broken"]))
    node.input[i] = "broken"


BREAKS: tuple[Callable[[onnx.ModelProto, Random], None], ...] = (
    other_number, per_row, other_operator, other_attribute, other_order, other_value, between,
)  # fmt: skip


def broken(name: str, rng: Random) -> onnx.ModelProto | None:
    """A seed with one thing broken that still runs, or None."""
    model = onnx.ModelProto.FromString(seed(name).SerializeToString())
    try:
        rng.choice(BREAKS)(model, rng)
    except IndexError:  # there is nothing of the kind to break
        return None
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        session.run(None, feeds_for(model, np.random.default_rng(1)))
    except Exception:  # of its own many types: what is broken need not run
        return None
    return model


@cache
def mutants(name: str) -> list[onnx.ModelProto]:
    rng = Random(name)
    made = (broken(name, rng) for _ in range(6 * MUTANTS))
    return [m for m in made if m is not None][:MUTANTS]


@pytest.mark.parametrize("name", SEEDS)
def test_the_seeds_are_what_they_are_called(name: str) -> None:
    assert _complaints(seed(name))[0] == []


@pytest.mark.parametrize("name", SEEDS)
def test_what_is_found_in_broken_models_is_what_it_is_called(name: str) -> None:
    checked = [_complaints(model) for model in mutants(name)]
    assert [c for found_wrong, _ in checked for c in found_wrong] == []
    assert len(checked) > MUTANTS // 2
    assert sum(count for _, count in checked) > 0


def _complaints(model: onnx.ModelProto) -> tuple[list[str], int]:
    """What is wrong in the model, and how many instances were looked at."""
    rng = np.random.default_rng(3)
    graph = simplified(onnx.ModelProto.FromString(model.SerializeToString()))
    feeds = feeds_for(model, rng)
    wrong, count = [], 0
    for match in found(graph):
        x = match.inputs[0]
        if x is None or x.const_value is not None:
            continue
        instance = Instance(graph, match, feeds)
        if not {str(v.name) for v in match.inputs[:3] if v is not None} & instance.values.keys():
            continue
        said = complaint(instance, rng)
        count += 1
        if said:
            wrong.append(f"{match.pattern.rule} line {match.pattern.line} of '{match.outputs[0].name}': {said}")
    return wrong, count


# ---- traps: by a hair not what they look like

INTEGERS = {"i0": 0, "i1": 1, "i2": 2, "i4": 4, "i8": 8, "i12": 12, "all": 2**63 - 1, "last": -1}
VECTORS = {"parts": [4, 12], "flat": [0, 0, 0, 16], "rows": [0, 0, -1], "three": [2, 4, -1], "samples": [1, 8, -1]}
NUMBERS = {"eps": 1e-5, "minus_eps": -1e-5, "one": 1.0, "lowest": -3.4028235e38}
PUT = " ".join(
    [
        *(f"{n} = Constant <value = int64[1] {{{v}}}> ()" for n, v in INTEGERS.items()),
        *(f"{n} = Constant <value = int64[{len(v)}] {{{str(v)[1:-1]}}}> ()" for n, v in VECTORS.items()),
        *(f"{n} = Constant <value = float {{{v}}}> ()" for n, v in NUMBERS.items()),
    ]
)
NEGATED = "n = Neg (w) t = Concat <axis = -1> (n, u) a = Mul (x, cos) c = Mul (t, sin) y = Add (a, c)"
SLICED = "u = Slice (x, i0, i8, last) w = Slice (x, i8, all, last)"
ROPE = "float[b, 4, s, 16] x, float[s, 16] cos, float[s, 16] sin, float[s, 8] hcos, float[s, 8] hsin, "
ROPE += "float[s, 8] cos2, float[s, 8] sin2"
ROPES = {
    "halves that overlap": f"u = Slice (x, i0, i8, last) w = Slice (x, i4, i12, last) {NEGATED}",
    "halves of which one starts late": "u = Slice (x, i1, i8, last) w = Slice (x, i8, all, last) z = Slice "
    "(x, i0, i1, last) n = Neg (w) t = Concat <axis = -1> (n, u, z) a = Mul (x, cos) c = Mul (t, sin) y = Add (a, c)",
    "parts of two sizes": f"u, w = Split <axis = -1> (x, parts) {NEGATED}",
    "pairs put together as halves": f"u = Slice (x, i0, all, last, i2) w = Slice (x, i1, all, last, i2) {NEGATED}",
    "halves put together as pairs": f"{SLICED} n = Neg (w) nu = Unsqueeze (n, last) uu = Unsqueeze (u, last) "
    "z = Concat <axis = -1> (nu, uu) t = Reshape (z, flat) a = Mul (x, cos) c = Mul (t, sin) y = Add (a, c)",
    "two angles": f"{SLICED} a = Mul (u, hcos) c = Mul (w, hsin) p = Sub (a, c) d = Mul (u, sin2) "
    "e = Mul (w, cos2) q = Add (d, e) y = Concat <axis = -1> (p, q)",
}
HEADS = "float[b, 4, s, 16] q, float[b, 4, t, 16] k, float[b, 4, t, 16] v, float[s, t] m, "
HEADS += "int64[n] any, int64[3] cut"
SCORES = "kt = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, kt)"
ATTENTIONS = {
    "a softmax over queries and keys": f"{SCORES} sh = Shape (s) f = Reshape (s, rows) g = Softmax <axis = -1> (f) "
    "p = Reshape (g, sh) y = MatMul (p, v)",
    **{
        f"a softmax over an axis of {unknown}": f"{SCORES} sh = Shape (s) f = Reshape (s, {shape}) "
        "g = Softmax <axis = -1> (f) p = Reshape (g, sh) y = MatMul (p, v)"
        for unknown, shape in (("unknown size", "cut"), ("a shape of unknown rank", "any"))
    },
    "a mask added after the softmax": f"{SCORES} g = Softmax <axis = -1> (s) p = Add (g, m) y = MatMul (p, v)",
    "roots of weights": f"{SCORES} g = Softmax <axis = -1> (s) p = Sqrt (g) y = MatMul (p, v)",
    "the lowest number put among the weights": f"{SCORES} g = Softmax <axis = -1> (s) c = Greater (m, eps) "
    "p = Where (c, g, lowest) y = MatMul (p, v)",
    "squares of weights": f"{SCORES} g = Softmax <axis = -1> (s) p = Mul (g, g) y = MatMul (p, v)",
}
CENTRED = "mu = ReduceMean <axes = [-1]> (x) d = Sub (x, mu) sq = Mul (d, d) v = ReduceMean <axes = [-1]> (sq)"
ROWS = "float[2, 6, 64] x"
NORMS = {
    "a variance of one at most": f"{CENTRED} e = Clip (v, eps, one) s = Sqrt (e) y = Div (d, s)",
    "epsilon taken away": f"{CENTRED} e = Add (v, minus_eps) s = Sqrt (e) y = Div (d, s)",
}
IMAGES = "float[2, 8, 6, 6] x"
GROUPS = "r = Reshape (x, {}) i = InstanceNormalization (r, g{}, z{}) sh = Shape (x) n = Reshape (i, sh)"
GROUP_NORMS = {
    "groups of two samples": f"{GROUPS.format('samples', 8, 8)} y = Relu (n)",
}
WEIGHTS = {
    "g4": (4,),
    "z4": (4,),
    "g8": (8,),
    "z8": (8,),
    "wide": (6,),
    "w1": (64, 32),
    "w2": (32, 64),
    "full": (6, 32),
}
TRAPS = [
    *(("RotaryEmbedding", name, ROPE, "float[b, 4, s, 16] y", body) for name, body in ROPES.items()),
    *(("Attention", name, HEADS, "float[b, 4, s, 16] y", body) for name, body in ATTENTIONS.items()),
    *(("LayerNorm", name, ROWS, "float[2, 6, 64] y", body) for name, body in NORMS.items()),
    *(("GroupNorm", name, IMAGES, "float[2, 8, 6, 6] y", body) for name, body in GROUP_NORMS.items()),
    ("Linear", "a bias for each row", "float[6, 64] x", "float[6, 32] y", "y = Gemm (x, w1, full)"),
    (
        "FeedForward", "nothing but a reshape between", "float[6, 64] x", "float[2, 3, 64] y",
        "a = MatMul (x, w1) sh = Constant <value = int64[3] {2, 3, 32}> () r = Reshape (a, sh) y = MatMul (r, w2)",
    ),
    (
        "FeedForward", "a residual between", "float[6, 64] x, float[6, 32] z", "float[6, 64] y",
        "a = MatMul (x, w1) r = Add (a, z) y = MatMul (r, w2)",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "inputs", "outputs", "body"), [(t[0], *t[2:]) for t in TRAPS], ids=[t[1] for t in TRAPS]
)
def test_traps(name: str, inputs: str, outputs: str, body: str) -> None:
    weights = {n: s for n, s in WEIGHTS.items() if f"{n})" in body or f"{n}," in body}
    assert name not in idioms(f"{PUT} {body}", weights, inputs=inputs, outputs=outputs)


@pytest.mark.parametrize(("shift", "nodes"), [((32, 1), 2), ((6,), 1), ((1, 32, 1), 2), ((32, 6), 1)])
def test_the_bias_of_a_layer_of_columns_is_a_column(shift: tuple[int, ...], nodes: int) -> None:
    text = "g (float[2, 64, 6] x) => (float[2, 32, 6] y) { p = MatMul (w2, x) y = Add (p, shift) }"
    model = parse(text, {"w2": (32, 64), "shift": shift})
    assert [len(m.nodes) for m in found(simplified(model), "Linear")] == [nodes]
    assert _complaints(model) == ([], 1)


@pytest.mark.parametrize(
    ("inputs", "scale", "shift", "kept"),
    [
        (ROWS, (64,), (6, 1), "LayerNorm"),
        (ROWS, (64,), (1, 6, 64), "LayerNorm"),
        (IMAGES, (8, 1, 1), (6,), "GroupNorm"),
        (IMAGES, (6,), (8, 1, 1), "GroupNorm"),
    ],
)
def test_a_shift_that_is_not_the_norms_own_is_no_part_of_it(
    inputs: str, scale: tuple[int, ...], shift: tuple[int, ...], kept: str
) -> None:
    norm = (
        f"{CENTRED} e = Add (v, eps) s = Sqrt (e) n = Div (d, s)"
        if kept == "LayerNorm"
        else GROUPS.format("three", 4, 4)
    )
    weights = {"scale": scale, "shift": shift, "g4": (4,), "z4": (4,)}
    model = parse(f"g ({inputs}) => ({inputs[:-1]}y) {{ {PUT} {norm} g = Mul (n, scale) y = Add (g, shift) }}", weights)
    matches = [m for m in found(simplified(model), kept) if m.pattern.rule == kept]
    assert matches
    assert all("y" not in {v.name for n in m.nodes for v in n.outputs} for m in matches)
