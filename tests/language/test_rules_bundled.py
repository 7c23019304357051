"""Every bundled rule, tried on graphs made from it. No rule is named here: files are collected from their folder."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest

from fusion_cli.language.rule_files import load_rules
from fusion_cli.match import Rule, RuleSet
from fusion_cli.resources import resource_dir
from fusion_cli.rulekit.trial import Limits, Outcome, failures, rules_to_try, try_rules
from tests.helpers.cli_helpers import needs_compiler

FILES = sorted(resource_dir("rules").rglob("*.rule"))
FUSIONS = [p for p in FILES if p.parent.name == "fusions"]


@cache
def everything() -> tuple[list[Rule], RuleSet]:
    return rules_to_try(())


@cache
def outcomes(path: Path) -> list[Outcome]:
    """Of a file's rules: graphs that are searched for once show what is found in them and what kernels compute."""
    rules, known = everything()
    limits = Limits(graphs=3, orders=4, kernels=int(path in FUSIONS and shutil.which("g++") is not None))
    return list(try_rules([r for r in rules if r.path == path], known, limits))


def complaints(found: list[Outcome]) -> list[str]:
    return [f"{o.path.name}:{o.line} {o.rule} {o.overload}: {o.status}: {o.detail}" for o in failures(found)]


@pytest.mark.parametrize("path", FILES, ids=[p.stem for p in FILES])
def test_every_overload_is_found_in_graphs_made_from_it(path: Path) -> None:
    found = outcomes(path)
    assert complaints(found) == []
    assert sum(o.graphs for o in found) >= len(found) > 0


def test_every_overload_of_a_whole_layer_has_several_graphs() -> None:
    """Of fifty operators and more, for which shapes are found among thousands."""
    (path,) = (p for p in FUSIONS if p.stem == "transformer_layer")
    assert {o.graphs for o in outcomes(path)} == {3}


@needs_compiler
@pytest.mark.parametrize("path", FUSIONS, ids=[p.stem for p in FUSIONS])
def test_every_fusion_has_a_kernel_that_computes_the_same(path: Path) -> None:
    found = outcomes(path)
    assert complaints(found) == []
    for rule in {o.rule for o in found}:
        errors = [o.error for o in found if o.rule == rule and o.kernel == "ok"]
        assert errors, f"{rule}: {[o.detail for o in found if o.rule == rule]}"


def test_rules_are_read_again_where_their_files_have_changed(tmp_path: Path) -> None:
    """Those of an unchanged file are the same objects."""
    path = tmp_path / "mine.rule"
    rules = []
    for op in ("Neg", "Neg", "Abs"):
        path.write_text(f"# summary: two\nMine (x) => (y) {{\n    a = {op} (x)\n    y = Exp (a)\n}}\n")
        (mine,) = (r for r in load_rules(rule_paths=[tmp_path]).fusions if r.name == "Mine")
        rules.append(mine)
    assert rules[0] is rules[1]
    assert [c.op for c in rules[2].patterns[0].calls] == ["Abs", "Exp"]
