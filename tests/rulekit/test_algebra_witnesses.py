"""Every rule of algebra has witnesses, which `rules test` tries; what it says where one does not hold."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from fusion_cli.errors import RuleError
from fusion_cli.outline import apart
from fusion_cli.rulekit.algebra_trial import try_algebra
from fusion_cli.rulekit.trial import Limits, Outcome, failures
from fusion_cli.rulekit.witnesses import read_family, witnessed
from fusion_cli.simplify.algebra import RULES
from fusion_cli.simplify.algebra.affine import Affine
from tests.goldens import check
from tests.helpers.algebra_page import PAGE, page
from tests.helpers.cli_helpers import call

HEAD = "# family: F\n# summary: of all\n\n# summary: what\n# when: ever\n"
PRODUCTS = """
MulMul (float[n, 3] x) => (float[a, b] y) <float half = {0.5}>
{
    q = Mul (x, half)
    y = Mul (half, q)
}
"""


def tried(path: Path, keep: Path | None = None) -> list[Outcome]:
    return list(try_algebra(read_family(path).rules, Limits(orders=3), keep=keep))


def family(folder: Path, becomes: str = "Mul", graph: str = PRODUCTS) -> Path:
    path = folder / "mine.onnxtxt"
    path.write_text(f"{HEAD}# becomes: {becomes}{graph}")
    return path


def test_rules_and_witnesses_are_of_each_other() -> None:
    assert {*RULES, apart.RULE} == witnessed().keys()


@pytest.mark.parametrize("name", sorted(witnessed()))
def test_each_rule_does_to_its_witnesses_what_they_say(name: str) -> None:
    found = list(try_algebra([witnessed()[name]], Limits(orders=4)))
    assert [f"{o.path}:{o.line}: {o.detail}" for o in failures(found)] == []
    assert len(found) == len(witnessed()[name].witnesses) > 0


def test_a_witness_that_another_rule_changes(tmp_path: Path) -> None:
    path = family(tmp_path, graph=PRODUCTS.replace("MulMul", "PadConv"))
    (found,) = tried(path, keep=tmp_path / "kept")
    assert (found.rule, found.status, found.line) == ("PadConv", "failed", 7)
    assert found.detail == "in 3 of 3: applied was MulMul"
    kept = sorted((tmp_path / "kept").iterdir())
    assert [p.name for p in kept] == [f"PadConv-w1d{n}.onnx" for n in (1, 2, 3)]
    assert [n.op_type for n in onnx.load(kept[0]).graph.node] == ["Mul", "Mul"]


def test_a_witness_that_no_rule_changes(tmp_path: Path) -> None:
    (found,) = tried(family(tmp_path, graph=PRODUCTS.replace("Mul (half, q)", "Sub (half, q)")))
    assert "applied was no rule" in found.detail


def test_a_witness_that_becomes_something_else(tmp_path: Path) -> None:
    (found,) = tried(family(tmp_path, "Mul, Mul"))
    assert found.detail == "in 3 of 3: it became Mul"


def test_results_that_are_said_to_be_the_same_to_the_last_bit(tmp_path: Path) -> None:
    inexact = PRODUCTS.replace("{0.5}", "{0.3}")
    assert [o.status for o in tried(family(tmp_path, graph=inexact))] == ["ok"]
    (found,) = tried(family(tmp_path, "Mul\n# exact: yes", inexact))
    assert "numbers differ" in found.detail


def test_a_rule_that_computes_something_else_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Affine, "then", lambda self, later: Affine(self.scale * later.scale, self.shift + later.shift))
    result = call("rules", "test", "ConvAffine", "PadConv")
    assert result.exit_code == 1
    assert re.search(r"fold_affine.onnxtxt:\d+: ConvAffine \d: failed: in \d of 8: numbers differ", result.stdout)
    assert "PadConv 1: failed" not in result.stdout


def test_a_rule_that_minds_the_order_of_operands_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = {("Mul", 0): lambda c: Affine(c, np.zeros(1))}
    monkeypatch.setattr("fusion_cli.simplify.algebra.affine._FORMS", forms)
    (found,) = try_algebra([witnessed()["AffineConvTranspose"]], Limits())
    assert re.match("in [1-7] of 8: applied was no rule", found.detail)


def test_the_command_tries_them_by_name_and_beside_an_idiom_of_that_name() -> None:
    result = call("rules", "test", "HardSwish", "ResidualSum", "--kernels", 0, "--json")
    assert result.exit_code == 0
    found = {(o["rule"], o["kind"]) for o in json.loads(result.stdout)}
    assert found == {("HardSwish", "idiom"), ("HardSwish", "algebra"), ("ResidualSum", "algebra")}
    result = call("rules", "test", "ConvAfine")
    assert result.exit_code == 1
    assert "did you mean 'ConvAffine'?" in result.stderr


@pytest.mark.parametrize(
    ("becomes", "graph", "said"),
    [
        ("Mul\n# were: none", PRODUCTS, "'# were: none' is no header line"),
        ("Mul", PRODUCTS.replace("=>", "->"), "mine.onnxtxt:7: not a graph in ONNX's text form"),
    ],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, becomes: str, graph: str, said: str) -> None:
    with pytest.raises(RuleError, match=re.escape(said)):
        read_family(family(tmp_path, becomes, graph))


def test_the_page_is_of_the_witnesses() -> None:
    check(PAGE.parent, PAGE.name, page())
