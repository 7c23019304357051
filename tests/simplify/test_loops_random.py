"""Random loops whose bodies declare shapes that need not be true: every value has the sizes that are said, in every
iteration, and the same is computed when optimized."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from fusion_cli.load import load_model
from fusion_cli.simplify import simplify
from tests.helpers.dynamic_graphs import assert_optimized_agrees, opened, run_each
from tests.simplify.test_shapes_random import bounded, false_sizes

Feeds = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]
_STATES = ("s0", "s1", "s2")
_CLAIMS = ("", "float[a, b]", "float[1, b]", "float[2, b]", "float[b, a]", "float[u, b]", "float[u, u]")
_STEPS = (
    "Identity ({s})",
    "Relu ({other})",
    "Concat <axis = 0> ({s}, x)",
    "Concat <axis = 0> ({s}, {other})",
    "ReduceMean <axes = [0], keepdims = 1> ({s})",
    "Slice ({s}, zero, one, zero)",
    "Sub (x, one_row)",
)
"""What becomes of a state of rows as long as those of x; `one_row` is one of another state's."""
_READS = """
    sh{n} = Shape ({s}) e{n} = Expand (ones, sh{n}) k{n} = Slice (sh{n}, zero, one, zero)
    f{n} = Concat <axis = 0> (k{n}, minus) r{n} = Reshape ({s}, f{n}) m{n} = Mul (e{n}, r{n})
    sum{n} = Add (m{n}, row) p{n} = ReduceMean <axes = [0], keepdims = 1> (sum{n})
"""
"""What a wrong shape would make something else of."""
_LOOP = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[a, b] x, float[1, b] row, int64 n) => ({outputs}) <
    int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] minus = {{-1}}, float ones = {{1.0}}
> {{
    go = Constant <value = bool {{1}}> ()
    {results} = Loop (n, go, x, row, x) <body: graph = step (int64 i, bool c, {states}) => (o, {made}) {{
        o = Identity (c)
        one_row = ReduceMean <axes = [0], keepdims = 1> (s1)
        {nodes}
    }}>
}}"""


def loop(rng: Random) -> onnx.ModelProto:
    """A loop with three states, of which each may grow, shrink or become another's."""
    steps = [rng.choice(_STEPS).format(s=s, other=rng.choice(_STATES)) for s in _STATES]
    nodes = [f"t{n} = {step}" for n, step in enumerate(steps)]
    nodes += [_READS.format(n=n, s=s) for n, s in enumerate(_STATES)]
    seen = [*(f"t{n}" for n in range(3)), *(f"p{n}" for n in range(3))]
    return onnx.parser.parse_model(
        _LOOP.format(
            outputs=", ".join(f"float[r{i}, c{i}] y{i}" if i < 3 else f"float[r{i}, 1, c{i}] y{i}" for i in range(6)),
            results=", ".join(f"y{i}" for i in range(6)),
            states=", ".join(f"{rng.choice(_CLAIMS)} {s}" for s in _STATES),
            made=", ".join(seen),
            nodes="\n".join(nodes),
        )
    )


def run_all(model: ir.Model, feed: Feeds) -> list[Shapes]:
    """The shapes of the values in a loop's body, iteration by iteration."""
    proto = ir.to_proto(model)
    node = next(n for n in proto.graph.node if n.op_type in ("Loop", "Scan"))
    body = next(a.g for a in node.attribute if a.name == "body")
    names = [v.name for v in body.input] + [o for n in body.node for o in n.output]
    for name in names:
        body.node.add(op_type="Shape", input=[name], output=[f"shape of {name}"])
        body.output.append(helper.make_tensor_value_info(f"shape of {name}", onnx.TensorProto.INT64, None))
        node.output.append(f"shapes of {name}")
    del proto.graph.output[:]
    proto.graph.output.extend(helper.make_empty_tensor_value_info(f"shapes of {name}") for name in names)
    found = opened(proto).run(None, feed)
    return [
        dict(zip(names, (tuple(shapes.tolist()) for shapes in each), strict=True)) for each in zip(*found, strict=True)
    ]


def false_in_body(model: ir.Model, feed: Feeds) -> list[str]:
    """What is said of sizes in a loop's body and is not so in some iteration."""
    body = next(n.attributes["body"].as_graph() for n in model.graph if n.op_type in ("Loop", "Scan"))
    values = [*body.inputs, *(v for n in body for v in n.outputs)]
    return [wrong for shapes in run_all(model, feed) for wrong in false_sizes(model.graph.inputs, values, feed, shapes)]


def check(proto: onnx.ModelProto, feeds: Sequence[Feeds], folder: Path) -> bool:
    """Whether ONNX Runtime runs a model as it is declared; then all that is said of it has to hold."""
    source = folder / "m.onnx"
    onnx.save(proto, source)
    expected = run_each(proto, feeds)
    if expected is None:
        return False
    clean = simplify(load_model(source), partial(load_model, source)).model
    for feed in feeds:
        assert not (wrong := false_in_body(clean, feed)), wrong
    assert_optimized_agrees(source, feeds, expected)
    return True


def test_what_a_loop_declares_of_its_states_need_not_be_true(tmp_path: Path) -> None:
    ran = []

    @bounded
    @given(st.integers(0, 2**32 - 1).map(Random))
    def agree(rng: Random) -> None:
        sizes = [(rng.choice((1, 2, 3)), rng.choice((1, 2, 4)), trips) for trips in (1, 3)]
        feeds = [
            {"x": np.full((a, b), 0.5, np.float32), "row": np.ones((1, b), np.float32), "n": np.array(n)}
            for a, b, n in sizes
        ]
        ran.append(check(loop(rng), feeds, tmp_path))

    agree()
    assert ran.count(True) >= 0.5 * len(ran), "ONNX Runtime refuses what is drawn"
