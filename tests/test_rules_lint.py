"""`rules lint`: every trap of the rule text, each with its place, its code and the name that is meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fusion_cli.match.lint.codes import CODES
from fusion_cli.rulekit.lint import lint
from tests.cli_helpers import call

HEAD = '<domain: "fusion.rules", opset_import: ["": 23, "pattern": 1]>\n'


def rule(body: str, head: str = HEAD, signature: str = "R (x) => (y)", keys: str = "") -> str:
    """A rule whose body starts in line 4 after one header line and the two lines of its head."""
    return f"# summary: r{keys}\n{head}{signature}\n{{\n{body}\n}}\n"


def write(folder: Path, text: str, name: str = "mine.rule") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


CASES = {
    "does not parse": (rule("    y = Relu x"), "FUS001", "x\n}", "Expected character ("),
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
    "undefined": (rule("    y = Add (x, xx)"), "FUS010", "xx)", "'xx' is not defined"),
    "defined twice": (rule("    x = Relu (x)\n    y = Relu (x)"), "FUS011", "x = ", "'x' is defined twice"),
    "never produced": (rule("    z = Relu (x)"), "FUS012", "y)", "output 'y' is never produced"),
    "input as output": (
        rule("    y = Relu (x)", signature="R (x) => (y, x)"),
        "FUS012",
        "x)\n{",
        "never produced, but it is an input",
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
    "no head": ("# summary: r\nR (x) => (y)\n{\n    y = Relu (x)\n}\n", "FUS017", "R (x)", "a function starts with"),
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
    "header key": (
        rule("    y = Relu (x)", keys="\n# wehre: rank(x) == 2"),
        "FUS030",
        "rank(x)",
        "did you mean 'where'?",
    ),
    "header value": (rule("    y = Relu (x)", keys="\n# counted: maybe"), "FUS031", "maybe", "counted is yes or no"),
    "header key twice": (rule("    y = Relu (x)", keys="\n# summary: s"), "FUS031", "s\n<", "said twice"),
    "condition": (rule("    y = Relu (x)", keys="\n# where: rank(x) =="), "FUS032", "rank(x)", "does not parse"),
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
    "template": (rule("    y = Relu (x)", keys="\n# kernel: min"), "FUS035", "min", "did you mean 'mine'?"),
    "template outside": (rule("    y = Relu (x)", keys="\n# kernel: ../m"), "FUS035", "../m", "not a template name"),
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


@pytest.mark.parametrize(("text", "code", "at", "message"), CASES.values(), ids=CASES)
def test_a_trap_is_found_where_it_is(tmp_path: Path, text: str, code: str, at: str, message: str) -> None:
    path = write(tmp_path, text)
    (tmp_path / "mine.cc.jinja").write_text("")
    _, findings = lint([path])
    found = next(f for f in findings if f.code == code)
    before = text[: text.rindex(at)]
    assert (found.line, found.column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert message in found.message
    shown = str(found).splitlines()
    assert shown[2].index("^") - 4 == found.column - 1
    assert shown[1][4:] == text.splitlines()[found.line - 1]


def test_every_code_has_a_case() -> None:
    others = {"FUS027", "FUS037", "FUS042"}
    assert {code for _, code, _, _ in CASES.values()} | others == set(CODES)


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


def test_idioms_in_a_circle_are_found_once(tmp_path: Path) -> None:
    for name, other in (("Ping", "Pong"), ("Pong", "Pang"), ("Pang", "Ping")):
        text = rule(f"    y = pattern.{other} (x)", signature=f"{name} (x) => (y)")
        write(tmp_path, text, f"idioms/{name}.rule")
    _, findings = lint([tmp_path])
    assert [f.code for f in findings] == ["FUS027"]
    assert "Pang -> Ping -> Pong -> Pang" in findings[0].message


def test_taking_a_bundled_rules_place_is_a_note(tmp_path: Path) -> None:
    path = write(tmp_path, rule("    y = Relu (x)", signature="LinearActivation (x) => (y)"))
    result = call("rules", "lint", path)
    assert result.exit_code == 0
    assert "note: " in result.stdout
    assert "takes the place of the bundled rule 'LinearActivation'" in result.stdout


def test_a_rule_in_two_files_of_a_folder_is_a_fault(tmp_path: Path) -> None:
    for name in ("a.rule", "b.rule"):
        write(tmp_path, rule("    y = Relu (x)"), name)
    _, findings = lint([tmp_path])
    assert [(f.code, f.severity, f.path.name) for f in findings] == [("FUS042", "warning", "b.rule")]


def test_all_faults_of_all_files_come_at_once(tmp_path: Path) -> None:
    write(tmp_path, rule("    a = Reluu (xx)\n    y = Softmax <axsi = 1> (a)") + rule("    y = Tnah (x)"), "a.rule")
    write(tmp_path, rule("    y = Relu x") + rule("    y = Gelo (x)"), "b.rule")
    result = call("rules", "lint", tmp_path)
    assert result.exit_code == 1
    for place in ("a.rule:5:9:", "a.rule:5:16:", "a.rule:6:18:", "a.rule:12:9:", "b.rule:5:14:", "b.rule:11:9:"):
        assert place in result.stdout
    assert result.stdout.splitlines()[-1].endswith("faults found")


def test_findings_as_json(tmp_path: Path) -> None:
    path = write(tmp_path, rule("    y = Reluu (x)"))
    result = call("rules", "lint", "--json", path)
    assert result.exit_code == 1
    (finding,) = json.loads(result.stdout)["findings"]
    assert (finding["path"], finding["line"], finding["column"]) == (str(path), 5, 9)
    assert (finding["code"], finding["severity"]) == ("FUS020", "error")


def test_a_file_knows_the_idioms_beside_it(tmp_path: Path) -> None:
    write(tmp_path, rule("    y = Relu (x)", signature="Own (x) => (y)"), "idioms/own.rule")
    path = write(tmp_path, rule("    h = pattern.Own (x)\n    y = Tanh (h)"))
    files, findings = lint([path])
    assert [f.path for f in files] == [path]
    assert findings == []


def test_the_bundled_rules_have_no_fault() -> None:
    _, findings = lint([])
    assert [str(f) for f in findings] == []


def test_what_does_not_exist(tmp_path: Path) -> None:
    result = call("rules", "lint", tmp_path / "none.rule")
    assert result.exit_code == 1
    assert "no such rule file or folder" in result.stderr
