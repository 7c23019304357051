"""`fusion-cli explain`: every candidate and near miss, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from fusion_cli import pipeline
from fusion_cli.cli.common import budget_options, debug_option, echo_json, json_option, progress, stdout
from fusion_cli.cli.optimize import analysis_options
from fusion_cli.errors import RuleError, did_you_mean
from fusion_cli.explain.why import Answer
from fusion_cli.report import Report
from fusion_cli.report.readable import counted
from fusion_cli.report.render import render_answer, render_explain
from fusion_cli.types import Options


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--rule", help="Only what this rule (or idiom) did.")
@click.option("--node", help="Why this node (by name, or by a value it makes) is not fused.")
@analysis_options
@click.option("--force", is_flag=True, help="As for optimize.")
@budget_options
@json_option
@debug_option
def explain(model: Path, rule: str | None, node: str | None, as_json: bool, **asked: Any) -> None:
    """Say what would be fused in MODEL, and for everything else which condition failed, where, and by how much."""
    options = Options(dry_run=True, verify=False, **asked)
    if rule is not None:
        _check_rule(rule, options)
    with progress(f"analysing {model.name}") as say:
        report, answer = pipeline.explain(model, options, node, rule, progress=say)
    report = _about(report, rule, answer)
    if as_json:
        fields = report.to_dict()
        asked = {"node": None if answer is None else asdict(answer)}
        echo_json({key: fields[key] for key in ("model", "targets", "idioms", "fusions", "rejected", "notes")} | asked)
        return
    if answer is not None:
        render_answer(answer, stdout())
    if rule is not None and rule in report.idioms:
        click.echo(f"{rule}: recognised at {counted(report.idioms[rule], 'place')}")
    render_explain(report, stdout(), everything=rule is not None or answer is not None)


def _about(report: Report, rule: str | None, answer: Answer | None) -> Report:
    """The report without what concerns neither the rule nor the node."""

    def concerns(name: str, nodes: Sequence[str], *others: str) -> bool:
        return (rule is None or rule in (name, *others)) and (answer is None or answer.node in nodes)

    fusions = tuple(f for f in report.fusions if concerns(f.rule, f.nodes))
    # What the answer says of the node need not be told again.
    told = [r for r in report.rejected if answer is None or r.rule]
    rejected = [r for r in told if concerns(r.rule, r.nodes, *r.part_of)]
    # What a rule itself lacks comes before what the idioms that it is made of lack, here and elsewhere.
    rejected.sort(key=lambda r: rule is not None and r.rule != rule)
    idioms = {name: count for name, count in report.idioms.items() if rule in (None, name)}
    return replace(report, idioms=idioms, fusions=fusions, rejected=tuple(rejected))


def _check_rule(rule: str, options: Options) -> None:
    """Tell a misspelt --rule from one that nothing is to be said of."""
    loaded = pipeline.load_rules(rule_paths=options.rule_paths)
    rules = {r.name for r in (*loaded.fusions, *loaded.idioms)}
    if rule not in rules:
        raise RuleError(f"no rule '{rule}'", hint=did_you_mean(rule, rules) or "see `fusion-cli rules list`")
