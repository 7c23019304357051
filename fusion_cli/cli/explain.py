"""`fusion-cli explain`: every candidate and near miss, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from fusion_cli import pipeline
from fusion_cli.cli.common import debug_option, echo_json, json_option, model_options, progress, stdout
from fusion_cli.cli.optimize import rule_options, target_option
from fusion_cli.errors import FusionError, RuleError, did_you_mean
from fusion_cli.load import load_model
from fusion_cli.report import Report, render_explain
from fusion_cli.types import Options


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--rule", help="Only what this rule (or idiom) did.")
@click.option("--node", help="Only what concerns this node of the model.")
@target_option
@rule_options
@model_options
@click.option("--force", is_flag=True, help="As for optimize.")
@json_option
@debug_option
def explain(model: Path, rule: str | None, node: str | None, as_json: bool, **asked: Any) -> None:
    """Say what would be fused in MODEL, and for everything else which condition failed, where, and by how much."""
    options = Options(dry_run=True, verify=False, **asked)
    with progress(f"analysing {model.name}") as say:
        report = pipeline.optimize(model, None, options, progress=say)
    _check_names(report, model, options, rule, node)
    fusions = tuple(f for f in report.fusions if rule in (None, f.rule) and (node is None or node in f.nodes))
    rejected = tuple(r for r in report.rejected if rule in (None, r.rule) and node in (None, r.node))
    if as_json:
        fields = replace(report, fusions=fusions, rejected=rejected).to_dict()
        echo_json({key: fields[key] for key in ("model", "fusions", "rejected")})
    else:
        render_explain(fusions, rejected, stdout(), everything=rule is not None or node is not None)


def _check_names(report: Report, path: Path, options: Options, rule: str | None, node: str | None) -> None:
    """Tell a misspelt --rule or --node from one that nothing is to be said of."""
    if rule is not None:
        loaded = pipeline.load_rules(rule_paths=options.rule_paths)
        rules = {r.name for r in (*loaded.fusions, *loaded.idioms)}
        if rule not in rules:
            raise RuleError(f"no rule '{rule}'", hint=did_you_mean(rule, rules) or "see `fusion-cli rules list`")
    if node is not None:
        nodes = {n.name for n in load_model(path).graph.all_nodes() if n.name}
        nodes |= {n for f in report.fusions for n in f.nodes} | {r.node for r in report.rejected}
        if node not in nodes:
            raise FusionError(f"no node '{node}'", where=str(path), hint=did_you_mean(node, nodes))
