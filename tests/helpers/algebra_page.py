"""docs/algebra.md, made of the witnesses of the rules of algebra."""

from __future__ import annotations

from collections.abc import Iterator

from fusion_cli.rulekit.witnesses import Family, Witness, Witnessed, families
from tests.helpers.cli_helpers import ROOT

PAGE = ROOT / "docs" / "algebra.md"
_TOP = """# Algebra

Before rules of fusion are matched, parts of the model are written with fewer operators of ONNX's own, where that is
exact but for rounding: it pays on every target, without kernels too. `--no-algebra` leaves it out, and
[report.json](report.md#algebra) lists the rules that were applied, by the names below. New constants are computed in
float64 and rounded once; where they would not fit their type (a scale that overflows fp16), nothing is changed. Weights
that another node reads too, values that are outputs of the model and initializers that callers may override are left as
they are.

Each graph here is a witness, from `rules/algebra`, where constants without a value stand for any. `fusion-cli rules
test` draws them, sizes, the order of operands and inputs, applies algebra, and tells where another rule than the one
named was applied, where other operators are left than are said, or where ONNX Runtime, operator by operator, computes
other numbers: beyond rounding, or at all where results stay the same to the last bit, for which NaN, infinities and the
largest and smallest numbers are among the inputs.

`make goldens` makes this page.
"""


def page() -> str:
    return "\n".join((_TOP, *(line for family in families() for line in _family(family))))


def _family(family: Family) -> Iterator[str]:
    yield f"## {family.title}\n\n{family.summary}\n"
    for rule in family.rules:
        yield from _rule(rule)


def _rule(rule: Witnessed) -> Iterator[str]:
    yield f"### {rule.name}\n\n{rule.summary}\n\n*When:* {rule.when}\n"
    yield from map(_witness, rule.witnesses)


def _witness(witness: Witness) -> str:
    bits = ", to the last bit" if witness.is_exact else ""
    return f"```text\n{witness.text}\n```\n\nbecomes {', '.join(witness.becomes)}{bits}.\n"
