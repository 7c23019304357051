"""What keeps a rule from being read: each trap with its place, its code and what is meant."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fusion_cli.language.lint import lint_files, read_rule_file
from fusion_cli.rulekit.findings import lint
from tests.helpers.cli_helpers import call
from tests.helpers.rule_texts import Traps, check_trap, rule, write

TEXT: Traps = {
    "no parentheses": (rule("    y = Relu x"), "FUS001", "Relu x", "expected the inputs in parentheses"),
    "number as operand": (
        rule("    a = Mul (x, 2)\n    y = Relu (a)"),
        "FUS001",
        "2)\n",
        "write `c = Constant <value_float = 2.0> ()` in a line before",
    ),
    "number as result": (rule("    a = 0.5\n    y = Mul (x, a)"), "FUS001", "0.5", "Constant <value_float = 0.5> ()"),
    "call in a call": (rule("    y = Relu (Tanh (x))"), "FUS001", "(x))", "give its result a name in a line before"),
    "infix": (rule("    y = x * x"), "FUS001", "* x", "an operator is called by its name"),
    "open parenthesis": (rule("    y = Relu (x"), "FUS001", "(x\n}", "this '(' is not closed by ')'"),
    "open brace": (rule("    y = Relu (x)").removesuffix("}\n"), "FUS001", "{\n", "this '{' is not closed by '}'"),
    "no brace": (rule("    y = Relu (x)").replace("{\n", ""), "FUS001", "y = Relu", "expected '{' before the calls"),
    "thin arrow": (rule("    y = Relu (x)").replace("=>", "->"), "FUS001", "-> (y)", "joined by '=>', not '->'"),
    "semicolon": (rule("    y = Relu (x);"), "FUS001", ";", "without ';'"),
    "no call": (rule("    y Relu (x)"), "FUS001", "y Relu", "but no '=' follows ('Relu' does)"),
    "block comment": (rule("    /* why */\n    y = Relu (x)"), "FUS001", "/* why", "a comment starts with '#'"),
    "attribute among inputs": (
        rule("    y = Softmax (x, axis=-1)"),
        "FUS001",
        "=-1",
        "attributes stand in angle brackets before the inputs",
    ),
    "attribute in brackets": (rule("    y = Softmax [axis = -1] (x)"), "FUS001", "[axis", "in angle brackets"),
    "attribute with a colon": (rule("    y = Softmax <axis: -1> (x)"), "FUS001", ": -1", "written with '='"),
    "list in parentheses": (
        rule("    y = Transpose <perm = (1, 0)> (x)"),
        "FUS001",
        "(1, 0)",
        "a list is written in square brackets",
    ),
    "word as value": (
        rule("    y = ReduceMean <axes = [-1], keepdims = True> (x)"),
        "FUS001",
        "True",
        "a truth value is written 1",
    ),
    "parameter as value": (rule("    y = Softmax <axis = ax> (x)"), "FUS001", "ax>", "is read as @ax"),
    "type as value": (rule("    y = Cast <to = float16> (x)"), "FUS001", "float16", "float16 is 10"),
    "number without its first digit": (
        rule("    y = Elu <alpha = .5> (x)"),
        "FUS001",
        ".5",
        "starts with a digit: 0.5",
    ),
    "fraction": (rule("    y = Elu <alpha = 1/3> (x)"), "FUS001", "/3", "a number is written out"),
    "number out of range": (
        rule("    y = Softmax <axis = 99999999999999999999> (x)"),
        "FUS001",
        "99999999999999999999",
        "out of the range",
    ),
    "number apart from its sign": (rule("    y = Elu <alpha = - 1.0> (x)"), "FUS001", "1.0", "out of the range"),
    "body": (
        rule("    y = If (x) <then_branch = g () => (float[N] a) { a = Relu (x) }>"),
        "FUS001",
        "() => (float",
        "bodies of control flow are not matched",
    ),
    "open text": (rule('    y = Einsum <equation = "ab> (x)'), "FUS001", '"ab', "no second quote in its line"),
    "hard space": (rule("    y\u00a0= Relu (x)"), "FUS001", "\u00a0", "the character U+00A0 has no place"),
    "head": (
        rule("    y = Relu (x)", head='<domian: "fusion.rules", opset_import: ["": 23]>\n'),
        "FUS001",
        "domian",
        "did you mean 'domain'?",
    ),
    "version in quotes": (
        rule("    y = Relu (x)", head='<domain: "fusion.rules", opset_import: ["": "23"]>\n'),
        "FUS001",
        '"23"',
        "a number without quotes",
    ),
    "letters of other alphabets": (rule("    größe = Relu (x)\n    y = Tanh (x)"), "FUS004", "größe", "is not a name"),
    "quoted name": (rule('    y = Relu ("x")'), "FUS004", '"x"', "without quotes"),
    "quoted rule": (rule("    y = Relu (x)", signature='"../R" (x) => (y)'), "FUS004", '"../R"', "without quotes"),
    "too many calls": (
        rule(
            "\n".join(
                ["    a0 = Relu (x)", *(f"    a{i + 1} = Relu (a{i})" for i in range(100)), "    y = Tanh (a100)"]
            )
        ),
        "FUS008",
        "Relu (a99)",
        "a rule of 102 calls; 100 at most",
    ),
    "trailing text": (rule("    y = Relu (x)") + "more words", "FUS002", "more", "text outside of a function"),
    "text between functions": (
        rule("    y = Relu (x)") + "stray\n" + rule("    y = Tanh (x)"),
        "FUS002",
        "stray",
        "text outside of a function",
    ),
    "header line at the end": (
        rule("    y = Relu (x)") + "# where: rank(x) == 2\n",
        "FUS002",
        "rank(x)",
        "no function",
    ),
    "header line inside": (
        rule("    # where: rank(x) == 2\n    y = Relu (x)"),
        "FUS002",
        "rank(x)",
        "stands before the function",
    ),
    "slashes": (rule("    // why\n    y = Relu (x)"), "FUS003", "// why", "starts with '#', not '//'"),
    "hyphen": (rule("    a-b = Relu (x)\n    y = Relu (x)"), "FUS004", "a-b", "'a-b' is not a name"),
    "dot": (rule("    a.b = Relu (x)\n    y = Relu (x)"), "FUS004", "a.b", "'a.b' is not a name"),
    "half precision": (
        rule("    c = Constant <value = float16 {1.0}> ()\n    y = Mul (x, c)"),
        "FUS005",
        "float16",
        "no float16 literals",
    ),
    "constant of two": (
        rule("    c = Constant <value = float[2] {1.0, 2.0}> ()\n    y = Mul (x, c)"),
        "FUS005",
        "Constant",
        "one number",
    ),
    "no rule": ("# summary: none\n", "FUS006", "# summary", "no rule"),
}


@pytest.mark.parametrize(("text", "code", "at", "message"), TEXT.values(), ids=TEXT)
def test_a_trap_is_found_where_it_is(tmp_path: Path, text: str, code: str, at: str, message: str) -> None:
    check_trap(tmp_path, text, code, at, message)


FILES = {
    "not text": (rule("    y = Relu (x)").encode("utf-16"), "FUS007", 1, 1),
    "another encoding": (rule("    # größe\n    y = Relu (x)").encode("latin-1"), "FUS007", 5, 9),
    "empty": (b"", "FUS006", 1, 1),
    "line endings of Windows": (rule("    y = Reluu (x)").replace("\n", "\r\n").encode(), "FUS020", 5, 9),
    "line endings of old": (rule("    y = Reluu (x)").replace("\n", "\r").encode(), "FUS020", 5, 9),
    "tabs": (rule("\ty\t=\tReluu (x)").encode(), "FUS020", 5, 6),
    "byte order mark": (b"\xef\xbb\xbf" + rule("    y = Reluu (x)").encode(), "FUS020", 5, 9),
    "long line": (rule("    y = Relu (x)" + " " * 5000 + "oops").encode(), "FUS001", 5, 5017),
}


@pytest.mark.parametrize(("content", "code", "line", "column"), FILES.values(), ids=FILES)
def test_any_file_is_told_what_is_wrong(tmp_path: Path, content: bytes, code: str, line: int, column: int) -> None:
    path = tmp_path / "mine.rule"
    path.write_bytes(content)
    result = call("rules", "lint", path)
    assert result.exit_code == 1
    assert f"{path}:{line}:{column}: " in result.stdout
    assert f"[{code}]" in result.stdout
    shown = result.stdout.splitlines()
    assert len(max(shown, key=len)) < 500
    if code == "FUS020":
        assert shown[1][shown[2].index("^") :].startswith("Reluu")


def test_a_file_that_cannot_be_read_hides_no_fault_of_another(tmp_path: Path) -> None:
    (tmp_path / "a.rule").write_bytes(b"\xff")
    (tmp_path / "aa.rule").mkdir()
    path = write(tmp_path, rule("    y = Reluu (x)"), "b.rule")
    assert [f.code for f in lint([tmp_path])[1]] == ["FUS007", "FUS007", "FUS020"]
    assert [f.code for f in lint([path])[1]] == ["FUS020"]


def test_whatever_is_missing_is_a_finding(tmp_path: Path) -> None:
    text = rule('    h = Einsum <equation = "ab,bc->ac"> (x, x)\n    y = pattern.Pointwise <max_ops = 2> (h)')
    words = re.findall(r"\s*(?:\w+|=>|[^\w\s])", text)
    start = words.index("\n<")
    for i in range(start, len(words)):
        for changed in (words[:i], words[:i] + words[i + 1 :], [*words[:i], words[i] * 2, *words[i + 1 :]]):
            lint_files([read_rule_file(write(tmp_path, "".join(changed)), "fusion")])
