"""Rule files: what they may say, and how errors in them are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusion_cli.errors import RuleError
from fusion_cli.match import load_rules, parse_rules

HEAD = '<domain: "fusion.rules", opset_import: ["": 23, "pattern": 1]>\n'
GOOD = f"""# summary: Twice the input
# opt-level: 2
# kernel: auto
# where: rank(x) == 2
{HEAD}Twice (x) => (y)
{{
    two = Constant <value = float {{2.0}}> ()
    y = Mul (x, two)
}}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.rule"
    path.write_text(text)
    return path


def test_a_rule_file_becomes_a_rule(tmp_path: Path) -> None:
    (rule,) = parse_rules(write(tmp_path, GOOD), "fusion")
    assert (rule.name, rule.summary, rule.opt_level, rule.kernel) == ("Twice", "Twice the input", 2, "auto")
    (pattern,) = rule.patterns
    assert pattern.constants == {"two": 2.0}
    assert pattern.where == ("rank(x) == 2",)
    assert [str(c) for c in pattern.calls] == ["y = Mul(x, two)"]


def test_conditions_belong_to_the_function_they_precede(tmp_path: Path) -> None:
    second = GOOD.replace("rank(x) == 2", "rank(x) == 3").replace("# summary: Twice the input\n", "")
    (rule,) = parse_rules(write(tmp_path, GOOD + second), "fusion")
    assert [p.where for p in rule.patterns] == [("rank(x) == 2",), ("rank(x) == 3",)]
    assert rule.summary == "Twice the input"


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "message"),
    [
        ("y = Mul", "y Mul", 9, 5, "expected a call, `result = Operator (inputs)`"),
        ("(x, two)", "(x, tow)", 9, 17, "'tow' is not defined; did you mean 'two'?"),
        ("    y = Mul", "    z = Mul", 6, 15, "output 'y' is never produced"),
        ("{\n    two", "{\n    x = Neg (two)\n    two", 8, 5, "'x' is defined twice"),
        ("Mul (", "Mull (", 9, 9, "no ONNX operator 'Mull'; did you mean 'Mul'?"),
        ("Mul (", "pattern.Gelo (", 9, 17, "no idiom 'Gelo'"),
        ("Mul (", "com.microsoft.Gelu (", 9, 9, "domain 'com.microsoft' is missing from opset_import"),
        ("Mul (x, two)", "Softmax <axis = @axis> (x)", 9, 25, "'@axis' is not declared"),
        ("rank(x) == 2", "rank(x) ==", 4, 20, "does not parse"),
        ("rank(x) == 2", "rnak(x) == 2", 4, 10, "no predicate 'rnak'"),
        ("opt-level: 2", "opt-level: 7", 2, 14, "opt-level is 0, 1, 2 or 3, not '7'"),
        ("kernel: auto", "kernel: ../evil", 3, 11, "not a template name"),
        ("kernel: auto", "kernel: mine", 3, 11, "no template mine.cc.jinja or mine.cu.jinja"),
    ],
)
def test_errors_name_file_line_and_column(
    tmp_path: Path, old: str, new: str, line: int | None, column: int | None, message: str
) -> None:
    assert old in GOOD
    write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(RuleError) as caught:
        load_rules(rule_paths=[tmp_path])
    text = str(caught.value)
    assert message in text
    assert "mine.rule" in text
    if line is not None:
        assert f"mine.rule:{line}:{column}:" in text
        assert text.splitlines()[-1].strip() == "^"


def test_text_after_the_last_rule_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, GOOD + "trailing words")
    with pytest.raises(RuleError, match=r"mine\.rule:11:"):
        load_rules(rule_paths=[tmp_path])


def test_a_file_without_a_rule(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="holds no rule"):
        parse_rules(write(tmp_path, "# summary: nothing\n"), "fusion")


def test_predicates_cannot_reach_python(tmp_path: Path) -> None:
    write(tmp_path, GOOD.replace("rank(x) == 2", "x.__class__.__mro__"))
    with pytest.raises(RuleError, match=r"'\.__class__' is none of its parts"):
        load_rules(["Twice"], [tmp_path])
    write(tmp_path, GOOD.replace("rank(x) == 2", "x.__class__.__base__.__subclasses__()"))
    with pytest.raises(RuleError, match="only predicates can be called"):
        load_rules(["Twice"], [tmp_path])


def test_unknown_rule_names_the_nearest() -> None:
    with pytest.raises(RuleError, match=r"no fusion rule 'AttentonFFN'.*did you mean 'AttentionFFN'"):
        load_rules(["AttentonFFN"])


def test_missing_rule_folder(tmp_path: Path) -> None:
    with pytest.raises(RuleError, match="no such rule folder"):
        load_rules(rule_paths=[tmp_path / "none"])


def test_idioms_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "idioms").mkdir()
    for name, other in (("Ping", "Pong"), ("Pong", "Ping")):
        text = f"{HEAD}{name} (x) => (y)\n{{\n    y = pattern.{other} (x)\n}}\n"
        (tmp_path / "idioms" / f"{name}.rule").write_text(text)
    with pytest.raises(RuleError, match="in a circle: Ping -> Pong -> Ping"):
        load_rules(rule_paths=[tmp_path])


def test_opt_level_limits_the_fusions() -> None:
    assert "AttentionFFN" not in {r.name for r in load_rules(opt_level=1).fusions}
    assert "AttentionFFN" in {r.name for r in load_rules(opt_level=2).fusions}
    assert load_rules(opt_level=0).fusions == ()


def test_every_bundled_rule_has_a_summary() -> None:
    rules = load_rules()
    assert all(r.summary for r in (*rules.idioms, *rules.fusions))
