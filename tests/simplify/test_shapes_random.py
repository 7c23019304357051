"""Random graphs of unknown sizes: they are of the sizes that are said, and compute the same when optimized."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import onnx
import onnx_ir as ir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusion_cli.load import load_model
from fusion_cli.simplify import simplify
from fusion_cli.simplify.libraries import forget_shapes, infer_shapes
from fusion_cli.sizes.dims import number
from tests.helpers.dynamic_graphs import assert_optimized_agrees, draw, opened, run_each

Feeds = Mapping[str, np.ndarray]
bounded = settings(
    max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


def values(model: ir.Model) -> list[ir.Value]:
    return [v for node in model.graph for v in node.outputs if v.name]


def run_all(model: ir.Model, feeds: Sequence[Feeds]) -> list[dict[str, tuple[int, ...]]]:
    """The shapes of all values at run time."""
    proto = ir.to_proto(model)
    del proto.graph.output[:], proto.graph.value_info[:]
    names = [str(v.name) for v in values(model)]
    if not names:
        return [{} for _ in feeds]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in names)
    session = opened(proto)
    return [dict(zip(names, (a.shape for a in session.run(None, feed)), strict=True)) for feed in feeds]


def false_sizes(
    inputs: Sequence[ir.Value], made: Sequence[ir.Value], feed: Feeds, shapes: Mapping[str, tuple[int, ...]]
) -> list[str]:
    """What a model says of the sizes of its inputs and of values it makes that is not so. A name that no input has
    stands for what it is first met as."""
    found = {v.name: (v.shape, feed[str(v.name)].shape) for v in inputs}
    found |= {v.name: (v.shape, shapes[str(v.name)]) for v in made if v.shape is not None}
    wrong = [
        f"{name} is of rank {len(real)}, not {said}" for name, (said, real) in found.items() if len(said) != len(real)
    ]
    pairs = [
        (name, dim, size)
        for name, (said, real) in found.items()
        if len(said) == len(real)
        for dim, size in zip(said, real, strict=True)
    ]
    sizes: dict[str, int] = {}
    for _, dim, size in pairs:
        if not isinstance(dim, int) and dim.value and dim.value.isidentifier():
            sizes.setdefault(dim.value, size)
    for name, dim, size in pairs:
        told = number(dim, sizes)
        if told is not None and told != size:
            wrong.append(f"{name} has {size}, not {dim} = {told}")
    return wrong


def check(rng: Random, folder: Path, least: int = 1) -> bool:
    """Whether ONNX Runtime runs what was drawn; then all that is said of it has to hold."""
    proto, feeds = draw(rng, least)
    source = folder / "m.onnx"
    onnx.save(proto, source)
    expected = run_each(proto, feeds)
    if expected is None:
        return False
    plain = load_model(source)
    forget_shapes(plain)
    infer_shapes(plain)
    clean = simplify(load_model(source), partial(load_model, source)).model
    for model in (plain, clean):
        for feed, shapes in zip(feeds, run_all(model, feeds), strict=True):
            wrong = false_sizes(model.graph.inputs, values(model), feed, shapes)
            assert not wrong, wrong
    assert_optimized_agrees(source, feeds, expected)
    return True


def test_sizes_and_numbers_hold(tmp_path: Path) -> None:
    ran = []

    @bounded
    @given(st.integers(0, 2**32 - 1).map(Random))
    def agree(rng: Random) -> None:
        ran.append(check(rng, tmp_path))

    agree()
    assert ran.count(False) <= 0.1 * len(ran), "ONNX Runtime refuses what is drawn"
