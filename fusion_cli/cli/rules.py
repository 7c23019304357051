"""`fusion-cli rules`: what rules there are, what one says, and whether rule files hold."""

from __future__ import annotations

from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from fusion_cli.cli.common import debug_option, echo_json, json_option, stdout
from fusion_cli.errors import RuleError, did_you_mean
from fusion_cli.match import Rule, load_rules, parse_rules
from fusion_cli.match.rules import check_references

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
    """List, show and check fusion rules."""


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
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("rule", "kind", "level", "kernel", "summary"):
        table.add_column(column)
    for rule in found:
        level = str(rule.opt_level) if rule.kind == "fusion" else ""
        kernel = rule.kernel if rule.kind == "fusion" else ""
        table.add_row(*(escape(c) for c in (rule.name, rule.kind, level, kernel, rule.summary)))
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
@debug_option
def lint_rules(paths: tuple[Path, ...], debug: bool) -> None:
    """Check the bundled rules and those in PATHS (folders or files); the first fault is shown with its line."""
    found = _all_rules(tuple(p for p in paths if not p.is_file()))
    for path in filter(Path.is_file, paths):
        found += parse_rules(path, "idiom" if path.parent.name == "idioms" else "fusion")
    faults = check_references(found)
    if faults:
        raise RuleError(str(faults[0]))
    click.echo(f"{len(found)} rules, no fault found")


def _all_rules(paths: tuple[Path, ...]) -> list[Rule]:
    """Fusions first, then idioms, each by name."""
    loaded = load_rules(rule_paths=paths)
    return sorted((*loaded.fusions, *loaded.idioms), key=lambda r: (r.kind, r.name))
