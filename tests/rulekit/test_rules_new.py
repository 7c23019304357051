"""`rules new`: a first rule that holds, from nothing or from nodes of a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from examples import weights
from fusion_cli.match import parse_rules
from tests.helpers.cli_helpers import call, needs_compiler, write_model
from tests.helpers.graphs import matches, parse


@pytest.fixture(scope="module")
def snake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weights.restore("snake_block", tmp_path_factory.mktemp("snake") / "snake_block.onnx")


@needs_compiler
@pytest.mark.parametrize("kind", ["fusion", "idiom"])
def test_a_new_rule_holds_as_it_is(kind: str, tmp_path: Path) -> None:
    made = call("rules", "new", "MyFirstRule", "--kind", kind, "--into", tmp_path)
    assert made.exit_code == 0
    (path,) = tmp_path.rglob("*.rule")
    assert path == tmp_path / ("idioms" if kind == "idiom" else "") / "my_first_rule.rule"
    for command in ("lint", "test"):
        assert f"fusion-cli rules {command} {path}" in made.stdout
        result = call("rules", command, path)
        assert result.exit_code == 0, result.output


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    call("rules", "new", "Mine", "--into", tmp_path)
    (tmp_path / "mine.rule").write_text("precious")
    result = call("rules", "new", "Mine", "--into", tmp_path)
    assert result.exit_code == 1
    assert "nothing was written" in result.stderr
    assert (tmp_path / "mine.rule").read_text() == "precious"


@needs_compiler
def test_a_rule_from_a_models_nodes_matches_them(snake: Path, tmp_path: Path) -> None:
    names = "/1/Mul,/1/Sin,/1/Pow,/1/Div,/1/Add"
    assert call("rules", "new", "Snake", "--from", snake, "--nodes", names, "--into", tmp_path).exit_code == 0
    (rule,) = parse_rules(tmp_path / "snake.rule", "fusion")
    (pattern,) = rule.patterns
    assert [c.op for c in pattern.calls] == ["Mul", "Sin", "Pow", "Div", "Add"]
    assert list(pattern.constants.values()) == [2.0]
    assert pattern.where == ("is_constant(alpha) and rank(alpha) == 3",)
    found = matches(onnx.load(snake), "Snake", rule_paths=(tmp_path,))
    assert [r.node_names for r in found.regions] == [tuple(names.split(","))]
    result = call("rules", "test", tmp_path / "snake.rule")
    assert result.exit_code == 0, result.output


def test_around_a_node_are_the_elementwise_ones(snake: Path, tmp_path: Path) -> None:
    call("rules", "new", "Snake", "--from", snake, "--around", "/1/Sin", "--into", tmp_path)
    (rule,) = parse_rules(tmp_path / "snake.rule", "fusion")
    assert [c.op for c in rule.patterns[0].calls] == ["Mul", "Sin", "Pow", "Div", "Add"]


def test_names_of_models_become_names_of_rules(tmp_path: Path) -> None:
    text = """g (float[2, 8] x) => (float[2, 8] y) {
        h = MatMul (x, w)
        s = Softmax <axis = 1> (h)
        r = ReduceSum <keepdims = 1> (s, axes)
        y = Div (s, r)
    }"""
    model = parse(text, {"w": (8, 8)})
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1]), "axes"))
    model.graph.initializer[0].name = model.graph.node[0].input[1] = "model/layer-0.weights in"
    for node in model.graph.node:
        node.name = f"block/{node.op_type} é"
    onnx.save(model, tmp_path / "m.onnx")
    names = ",".join(n.name for n in model.graph.node)
    result = call("rules", "new", "Odd", "--from", tmp_path / "m.onnx", "--nodes", names, "--into", tmp_path)
    assert result.exit_code == 0, result.output
    (rule,) = parse_rules(tmp_path / "odd.rule", "fusion")
    (pattern,) = rule.patterns
    assert [str(c) for c in pattern.calls] == [
        "matmul = MatMul(x, weights_in)",
        "softmax = Softmax(matmul)",
        "reducesum = ReduceSum(softmax)",
        "div = Div(softmax, reducesum)",
    ]
    assert pattern.calls[1].attributes == {"axis": -1}
    assert pattern.calls[2].attributes == {"axes": [-1], "keepdims": 1}
    assert [r.rule for r in matches(onnx.load(tmp_path / "m.onnx"), "Odd", rule_paths=(tmp_path,)).regions] == ["Odd"]


def test_nodes_that_are_not_there_or_make_no_rule(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx")
    result = call("rules", "new", "Mine", "--from", model, "--nodes", "MatMul/hh", "--into", tmp_path)
    assert result.exit_code == 1
    assert "did you mean 'MatMul/h'?" in result.stderr
    result = call("rules", "new", "Mine", "--from", model, "--nodes", "MatMul/h,MatMul/o", "--into", tmp_path)
    assert result.exit_code == 1
    assert "shares no value" in result.stderr
    assert not (tmp_path / "mine.rule").exists()


def test_a_node_that_clean_ups_took_is_told_apart_from_one_that_never_was(tmp_path: Path) -> None:
    body = "two = Constant <value = float {2.0}> () k = Add (two, two) y = Mul (x, k)"
    model = parse(f"g (float[4,8] x) => (float[4,8] y) {{ {body} }}")
    for node in model.graph.node:
        node.name = f"n_{node.output[0]}"
    onnx.save(model, tmp_path / "m.onnx")
    result = call("rules", "new", "Mine", "--from", tmp_path / "m.onnx", "--nodes", "n_k", "--into", tmp_path)
    assert result.exit_code == 1
    assert "node 'n_k' is gone before rules are matched: the constant 'k'" in result.stderr
    result = call("rules", "new", "Mine", "--from", tmp_path / "m.onnx", "--around", "y", "--into", tmp_path)
    assert result.exit_code == 0
    assert "Mul (" in (tmp_path / "mine.rule").read_text()


def test_wrong_usage(tmp_path: Path) -> None:
    model = write_model(tmp_path / "m.onnx")
    assert call("rules", "new", "Mine", "--from", model, "--into", tmp_path).exit_code == 2
    assert call("rules", "new", "Mine", "--nodes", "a", "--into", tmp_path).exit_code == 2
    result = call("rules", "new", "../Mine", "--into", tmp_path)
    assert result.exit_code == 1
    assert "cannot be the name of a rule" in result.stderr


def test_a_bound_that_is_computed_at_run_time_is_left_open(tmp_path: Path) -> None:
    body = """one = Constant <value = int64[1] {1}> () zero = Constant <value = int64[1] {0}> () sh = Shape (h)
        end = Gather (sh, one) s = Slice (x, zero, end, one) t = Tanh (s) y = Mul (t, t)"""
    model = parse(f"g (float[a, b] x, float[a, c] h) => (float[a, c] y) {{ {body} }}")
    for node in model.graph.node:
        node.name = node.output[0]
    path = tmp_path / "part.onnx"
    onnx.save(model, path)
    made = call("rules", "new", "Part", "--from", path, "--nodes", "s,t,y", "--into", tmp_path / "rules")
    assert made.exit_code == 0, made.output
    assert "ends" not in (tmp_path / "rules" / "part.rule").read_text()
