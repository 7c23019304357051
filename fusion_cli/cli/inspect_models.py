"""`fusion-cli inspect` and `fusion-cli diff`: what a model is made of, and what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from fusion_cli.build import find_compiler
from fusion_cli.cli.common import debug_option, echo_json, json_option, stdout
from fusion_cli.cli.follow import progress
from fusion_cli.overview.changes import Difference, difference
from fusion_cli.overview.facts import Facts, facts_of
from fusion_cli.report.lines import listed, print_facts, print_line, print_wrapped
from fusion_cli.report.readable import counted, printable, show_bytes
from fusion_cli.targets import CPU, CUDA

_SHOWN = 20


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@json_option
@debug_option
def inspect(model: Path, as_json: bool, debug: bool) -> None:
    """Show what MODEL is made of: inputs and outputs, operators, what rules recognise, weights, targets."""
    with progress(f"reading {model.name}"):
        facts = facts_of(model)
    targets = [t.name for t in (CPU, *CUDA) if find_compiler(t) is not None]
    if as_json:
        echo_json({**asdict(facts), "targets": targets})
        return
    console = stdout()
    print_line(console, f"{facts.path}: {counted(facts.nodes, 'node')}, {show_bytes(facts.file_bytes)}", style="bold")
    inner = f", {facts.bodies} of them in bodies of control flow" if facts.bodies else ""
    told = [
        ("from", f"{facts.producer}, IR version {facts.ir_version}"),
        ("opsets", ", ".join(f"{domain} {version}" for domain, version in facts.opsets.items())),
        *_typed("input", facts.inputs),
        *_typed("output", facts.outputs),
        ("nodes", f"{facts.nodes}{inner}"),
        ("operators", _counts(facts.operators)),
        ("idioms", _counts(facts.idioms) or "none recognised"),
        ("weights", _weights(facts)),
        ("functions", listed(facts.functions)),
        ("kernels", ", ".join(facts.kernels)),
        ("targets", f"{', '.join(['portable', *targets])} (compilers that are here)"),
    ]
    print_facts(console, told)


@click.command()
@click.argument("first", metavar="A", type=click.Path(path_type=Path))
@click.argument("second", metavar="B", type=click.Path(path_type=Path))
@json_option
@debug_option
def diff(first: Path, second: Path, as_json: bool, debug: bool) -> None:
    """Show which nodes of A became which of B, and what else differs."""
    with progress("comparing"):
        found = difference(first, second)
    if as_json:
        echo_json({**asdict(found), "operators": {k: list(v) for k, v in found.operators().items()}})
        return
    console = stdout()
    console.print(_table(found))
    _became(found, console)


def _table(found: Difference) -> Table:
    """The facts that differ, side by side, and the operators whose number does."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    for title in ("A", "B", "change"):
        table.add_column(title, justify="right", overflow="fold")
    a, b = found.before, found.after
    table.add_row("nodes", str(a.nodes), str(b.nodes), f"{b.nodes - a.nodes:+d}")
    table.add_row("file", show_bytes(a.file_bytes), show_bytes(b.file_bytes), "")
    table.add_row("weights", *(show_bytes(sum(f.weights.values())) for f in (a, b)), "")
    for what, before, after in (
        *((f"opset of {d}", a.opsets.get(d), b.opsets.get(d)) for d in sorted({*a.opsets, *b.opsets})),
        *((f"input {n}", a.inputs.get(n), b.inputs.get(n)) for n in dict.fromkeys([*a.inputs, *b.inputs])),
        *((f"output {n}", a.outputs.get(n), b.outputs.get(n)) for n in dict.fromkeys([*a.outputs, *b.outputs])),
    ):
        if before != after:
            table.add_row(*(escape(printable(str(cell or "-"))) for cell in (what, before, after)), "changed")
    for name, (before, after) in found.operators().items():
        table.add_row(escape(printable(name)), str(before), str(after), f"{after - before:+d}")
    return table


def _became(found: Difference, console: Console) -> None:
    print_line(console, f"{counted(found.unchanged, 'node')} unchanged", style="bold")
    kinds = Counter(b.kind for b in found.became)
    for kind, count in kinds.most_common(_SHOWN):
        first = next(b for b in found.became if b.kind == kind)
        before = ", ".join(f"{n} {op}" for op, n in kind[1])
        print_wrapped(
            console, f"{count} x {first.operator} {f'from {before}' if before else '(new)'}", 4, style="green"
        )
        print_facts(console, [("such as", first.node), ("from", listed(first.nodes))])
    if len(kinds) > _SHOWN:
        print_line(console, f"and {counted(len(kinds) - _SHOWN, 'kind')} more: --json has them")
    if found.gone:
        print_wrapped(console, f"{counted(len(found.gone), 'node')} gone: {listed(found.gone)}", 4, style="yellow")


def _typed(label: str, values: Mapping[str, str]) -> Iterable[tuple[str, str]]:
    return ((label, f"{name} {kind}") for name, kind in values.items())


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{n} {name}" for name, n in counts.items())


def _weights(facts: Facts) -> str:
    by_type = ", ".join(f"{show_bytes(n)} {dtype}" for dtype, n in facts.weights.items())
    files = f", in {listed(facts.data_files)}" if facts.data_files else ""
    return f"{facts.initializers} with {facts.parameters:,} elements: {by_type or 'none'}{files}"
