"""Values, attributes and operators of a rule: each trap with its place, its code and the name that is meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusion_cli.language.lint import lint_files, read_rule_file
from tests.helpers.rule_texts import HEAD, Traps, check_trap, rule

CALLS: Traps = {
    "typed input": (
        rule("    y = Relu (x)", signature="R (float16[N] x) => (y)"),
        "FUS018",
        "float16",
        "types and shapes are not matched",
    ),
    "undefined": (rule("    y = Add (x, xx)"), "FUS010", "xx)", "'xx' is not defined"),
    "defined twice": (rule("    x = Relu (x)\n    y = Relu (x)"), "FUS011", "x = ", "'x' is defined twice"),
    "never produced": (rule("    z = Relu (x)"), "FUS012", "y)", "output 'y' is never produced"),
    "input as output": (
        rule("    y = Relu (x)", signature="R (x) => (y, x)"),
        "FUS012",
        "x)\n{",
        "never produced, but it is an input",
    ),
    "output twice": (
        rule("    y = Relu (x)", signature="R (x) => (y, y)"),
        "FUS011",
        "y)\n{",
        "output 'y' is there twice",
    ),
    "attribute twice": (
        rule("    y = Softmax <axis = -1, axis = -2> (x)"),
        "FUS011",
        "axis = -2",
        "attribute 'axis' is there twice",
    ),
    "no output": (rule("    y = Relu (x)", signature="R (x) => ()"), "FUS012", "R (x)", "the rule has no output"),
    "number as output": (
        rule("    y = Constant <value_float = 1.0> ()\n    z = Mul (x, y)", signature="R (x) => (y, z)"),
        "FUS012",
        "y, z)",
        "is a number of the rule",
    ),
    "optional input": (
        rule("    y = Relu (x)", signature="R (x, b) => (y)"),
        "FUS013",
        "b) =",
        "an overload of its own",
    ),
    "result not used": (
        rule("    z = Tanh (x)\n    y = Relu (x)"),
        "FUS014",
        "z = ",
        "nothing reads the result of this Tanh",
    ),
    "not connected": (
        rule("    y = Relu (x)\n    z = Tanh (w)", signature="R (x, w) => (y, z)"),
        "FUS015",
        "Tanh",
        "shares no value",
    ),
    "nothing to start from": (
        rule("    a = pattern.Pointwise (x)\n    y = pattern.Move (a)"),
        "FUS015",
        "pattern.Pointwise",
        "has to start somewhere",
    ),
    "undeclared attribute": (rule("    y = Softmax <axis = @ax> (x)"), "FUS016", "@ax", "'@ax' is not declared"),
    "typed parameter": (
        rule("    y = Softmax <axis = @axis> (x)", signature="R <axis: int> (x) => (y)"),
        "FUS016",
        "R <",
        "no type and no default",
    ),
    "unused parameter": (
        rule("    y = Softmax (x)", signature="R <axis> (x) => (y)"),
        "FUS016",
        "R <",
        "no call reads the parameter 'axis'",
    ),
    "any of what does not exist": (
        rule("    y = Relu (x)", keys="\n# any: Relu, Tahn"),
        "FUS020",
        "Relu (x)",
        "no ONNX operator 'Tahn'; did you mean 'Tan'?",
    ),
    "optional and all there is": (
        rule("    y = Relu (x)", keys="\n# optional: y"),
        "FUS015",
        "R (x)",
        "no call to match",
    ),
    "no opset": (
        rule("    y = Relu (x)", head='<domain: "fusion.rules">\n'),
        "FUS017",
        "Relu",
        "opset_import lacks ONNX itself",
    ),
    "opset of the future": (
        rule("    y = Relu (x)", head='<domain: "fusion.rules", opset_import: ["": 999]>\n'),
        "FUS017",
        "R (x)",
        "no opset 999",
    ),
    "no domain": (
        rule("    y = com.microsoft.Gelu (x)"),
        "FUS017",
        "com.microsoft.Gelu",
        "domain 'com.microsoft' is missing",
    ),
    "domain nearly known": (
        rule("    y = com.microsft.Gelu (x)", head=HEAD.replace('"pattern": 1', '"com.microsft": 1')),
        "FUS017",
        "R (x)",
        "did you mean 'com.microsoft'?",
    ),
    "rest in the middle": (
        rule("    y = Clip (x, rest, x)", signature="R (x, rest) => (y)"),
        "FUS019",
        "rest, x)",
        "as its last one",
    ),
    "rest as a result": (rule("    rest = Relu (x)\n    y = Tanh (rest)"), "FUS019", "rest = ", "needs another name"),
    "rest of an idiom": (
        rule("    y = pattern.Linear (x, rest)", signature="R (x, rest) => (y)"),
        "FUS019",
        "rest)\n}",
        "further inputs of an operator",
    ),
    "idiom without its domain": (rule("    y = SiLU (x)"), "FUS020", "SiLU", "the idiom is called as pattern.Silu"),
    "operator as an idiom": (rule("    y = pattern.Relu (x)"), "FUS025", "Relu", "called without 'pattern.'"),
    "fusion as an idiom": (rule("    y = pattern.R (x)"), "FUS025", "R (x)\n}", "'R' is a fusion"),
    "attribute of Constant": (
        rule("    c = Constant <value_flot = 2.0> ()\n    y = Mul (x, c)"),
        "FUS021",
        "value_flot",
        "did you mean 'value_float'?",
    ),
    "input as an attribute": (
        rule("    y = Clip <min = 0.0> (x)"),
        "FUS021",
        "min",
        "'min' is an input of Clip, not an attribute: Clip (input, min, max)",
    ),
    "integer for a number": (rule("    y = Elu <alpha = 1> (x)"), "FUS022", "alpha", "a number with a point: 1.0"),
    "axis from the front": (rule("    y = Softmax <axis = 1> (x)"), "FUS028", "axis", "-1 for the last: 1 is never"),
    "axes from the front": (
        rule("    y = ReduceMean <axes = [1, 2]> (x)"),
        "FUS028",
        "axes",
        "-1 for the last: 1 is never",
    ),
    "operator": (rule("    y = Reluu (x)"), "FUS020", "Reluu", "did you mean 'Relu'?"),
    "contributed operator": (
        rule("    y = com.microsoft.FastGleu (x)", head=HEAD.replace('"pattern": 1', '"com.microsoft": 1')),
        "FUS020",
        "com.microsoft",
        "did you mean 'FastGelu'?",
    ),
    "attribute": (rule("    y = Softmax <axsi = 1> (x)"), "FUS021", "axsi", "did you mean 'axis'?"),
    "attribute of Pointwise": (
        rule("    h = Relu (x)\n    y = pattern.Pointwise <mix_ops = 1> (h)"),
        "FUS021",
        "mix_ops",
        "did you mean 'min_ops'?",
    ),
    "attribute of an idiom": (
        rule("    y = pattern.Linear <axis = 1> (x)"),
        "FUS021",
        "axis",
        "no overload of 'Linear' has a parameter 'axis'",
    ),
    "kind of attribute": (rule('    y = Softmax <axis = "x"> (x)'), "FUS022", "axis", "is an integer"),
    "impossible bounds": (
        rule("    h = Relu (x)\n    y = pattern.Pointwise <min_ops = 3, max_ops = 2> (h)"),
        "FUS022",
        "max_ops",
        "leaves room for no operator",
    ),
    "too many inputs": (rule("    y = Relu (x, x)"), "FUS023", "Relu", "takes 1 inputs, not 2"),
    "too few inputs": (rule("    y = Gemm (x)"), "FUS023", "Gemm", "named 'rest'"),
    "axes as an input": (
        rule("    y = ReduceMean (x, a)", signature="R (x, a) => (y)"),
        "FUS023",
        "a)\n}",
        "write <axes = ...>",
    ),
    "too many outputs": (
        rule("    y, z = Relu (x)", signature="R (x) => (y, z)"),
        "FUS023",
        "z = ",
        "Relu has 1 outputs, not 2",
    ),
    "operator of a later opset": (rule("    y = Swish (x)"), "FUS024", "Swish", "'Swish' came with opset 24"),
    "idiom": (rule("    y = pattern.Linera (x)"), "FUS025", "Linera", "did you mean 'Linear'?"),
    "inputs of an idiom": (
        rule("    y = pattern.Mish (x, w)", signature="R (x, w) => (y)"),
        "FUS026",
        "pattern.Mish",
        "no overload of 'Mish' has 2 inputs",
    ),
    "outputs of an idiom": (
        rule("    y, z = pattern.Mish (x)", signature="R (x) => (y, z)"),
        "FUS026",
        "z = ",
        "no overload of 'Mish' has 2 outputs",
    ),
}


@pytest.mark.parametrize(("text", "code", "at", "message"), CALLS.values(), ids=CALLS)
def test_a_trap_is_found_where_it_is(tmp_path: Path, text: str, code: str, at: str, message: str) -> None:
    check_trap(tmp_path, text, code, at, message)


def test_a_least_number_of_operators_needs_no_most(tmp_path: Path) -> None:
    path = tmp_path / "r.rule"
    path.write_text(rule("    h = Relu (x)\n    y = pattern.Pointwise <min_ops = 3> (h)"), "utf-8")
    assert lint_files([read_rule_file(path, "fusion")]) == []
