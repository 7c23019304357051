"""Conditions of a rule: those that cannot hold, and those that can."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusion_cli.language.lint.kinds import SIGNATURES
from fusion_cli.language.predicates import PREDICATES
from fusion_cli.rulekit.findings import lint
from tests.helpers.rule_texts import rule, write

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
