"""Each overload of the bundled rules says who writes it so, and is found in a graph that the tests hold."""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import pytest

from fusion_cli.explain.near_misses import near_misses
from fusion_cli.language.pattern import Pattern, Rule
from fusion_cli.language.rule_files import rule_files, rules_of
from fusion_cli.match import find_regions
from fusion_cli.match.choices import Choices
from fusion_cli.match.engine import find
from fusion_cli.match.found import Match, Miss
from fusion_cli.plan.lower_contributed import RULES as LOWERED
from fusion_cli.resources import resource_dir
from fusion_cli.rulekit.find import ready, region_of
from fusion_cli.rulekit.trial import alone
from tests.helpers.overloads import Held, held

RECOGNISED_ONLY = "recognised_only.rule"


@cache
def graphs() -> dict[str, list[Held]]:
    found: dict[str, list[Held]] = defaultdict(list)
    for graph in held():
        found[graph.rule].append(graph)
    return found


@cache
def rules() -> dict[str, Rule]:
    known = rules_of(rule_files([resource_dir("rules")]))
    return {r.name: r for r in (*known.idioms, *known.fusions)}


def test_each_overload_says_who_writes_it_so() -> None:
    files = rule_files([resource_dir("rules")])
    silent = [
        f"{file.path.name}:{function.name.line}"
        for file in files
        for function in file.functions
        if not any(k.name == "witness" for k in file.keys_for(function))
    ]
    assert silent == []


def test_operators_without_a_lowering_stand_where_it_is_said() -> None:
    named: dict[bool, set[str]] = {True: set(), False: set()}
    for rule in rules().values():
        for domain, op in frozenset().union(*(p.operators for p in rule.patterns)):
            if domain == "com.microsoft":
                named[rule.path.name == RECOGNISED_ONLY].add(op)
    assert named[False] <= LOWERED.keys()
    assert named[True].isdisjoint(LOWERED)
    assert not any(r.counted for r in rules().values() if r.path.name == RECOGNISED_ONLY)


def test_the_table_speaks_of_rules_that_there_are() -> None:
    assert sorted(graphs().keys() - rules().keys()) == []


@pytest.mark.parametrize("name", sorted(rules()))
def test_each_overload_is_found_in_a_graph_of_the_table(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rule = rules()[name]
    used: set[Pattern] = set()

    def noted(choices: Choices, pattern: Pattern) -> tuple[list[Match], list[Miss]]:
        matches, misses = find(choices, pattern)
        used.update(m.pattern for m in matches)
        return matches, misses

    monkeypatch.setattr("fusion_cli.match.find", noted)
    only = alone(rule, rules())
    for graph in graphs()[name]:
        model = ready(graph.model, graph.folds)
        result = find_regions(model, only)
        outputs = [o.name for o in graph.model.graph.output]
        found = region_of(model, result, near_misses(result).rejections, name, outputs)
        assert not isinstance(found, str), (graph, found)
    assert len(graphs()[name]) == len(rule.patterns), "one graph for each overload: one of either has gone"
    searched = [] if rule.by_value else [p for p in rule.patterns if not all(c.is_growing for c in p.calls)]
    missed = [f"{rule.source}:{p.line}: {'; '.join(map(str, p.calls))}" for p in searched if p not in used]
    assert missed == [], "no graph of tests/language/overloads.txt has these; see tests/helpers/overloads.py"
