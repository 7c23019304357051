"""A model whose kernel adds 1 where its function adds 2: the result tells which of them ran."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx.inliner
from onnx import helper

from fusion_cli.planir.stages import Pointwise, Store
from fusion_cli.runtime import METADATA_KEY, session
from fusion_cli.types import FusedOp
from tests.helpers.plan_builder import Builder, Program, fused_op, operands

X = np.array([1.0, 2.0], "f4")

KERNEL, FALLBACK = X + 1, X + 2  # what the two implementations below compute


def plus_one(by: float = 1.0) -> FusedOp:
    b, p = Builder(), Program()
    x = b.input("float32", "N")
    out = b.output("float32", ("N",), 0)
    value = p("Add", p.load(0), p.const(by))
    b.stages.append(Pointwise(operands(x), p.done(), (Store(out, value),), 0))
    return fused_op("Plus_one", b.plan())


def write_model(path: Path, bundle: str | None) -> None:
    """A model whose function adds 2 where its kernel adds 1: the result tells which of them ran."""
    two = helper.make_node("Constant", [], ["two"], value=helper.make_tensor("t", 1, [], [2.0]))
    body = [two, helper.make_node("Add", ["a", "two"], ["b"])]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("fusion", 1)]
    function = helper.make_function("fusion", "Plus_one", ["a"], ["b"], body, imports[:1])
    info = [helper.make_tensor_value_info(n, 1, ["N"]) for n in "xy"]
    node = helper.make_node("Plus_one", ["x"], ["y"], domain="fusion")
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=imports, ir_version=8, functions=[function])
    if bundle is not None:
        helper.set_model_props(model, {METADATA_KEY: bundle})
    onnx.save(model, path)


def result(path: Path | bytes, **options: object) -> np.ndarray:
    return session(path, providers=["CPUExecutionProvider"], **options).run(None, {"x": X})[0]  # type: ignore[arg-type]


def quietly(path: Path | bytes, **options: object) -> np.ndarray:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return result(path, **options)
