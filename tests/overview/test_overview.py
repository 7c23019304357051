"""`inspect` says what a model is made of, `diff` what nodes became."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.helpers.cli_helpers import call, write_model
from tests.helpers.graphs import parse


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.onnx")


def told(*arguments: object) -> Any:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_inspect_counts_what_is_there(model: Path) -> None:
    facts = told("inspect", model)
    assert facts["operators"] == {"Add": 2, "MatMul": 2, "LayerNormalization": 1, "Mul": 1, "Sigmoid": 1}
    assert (facts["nodes"], facts["bodies"]) == (7, 0)
    assert facts["inputs"] == {"x": "float32 [batch, seq, 32]"}
    assert facts["opsets"]["ai.onnx"] == onnx.load(model).opset_import[0].version
    assert facts["parameters"] == 32 + 32 + 32 * 64 + 64 + 64 * 32
    assert sum(facts["weights"].values()) == 4 * facts["parameters"]
    assert facts["idioms"]["Linear"] == 2
    text = call("inspect", model).stdout
    assert text.splitlines()[0].startswith(f"{model}: 7 nodes, ")
    assert "operators 2 Add, 2 MatMul" in text
    assert max(map(len, text.splitlines())) < 160


def test_inspect_of_a_result_tells_its_functions_and_kernels(model: Path, tmp_path: Path) -> None:
    call("optimize", model, "-o", tmp_path / "out.onnx", "--target", "portable", "--force")
    facts = told("inspect", tmp_path / "out.onnx")
    assert [name.rpartition("_")[0] for name in facts["functions"]] == ["FeedForwardBlock"]
    assert (facts["kernels"], facts["idioms"]) == ([], {})


def test_inspect_of_no_model_is_an_error(tmp_path: Path) -> None:
    result = call("inspect", tmp_path / "none.onnx")
    assert result.exit_code == 1
    assert "no such file" in result.stderr


def test_diff_says_which_nodes_an_operator_stands_for(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    call("optimize", model, "-o", out, "--target", "portable", "--force")
    found = told("diff", model, out)
    (became,) = found["became"]
    assert became["operator"].startswith("FeedForwardBlock_")
    assert set(became["nodes"]) == {n.name for n in onnx.load(model).graph.node}
    assert (found["gone"], found["unchanged"]) == ([], 0)
    assert found["operators"]["Add"] == [2, 0]
    text = call("diff", model, out).stdout
    assert "from 2 Add, 1 LayerNormalization, 2 MatMul, 1 Mul, 1 Sigmoid" in text


def test_diff_tells_changed_new_and_unused_nodes_apart(tmp_path: Path) -> None:
    a = "g (float[4] x) => (float[4] y) { a = Relu (x) b = Abs (a) c = Neg (x) y = Sqrt (b) }"
    b = "g (float[4] x) => (float[4] y) { a = Relu (x) b = Exp (a) n = Sin (b) y = Sqrt (n) }"
    for name, text in (("a", a), ("b", b)):
        onnx.save(parse(text), tmp_path / f"{name}.onnx")
    found = told("diff", tmp_path / "a.onnx", tmp_path / "b.onnx")
    kinds = {(b["operator"], tuple(b["operators"])) for b in found["became"]}
    assert kinds == {("Exp", ("Abs",)), ("Sin", ()), ("Sqrt", ("Sqrt",))}
    assert [name for name in found["gone"] if "c" in name] == found["gone"]
    assert found["unchanged"] == 1
    same = told("diff", tmp_path / "a.onnx", tmp_path / "a.onnx")
    assert (same["became"], same["gone"], same["operators"], same["unchanged"]) == ([], [], {}, 4)
