"""Small models for tests, from ONNX text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
from onnx import numpy_helper

from fusion_cli.explain.near_misses import near_misses
from fusion_cli.load import load_model
from fusion_cli.match import MatchResult, RuleSet, find_regions, load_rules
from fusion_cli.simplify import simplify
from fusion_cli.types import Rejection

RNG = np.random.default_rng(7)
V = TypeVar("V")


def read_in(body: str, named: Mapping[str, V]) -> dict[str, V]:
    """Those of these whose names the text of a body has."""
    words = {word.strip("(),") for word in body.split()}
    return {name: value for name, value in named.items() if name in words}


def parse(
    text: str, weights: Mapping[str, tuple[int, ...]] | None = None, opset: int = 17, dtype: type = np.float32
) -> onnx.ModelProto:
    """A model of one graph in ONNX text; `weights` are initializers of these shapes with random values, whatever other
    tests have drawn."""
    rng = np.random.default_rng(7)
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]> {text}')
    for name, shape in (weights or {}).items():
        array = rng.normal(size=shape).astype(dtype)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def simplified(model: onnx.ModelProto, algebra: bool = True) -> ir.Model:
    return simplify(ir.from_proto(model), partial(ir.from_proto, model), algebra).model


def simplified_file(path: Path) -> ir.Model:
    return simplify(load_model(path), partial(load_model, path)).model


def matches(model: onnx.ModelProto, *rules: str, rule_paths: tuple[Path, ...] = ()) -> MatchResult:
    """What the rules (all fusions if none are named) find in the model."""
    return find_regions(simplified(model), load_rules(rules, rule_paths) if rule_paths else _bundled(rules))


def rejections(result: MatchResult) -> tuple[Rejection, ...]:
    """What the rules nearly found."""
    return near_misses(result).rejections


@cache
def _bundled(rules: tuple[str, ...]) -> RuleSet:
    return load_rules(rules)


def idioms(
    body: str,
    weights: Mapping[str, tuple[int, ...]] | None = None,
    opset: int = 17,
    inputs: str = "float[batch, seq, 64] x",
    outputs: str = "float[batch, seq, 64] y",
) -> dict[str, int]:
    """How many of each idiom are in a graph of this body."""
    return dict(matches(parse(f"g ({inputs}) => ({outputs}) {{ {body} }}", weights, opset)).idioms)


def operators(result: MatchResult, rule: str) -> list[list[str]]:
    """The operators of each region of a rule."""
    return [[n.op_type for n in r.nodes] for r in result.regions if r.rule == rule]
