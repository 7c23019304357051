"""`fusion-cli rules`: what rules there are, whether rule files hold, and what helps to write them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path

import click
import onnx_ir as ir
from rich.markup import escape
from rich.table import Table

from fusion_cli.cli.common import debug_option, echo_json, json_option, stdout
from fusion_cli.cli.follow import progress
from fusion_cli.errors import ModelError, RuleError, did_you_mean
from fusion_cli.language.lint.source import Kind
from fusion_cli.load import load_model
from fusion_cli.match import Rule, load_rules
from fusion_cli.report.readable import printable_lines
from fusion_cli.rulekit.algebra_trial import try_algebra
from fusion_cli.rulekit.findings import lint
from fusion_cli.rulekit.scaffold import around, blank, from_nodes, write_rule
from fusion_cli.rulekit.trial import Limits, Outcome, failures, rules_to_try, try_rules
from fusion_cli.rulekit.witnesses import witnessed_among
from fusion_cli.sessions import CannotRun
from fusion_cli.simplify import simplify
from fusion_cli.simplify.trace import trace
from fusion_cli.types import label

_paths = click.option(
    "--rule-path",
    "rule_paths",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Another folder of rules (repeatable).",
)


@click.group()
def rules() -> None:
    """List, show, check, write and try fusion rules."""


@rules.command("list")
@_paths
@json_option
@debug_option
def list_rules(rule_paths: tuple[Path, ...], as_json: bool, debug: bool) -> None:
    """Every fusion rule, and the idioms they are written in."""
    found = _all_rules(rule_paths)
    if as_json:
        keys = ("name", "kind", "summary", "opt_level", "kernel")
        echo_json([{**{k: getattr(r, k) for k in keys}, "path": str(r.path)} for r in found])
        return
    table = _table("rule", "kind", "level", "kernel", "summary")
    for rule in found:
        of_fusions = (str(rule.opt_level), rule.kernel) if rule.kind == "fusion" else ("", "")
        table.add_row(*map(escape, (rule.name, rule.kind, *of_fusions, rule.summary)))
    stdout().print(table)


@rules.command("show")
@click.argument("name")
@_paths
@debug_option
def show_rule(name: str, rule_paths: tuple[Path, ...], debug: bool) -> None:
    """The text of the rule NAME and where it lies."""
    found = {r.name: r for r in _all_rules(rule_paths)}
    if name not in found:
        raise RuleError(f"no rule '{name}'", hint=did_you_mean(name, found) or "see `fusion-cli rules list`")
    click.echo(f"# {found[name].path}")
    click.echo(found[name].text.rstrip())


@rules.command("lint")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@json_option
@debug_option
@click.pass_context
def lint_rules(context: click.Context, paths: tuple[Path, ...], as_json: bool, debug: bool) -> None:
    """Check the rules in PATHS (folders or files), or the bundled ones: every fault with its place and what it means.

    Exits with 1 if there is an error or a warning; notes are no faults."""
    files, findings = lint(paths)
    faults = [f for f in findings if f.severity != "note"]
    if as_json:
        echo_json({"files": len(files), "findings": [{**asdict(f), "path": str(f.path)} for f in findings]})
    else:
        for finding in findings:
            click.echo(printable_lines(f"{finding.severity}: {finding}"))
        names = {f.name.text for file in files for f in file.functions}
        overloads = sum(len(file.functions) for file in files)
        said = f"{_count(len(faults), 'fault')} found" if faults else "no fault found"
        where = f"{_count(len(names), 'rule')}, {_count(overloads, 'overload')} in {_count(len(files), 'file')}"
        click.echo(f"{where}: {said}")
    context.exit(1 if faults else 0)


@rules.command("new")
@click.argument("name")
@click.option("--kind", type=click.Choice(["fusion", "idiom"]), default="fusion", show_default=True)
@click.option(
    "--from", "model", type=click.Path(path_type=Path), metavar="MODEL", help="Take the pattern from a model."
)
@click.option("--nodes", metavar="A,B,C", help="The nodes of MODEL to take.")
@click.option("--around", "node", metavar="NODE", help="A node of MODEL to take, with the elementwise ones around it.")
@click.option("--into", type=click.Path(path_type=Path), default=".", metavar="DIR", help="The folder of the new file.")
@debug_option
def new_rule(
    name: str, kind: Kind, model: Path | None, nodes: str | None, node: str | None, into: Path, debug: bool
) -> None:
    """Write a first version of the rule NAME, by itself or from nodes of a model. Nothing is overwritten."""
    if (model is None) != (nodes is None and node is None) or (nodes and node):
        raise click.UsageError("--from MODEL goes with either --nodes or --around")
    if model is None:
        text = blank(name, kind)
    else:
        graph = simplify(load_model(model), partial(load_model, model)).model
        asked = nodes.split(",") if nodes else [node or ""]
        found = [_node_left(n.strip(), model, graph) for n in asked]
        chosen = found if nodes else around(graph, found[0])
        text = from_nodes(graph, chosen, name, model.name)
    path = write_rule(into, name, kind, text)
    click.echo(printable_lines(f"wrote {path}\n\n{text}\nnext:"))
    click.echo(printable_lines(f"    fusion-cli rules lint {path}\n    fusion-cli rules test {path}"))
    if kind == "fusion":
        target = model or "MODEL.onnx"
        click.echo(printable_lines(f"    fusion-cli explain {target} --rule-path {into} --rules {name}"))


def _node_left(name: str, model: Path, graph: ir.Model) -> str:
    """The node of a name in the simplified model; as it is if no node ever had it. Raises ModelError for one that is
    gone."""
    traced = trace(name, load_model(model), graph)
    if traced is None:
        return name
    if traced.node is None or traced.became:
        fate = traced.became or "no graph output depends on it"
        hint = "a rule is about nodes that are left after clean-ups"
        raise ModelError(f"node '{name}' is gone before rules are matched: {fate}", where=str(model), hint=hint)
    return label(traced.node)


@rules.command("test")
@click.argument("which", nargs=-1, metavar="[FILE|NAME]...")
@_paths
@click.option("--graphs", type=click.IntRange(1), default=Limits.graphs, show_default=True, help="Of an overload.")
@click.option("--orders", type=click.IntRange(1), default=Limits.orders, show_default=True, help="Of operands.")
@click.option("--kernels", type=click.IntRange(0), default=Limits.kernels, show_default=True, help="Built for a rule.")
@click.option("--keep", type=click.Path(path_type=Path), metavar="DIR", help="Leave the graphs there, as .onnx.")
@json_option
@debug_option
@click.pass_context
def test_rules(
    context: click.Context,
    which: tuple[str, ...],
    rule_paths: tuple[Path, ...],
    graphs: int,
    orders: int,
    kernels: int,
    keep: Path | None,
    as_json: bool,
    debug: bool,
) -> None:
    """Try rules on graphs made from them: all bundled ones, or those of the files and names given.

    Each overload is expanded to graphs with shapes, matched with the operands of commutative operators in every order,
    and compiled for the CPU; the kernels' results are compared with ONNX Runtime's. A rule of algebra is applied to its
    witnesses, in as many orders and with other constants, sizes and inputs each time. Exits with 1 if a rule is not
    found in its own graph, or numbers differ, or no overload of a fusion has a kernel."""
    chosen, known = rules_to_try(which, rule_paths)
    try:
        with progress("rules test") as listener:
            limits = Limits(graphs, orders, kernels)
            outcomes = list(try_rules(chosen, known, limits, keep=keep, say=listener.stage))
            outcomes += try_algebra(witnessed_among(which), limits, keep=keep, say=listener.stage)
    except CannotRun as error:
        raise RuleError(f"rules are tried with ONNX Runtime: {error}") from error
    failed = failures(outcomes)
    if as_json:
        echo_json([{**asdict(o), "path": str(o.path)} for o in outcomes])
    else:
        _show(outcomes, failed)
        if keep is not None:
            click.echo(printable_lines(f"graphs: {keep}"))
    context.exit(1 if failed else 0)


def _show(outcomes: Sequence[Outcome], failed: Sequence[Outcome]) -> None:
    table = _table("rule", "overload", "line", "graphs", "orders", "found", "kernel", "error")
    for o in outcomes:
        found = {"failed": "no", "no graph": "no graph"}.get(o.status, "yes")
        error = "" if o.error is None else f"{o.error:.1g}"
        cells = (o.rule, str(o.overload), str(o.line), str(o.graphs), str(o.orders), found, o.kernel, error)
        table.add_row(*map(escape, cells))
    stdout().print(table)
    for o in outcomes:
        if o.detail:
            click.echo(printable_lines(f"{o.path}:{o.line}: {o.rule} {o.overload}: {o.status}: {o.detail}"))
    tried = f"{_count(len(outcomes), 'overload')}, {_count(sum(o.orders for o in outcomes), 'graph')}"
    click.echo(f"{tried}: {len(failed) or 'none'} failed")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _table(*columns: str) -> Table:
    return Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="bold")


def _all_rules(paths: tuple[Path, ...]) -> list[Rule]:
    """Fusions first, then idioms, each by name."""
    loaded = load_rules(rule_paths=paths)
    return sorted((*loaded.fusions, *loaded.idioms), key=lambda r: (r.kind, r.name))
