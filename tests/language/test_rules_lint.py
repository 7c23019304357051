"""`rules lint`: every trap of the rule text, each with its place, its code and the name that is meant."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fusion_cli.language.lint import lint_files, read_rule_file
from fusion_cli.language.lint.kinds import SIGNATURES
from fusion_cli.language.predicates import PREDICATES
from fusion_cli.rulekit.findings import lint
from tests.helpers.cli_helpers import call
from tests.helpers.reason_codes import explained

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
    "typed input": (
        rule("    y = Relu (x)", signature="R (float16[N] x) => (y)"),
        "FUS018",
        "float16",
        "types and shapes are not matched",
    ),
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
    "any of what does not exist": (
        rule("    y = Relu (x)", keys="\n# any: Relu, Tahn"),
        "FUS020",
        "Relu (x)",
        "no ONNX operator 'Tahn'; did you mean 'Tan'?",
    ),
    "optional what nothing makes": (
        rule("    y = Relu (x)", keys="\n# optional: x"),
        "FUS031",
        "x\n<",
        "has no step that makes 'x'",
    ),
    "optional and all there is": (
        rule("    y = Relu (x)", keys="\n# optional: y"),
        "FUS015",
        "R (x)",
        "no call to match",
    ),
    "overloads without number": (
        rule("    y = Relu (x)", keys="\n# any: Relu, Tanh" * 7),
        "FUS031",
        "Relu, Tanh" + "\n# any: Relu, Tanh" * 6,
        "stands for 128 overloads; 64 at most",
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


CONDITIONS = {
    "": ("FUS031", "", "says nothing"),
    "rank(w) ==": ("FUS032", "", "it has no end"),
    "rank(w == 2": ("FUS032", "", "it has no end"),
    "rank(w) = 2": ("FUS032", "= 2", "write '==' for '='"),
    "rank(w) == 2 && is_constant(w)": ("FUS032", "&&", "write 'and' for '&&'"),
    "rank(w) == 2 AND is_constant(w)": ("FUS032", "AND", "write 'and' for 'AND'"),
    "rank(w) == 2 or\\": ("FUS032", "\\", "unexpected char"),
    "!is_constant(w)": ("FUS032", "!", "write 'not' for '!'"),
    "rank(w) ≥ 2": ("FUS032", "≥", "write '>=' for '≥'"),
    "rank(w) == 2 # weights": ("FUS032", "#", "a comment needs a line of its own"),
    "{{ rank(w) == 2 }}": ("FUS032", "{{", "without the braces of a template"),
    "rank(w) 2": ("FUS032", "2", "there is more after the expression"),
    "9 ** 9 ** 9 ** 9 > rank(w)": ("FUS032", "9", "pow is not part of a condition"),
    "('%999999999d' ~ rank(w)) == 1": ("FUS032", "(", "concat is not part of a condition"),
    "not " * 300 + "is_constant(w)": ("FUS032", "not", "too long"),
    "(" * 50 + "rank(w)" + ")" * 50 + " == 2": ("FUS032", "(", "nested too deep"),
    " and ".join(["rank(w) == 2"] * 500): ("FUS032", "rank", "too long"),
    "rank() == 2": ("FUS033", "rank", "rank is asked as rank(x)"),
    "rank(w, x) == 2": ("FUS033", "rank", "rank is asked as rank(x)"),
    "dim(w) == 2": ("FUS033", "dim", "dim is asked as dim(x, 0)"),
    "dim(w, i=0) == 2": ("FUS033", "dim", "has no names"),
    "dim(0, 0) == 2": ("FUS033", "dim", "dim is asked about a value of the rule, not a number"),
    "rank(w) == 2 and dim(w, '0') == 2": ("FUS033", "dim", "dim is asked about a number, not a text"),
    "rank(rank(w)) == 2": ("FUS033", "rank", "not a number"),
    "divisible(w, 8)": ("FUS033", "divisible", "divisible is asked about a size, not a value of the rule"),
    "same_shape(w)": ("FUS033", "same_shape", "same_shape(x, y)"),
    "w.shape[0] == 2": ("FUS033", "shape", "predicates ask about a value, such as dim(x, 0)"),
    "w.__class__.__mro__": ("FUS033", "__class__", "'.__class__' is none of its parts"),
    "''.__class__.__mro__[1].__subclasses__()": ("FUS033", "''", "only predicates can be called"),
    "__import__('os').system('id')": ("FUS033", "__import__", "only predicates can be called"),
    "shape(w)|lenght == 3": ("FUS033", "lenght", "did you mean 'length'?"),
    "'a'|center(999999999) == w": ("FUS033", "center", "no filter '|center'"),
    "rank(w) is nnoe": ("FUS033", "nnoe", "did you mean 'none'?"),
    "is_constant and rank(w) == 2": ("FUS034", "is_constant", "is a predicate, and is asked about something"),
    "1 == 1": ("FUS034", "1", "speaks of nothing that is matched"),
    "w": ("FUS038", "w", "neither true nor false"),
    "rank(w) == 2 and float32": ("FUS038", "", "an element type is neither true nor false"),
    "dtype(w) == 'flaot32'": ("FUS038", "flaot32", "did you mean 'float32'?"),
    "dtype(w) > float16": ("FUS038", "dtype", "element types have no order"),
    "rank(w) == '2'": ("FUS038", "rank", "a number is never compared with a text"),
    "w == 2": ("FUS038", "w", "a value of the rule is never compared with a number"),
    "shape(w) == (2, 3)": ("FUS038", "shape", "in square brackets"),
    "w * 2 == 4": ("FUS038", "w", "arithmetic is done with numbers"),
    "[1] * 999999999 == shape(w)": ("FUS038", "[", "arithmetic is done with numbers"),
    "w[0] == 2": ("FUS038", "w", "a size is dim(x, 0)"),
}


@pytest.mark.parametrize(("where", "expected"), CONDITIONS.items(), ids=range(len(CONDITIONS)))
def test_a_condition_that_cannot_hold_is_found(tmp_path: Path, where: str, expected: tuple[str, str, str]) -> None:
    code, at, message = expected
    text = rule("    y = MatMul (x, w)", signature="R (x, w) => (y)", keys=f"\n# where: {where}")
    _, findings = lint([write(tmp_path, text)])
    found = next(f for f in findings if f.code == code)
    assert found.line == 2
    if at:
        assert where[found.column - len("# where: ") - 1 :].startswith(at)
    assert message in found.message


@pytest.mark.parametrize(
    "where",
    [
        "rank(w) is none or rank(w) != None",
        "dtype(w) in (float16, 'float32')",
        "dim(w, 0) == 'batch' or dim(w, -1) is string",
        "(value(w) * dim(x, -1) - 1)|abs < 0.001",
        "shape(w) == [2, 3] and shape(w)[0] == 2 and shape(w)[1:] == [3]",
        "shape(w)|length == 2 and not is_constant(x)",
        "rank(x) if is_constant(w) else rank(w)",
        "is_constant(w) == true and divisible(size(w), 8)",
    ],
)
def test_conditions_that_can_hold_are_no_fault(tmp_path: Path, where: str) -> None:
    text = rule("    y = MatMul (x, w)", signature="R (x, w) => (y)", keys=f"\n# where: {where}")
    assert lint([write(tmp_path, text)])[1] == []


def test_every_predicate_has_a_signature() -> None:
    assert set(SIGNATURES) == set(PREDICATES)


@pytest.mark.parametrize(
    "text", ["Where the mask is added", "Note: none", "where a row (of x) ends", "see https://x.y"]
)
def test_a_comment_is_no_header_line(tmp_path: Path, text: str) -> None:
    assert lint([write(tmp_path, rule("    y = Relu (x)", keys=f"\n# {text}"))])[1] == []


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


def test_an_idioms_name_for_a_fusion(tmp_path: Path) -> None:
    path = write(tmp_path, rule("    y = Relu (x)", signature="Linear (x) => (y)"))
    assert [(f.code, f.line) for f in lint([path])[1]] == [("FUS043", 3)]
    result = call("rules", "list", "--rule-path", tmp_path)
    assert result.exit_code == 1
    assert "'Linear' is an idiom (linear.rule), so this fusion needs another name" in result.stderr


def test_every_code_has_a_case() -> None:
    others = {"FUS007", "FUS027", "FUS037", "FUS042", "FUS043"}
    assert {code for _, code, _, _ in CASES.values()} | {c for c, _, _ in CONDITIONS.values()} | others == set(
        explained()["lint"]
    )


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
    for place in ("a.rule:5:9:", "a.rule:5:16:", "a.rule:6:18:", "a.rule:12:9:", "b.rule:5:9:", "b.rule:11:9:"):
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


def test_a_least_number_of_operators_needs_no_most(tmp_path: Path) -> None:
    path = tmp_path / "r.rule"
    path.write_text(rule("    h = Relu (x)\n    y = pattern.Pointwise <min_ops = 3> (h)"), "utf-8")
    assert lint_files([read_rule_file(path, "fusion")]) == []
