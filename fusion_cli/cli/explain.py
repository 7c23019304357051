"""`fusion-cli explain`: every candidate and near miss, and why; of a model, or of what a run made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from fusion_cli import pipeline
from fusion_cli.cli.common import budget_options, debug_option, echo_json, json_option, quiet_option, stdout
from fusion_cli.cli.follow import progress
from fusion_cli.cli.optimize import analysis_options
from fusion_cli.errors import RuleError, did_you_mean
from fusion_cli.explain.why import Answer
from fusion_cli.report import Report
from fusion_cli.report.located import find_report
from fusion_cli.report.read import read_report
from fusion_cli.report.readable import counted
from fusion_cli.report.render_explain import render_answer, render_explain
from fusion_cli.report.why_written import answer_from
from fusion_cli.types import Options

_OF_ANY = frozenset({"model", "rule", "node", "quiet", "as_json", "debug"})
"""Parameters that are for reports too; the others are for the analysis of a model."""
_KEYS = ("model", "output", "targets", "idioms", "fusions", "rejected", "choice", "notes")


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--rule", help="Only what this rule (or idiom) did.")
@click.option("--node", help="Why this node (by name, or by a value it makes) is not fused.")
@analysis_options
@click.option("--force", is_flag=True, help="As for optimize.")
@budget_options
@quiet_option()
@json_option
@debug_option
def explain(model: Path, rule: str | None, node: str | None, as_json: bool, **asked: Any) -> None:
    """Say what would be fused in MODEL, and for everything else which condition failed, where, and by how much.

    Of a report.json, or of a model that `optimize` wrote, say what happened: what was fused, and what was measured and
    taken back.
    """
    options = Options(dry_run=True, verify=False, **asked)
    if rule is not None:
        _check_rule(rule, options)
    written = find_report(model)
    if written is None:
        with progress(f"analysing {model.name}") as listener:
            report, answer = pipeline.explain(model, options, node, rule, listener)
    else:
        _refuse_options(written)
        report = read_report(written)
        answer = None if node is None else answer_from(report, node, str(written))
    report = _about(report, rule, answer)
    if as_json:
        fields = report.to_dict()
        echo_json({key: fields[key] for key in _KEYS} | {"node": None if answer is None else asdict(answer)})
        return
    if answer is not None:
        render_answer(answer, report.rejected, stdout())
        return
    if rule is not None and rule in report.idioms:
        click.echo(f"{rule}: recognised at {counted(report.idioms[rule], 'place')}")
    render_explain(report, stdout(), everything=rule is not None)


def _refuse_options(report: Path) -> None:
    """A report tells what was done; what it was done with cannot be changed any more."""
    context = click.get_current_context()
    given = [p for p in context.command.params if p.name is not None and p.name not in _OF_ANY]
    for parameter in given:
        if context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} is for models; {report} tells what was done already")


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
