"""Header lines of a rule, and overloads that say the same: each trap with its place and its code."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusion_cli.rulekit.findings import lint
from tests.helpers.cli_helpers import call, write_model
from tests.helpers.rule_texts import HEAD, Traps, check_trap, rule, write

HEADERS: Traps = {
    "any of what is not called": (
        rule("    y = Relu (x)", keys="\n# any: Rely, Tanh"),
        "FUS031",
        "Rely",
        "the function calls no 'Rely'",
    ),
    "any of one": (rule("    y = Relu (x)", keys="\n# any: Relu"), "FUS031", "Relu\n<", "between commas"),
    "any of different lengths": (
        rule("    y = Relu (x)", keys="\n# any: Relu, Tanh Exp"),
        "FUS031",
        "Relu, Tanh",
        "each of as many operators as the first",
    ),
    "optional what nothing makes": (
        rule("    y = Relu (x)", keys="\n# optional: x"),
        "FUS031",
        "x\n<",
        "has no step that makes 'x'",
    ),
    "overloads without number": (
        rule("    y = Relu (x)", keys="\n# any: Relu, Tanh" * 7),
        "FUS031",
        "Relu, Tanh" + "\n# any: Relu, Tanh" * 6,
        "stands for 128 overloads; 64 at most",
    ),
    "header key": (
        rule("    y = Relu (x)", keys="\n# wehre: rank(x) == 2"),
        "FUS030",
        "rank(x)",
        "did you mean 'where'?",
    ),
    "header value": (rule("    y = Relu (x)", keys="\n# counted: maybe"), "FUS031", "maybe", "counted is yes or no"),
    "header key twice": (rule("    y = Relu (x)", keys="\n# summary: s"), "FUS031", "s\n<", "said twice"),
    "predicate": (
        rule("    y = Relu (x)", keys="\n# where: 2 == rnak(x)"),
        "FUS033",
        "rnak",
        "no predicate 'rnak'; did you mean 'rank'?",
    ),
    "method": (rule("    y = Relu (x)", keys="\n# where: x.f()"), "FUS033", "x.f()", "only predicates can be called"),
    "name in a condition": (
        rule("    y = Relu (x)", keys="\n# where: rank(xx) == 2"),
        "FUS034",
        "xx",
        "'xx' is not a value of this function",
    ),
    "constant in a condition": (
        rule("    c = Constant <value_float = 1.0> ()\n    y = Mul (x, c)", keys="\n# where: value(c) == 1"),
        "FUS034",
        "c) ==",
        "is a number of the rule",
    ),
    "header line in capitals": (
        rule("    y = Relu (x)", keys="\n# Where: rank(x) == 2"),
        "FUS030",
        "rank(x)",
        "is written '# where: ...'",
    ),
    "header line without its colon": (
        rule("    y = Relu (x)", keys="\n# where rank(x) == 2"),
        "FUS030",
        "rank(x)",
        "is written '# where: ...'",
    ),
    "header line with an underscore": (
        rule("    y = Relu (x)", keys="\n# opt_level: 2"),
        "FUS030",
        "2\n<",
        "is written '# opt-level: ...'",
    ),
    "file of a template": (
        rule("    y = Relu (x)", keys="\n# kernel: mine.cc.jinja"),
        "FUS035",
        "mine.cc",
        "write 'mine'",
    ),
    "template": (rule("    y = Relu (x)", keys="\n# kernel: min"), "FUS035", "min", "did you mean 'mine'?"),
    "template outside": (rule("    y = Relu (x)", keys="\n# kernel: ../m"), "FUS035", "../m", "not a template name"),
    "target": (
        rule("    y = Relu (x)", keys="\n# targets: amx sm_90"),
        "FUS031",
        "sm_90",
        "no target 'sm_90'; did you mean 'sm_90a'? (there are portable, cpu, amx,",
    ),
    "target that is no target": (rule("    y = Relu (x)", keys="\n# targets: auto"), "FUS031", "auto", "no target"),
    "unless": (
        rule("    y = Relu (x)", keys="\n# unless: Mish, Linera"),
        "FUS036",
        "Linera",
        "did you mean 'Linear'?",
    ),
    "overload twice": (
        rule("    y = Mul (x, b)", signature="R (x, b) => (y)") + HEAD + "R (q, c) => (r)\n{\n    r = Mul (q, c)\n}",
        "FUS040",
        "R (q",
        "says the same as the overload in line 3",
    ),
    "overload swapped": (
        rule("    y = Mul (x, b)", signature="R (x, b) => (y)") + HEAD + "R (x, b) => (y)\n{\n    y = Mul (b, x)\n}",
        "FUS041",
        "R (x, b) => (y)\n{\n    y = Mul (b",
        "operands swapped",
    ),
}


@pytest.mark.parametrize(("text", "code", "at", "message"), HEADERS.values(), ids=HEADERS)
def test_a_trap_is_found_where_it_is(tmp_path: Path, text: str, code: str, at: str, message: str) -> None:
    check_trap(tmp_path, text, code, at, message)


@pytest.mark.parametrize(
    "text", ["Where the mask is added", "Note: none", "where a row (of x) ends", "see https://x.y"]
)
def test_a_comment_is_no_header_line(tmp_path: Path, text: str) -> None:
    assert lint([write(tmp_path, rule("    y = Relu (x)", keys=f"\n# {text}"))])[1] == []


DEFINITIONS = {
    "operator": ("    y = Softmax (x)", "R (x) => (y)", "", "elementwise operators only"),
    "inputs": ("    y = Mul (x, w)", "R (x, w) => (y)", "", "one input and one output"),
    "condition": ("    y = Tanh (x)", "R (x) => (y)", "\n# where: rank(x) == 2", "takes no conditions"),
}


@pytest.mark.parametrize(("body", "signature", "keys", "message"), DEFINITIONS.values(), ids=DEFINITIONS)
def test_definitions_by_value_are_functions_of_one_value(
    tmp_path: Path, body: str, signature: str, keys: str, message: str
) -> None:
    text = rule(body, signature=signature, keys=f"\n# match: values{keys}")
    _, findings = lint([write(tmp_path, text, "idioms/mine.rule")])
    assert [(f.code, message in f.message) for f in findings] == [("FUS037", True)]


def test_fusions_are_not_matched_by_value(tmp_path: Path) -> None:
    _, findings = lint([write(tmp_path, rule("    y = Tanh (x)", keys="\n# match: values"))])
    assert [f.code for f in findings] == ["FUS031"]


def test_a_target_that_there_is_not_is_an_error_of_a_run_too(tmp_path: Path) -> None:
    write(tmp_path, rule("    y = Relu (x)", keys="\n# targets: cpu, amx"))
    model = write_model(tmp_path / "m.onnx")
    result = call("optimize", model, "-o", tmp_path / "out.onnx", "--target", "portable", "--rule-path", tmp_path)
    assert result.exit_code == 1
    assert "mine.rule:2:12: no target 'cpu,'; did you mean 'cpu'?" in result.stderr
