"""What one function of a rule file stands for: without a head, with alternatives, with steps left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusion_cli.language.pattern import Pattern
from fusion_cli.match import parse_rules
from fusion_cli.rulekit.findings import lint

HEAD = '<domain: "fusion.rules", opset_import: ["": 17]>\n'


def read(tmp_path: Path, text: str) -> tuple[Pattern, ...]:
    path = tmp_path / "mine.rule"
    path.write_text(f"# summary: r\n{text}")
    assert [str(f) for f in lint([path])[1]] == []
    (rule,) = parse_rules(path, "fusion")
    return rule.patterns


def said(pattern: Pattern) -> str:
    return f"{', '.join(pattern.inputs)} -> {', '.join(pattern.outputs)}: {'; '.join(map(str, pattern.calls))}"


def test_a_function_needs_no_head(tmp_path: Path) -> None:
    body = "(x) => (y) {\n    h = pattern.Linear (x)\n    y = com.microsoft.FastGelu (h)\n}\n"
    (first, second) = read(tmp_path, f"R {body}R <axis>\n(x) => (y) {{ y = Softmax <axis = @axis> (x) }}\n")
    assert first.opsets == {"": 23, "pattern": 1, "com.microsoft": 1}
    assert (first.line, second.line) == (2, 6)
    assert [c.line for c in (*first.calls, *second.calls)] == [3, 4, 7]


def test_heads_and_none_stand_in_one_file(tmp_path: Path) -> None:
    text = "R (x) => (y) { y = Relu (x) }\n" + HEAD + "R (x) => (y) { y = Tanh (x) }\nR (x) => (y) { y = Exp (x) }\n"
    assert [p.opsets[""] for p in read(tmp_path, text)] == [23, 17, 23]


def test_alternatives_take_the_place_of_the_first(tmp_path: Path) -> None:
    text = "# any: Relu, Tanh, com.microsoft.FastGelu\nR (x) => (y) {\n    h = Relu (x)\n    y = Exp (h)\n}\n"
    found = read(tmp_path, text)
    assert [str(p.calls[0]) for p in found] == ["h = Relu(x)", "h = Tanh(x)", "h = com.microsoft.FastGelu(x)"]
    assert {(p.calls[0].line, p.line) for p in found} == {(4, 3)}


def test_names_change_together_and_each_line_by_itself(tmp_path: Path) -> None:
    body = "    u = Sub (x, a)\n    v = Add (u, b)\n    y = Exp (v)\n"
    found = read(tmp_path, f"# any: Sub Add, Add Sub\n# any: Exp, Tanh\nR (x, a, b) => (y) {{\n{body}}}\n")
    assert [[c.op for c in p.calls] for p in found] == [
        ["Sub", "Add", "Exp"],
        ["Sub", "Add", "Tanh"],
        ["Add", "Sub", "Exp"],
        ["Add", "Sub", "Tanh"],
    ]


@pytest.mark.parametrize(
    ("keys", "body", "outputs", "plain"),
    [
        ("s", "s = Add (x, b)\n y = Relu (s)", "y", "x -> y: y = Relu(x)"),
        ("y", "s = Relu (x)\n y = Add (s, b)", "y", "x -> s: s = Relu(x)"),
        ("s, t", "s = Tanh (x)\n t = Add (s, b)\n y = Relu (t)", "y", "x -> y: y = Relu(x)"),
        ("s", "s = Add (x, b)\n y = Mul (s, b)", "y", "x, b -> y: y = Mul(x, b)"),
        (
            "b1",
            "b1, b2 = Split (b)\n u = Mul (x, b1)\n y = Add (u, b2)",
            "y",
            "x, b -> y: u = Mul(x, b); y = Add(u, b)",
        ),
        ("s", "k = Constant <value_float = 2.0> ()\n s = Mul (b, k)\n y = Add (x, s)", "y", "x, b -> y: y = Add(x, b)"),
    ],
)
def test_a_step_left_out_takes_what_only_it_needs(
    keys: str, body: str, outputs: str, plain: str, tmp_path: Path
) -> None:
    absent, present = read(tmp_path, f"# optional: {keys}\nR (x, b) => ({outputs}) {{\n {body}\n}}\n")
    assert said(absent) == plain
    assert not absent.constants
    assert len(present.calls) == body.count("\n") + 1 - body.count("Constant")
    assert present.inputs == ("x", "b")


def test_conditions_go_with_what_they_speak_of(tmp_path: Path) -> None:
    text = """# where: rank(x) == 2
# where: is_constant(b) and rank(x) == rank(b)
# where: rank(s) == 2
# optional: s
R (x, b) => (y) {
    s = Add (x, b)
    y = Relu (s)
}
"""
    absent, present = read(tmp_path, text)
    assert absent.where == ("rank(x) == 2",)
    assert len(present.where) == 3


def test_each_line_of_optional_steps_is_by_itself(tmp_path: Path) -> None:
    body = "    s = Tanh (x)\n    t = Exp (s)\n    y = Relu (t)\n"
    found = read(tmp_path, f"# optional: s\n# optional: t\nR (x) => (y) {{\n{body}}}\n")
    assert [[c.op for c in p.calls] for p in found] == [
        ["Relu"],
        ["Exp", "Relu"],
        ["Tanh", "Relu"],
        ["Tanh", "Exp", "Relu"],
    ]
