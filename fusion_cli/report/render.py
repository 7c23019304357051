"""The report as text for a terminal. Names that come from a model are neither markup nor control characters."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from fusion_cli.codes.match import NO_RULE, NOT_NEAR, UNKNOWN
from fusion_cli.explain.why import Answer
from fusion_cli.report import Fusion, Report
from fusion_cli.report.outcome import headline, outcome
from fusion_cli.report.readable import counted, printable, show_bytes, show_speed, show_us
from fusion_cli.types import Rejection, Rewrite

_SHOWN_REASONS = 5
_SHOWN_NEAR_MISSES = 20
_NOTHING_NEAR = {
    UNKNOWN: "operators on values of unknown type or rank",
    NO_RULE: "operators that no rule names",
    NOT_NEAR: "operators that no rule came near",
}


def render_summary(report: Report, console: Console) -> None:
    """The end of a run: what was found, taken, saved, written and checked, and where to look next."""
    s = report.summary
    lines = [
        ("operators found", f"{s.nodes_before}{_list_counts(report.idioms)}"),
        ("algebra", _algebra(report.algebra)),
        ("candidates", f"{s.candidates}, {s.fusions} taken"),
        (
            "estimated savings",
            f"{show_bytes(s.bytes_saved)} of memory traffic, {counted(s.launches_saved, 'launch', 'launches')}, "
            f"{show_us(s.us_saved)}",
        ),
        ("fused", f"{counted(s.nodes_fused, 'operator')} into {s.fusions} ({counted(s.kernels, 'kernel')})"),
        ("nodes", f"{s.nodes_before} -> {s.nodes_after}"),
        ("sources generated", _sources(report)),
        *outcome(report),
    ]
    _print(console, f"{report.model} -> {report.output or '(dry run: nothing written)'}{headline(report.choice)}")
    for label, text in lines:
        _print(console, f"  {label:<18} {text}")
    if report.fusions:
        console.print(_fusion_table(report.fusions))
    reasons = top_reasons(report.rejected)
    if reasons:
        _print(console, "turned down:")
        for line in reasons:
            _print(console, f"  {line}")
    for note in report.notes:
        _print(console, f"note: {note}")
    for line in _next(report):
        _print(console, line)


def render_answer(answer: Answer, console: Console) -> None:
    """What `explain --node` says of the node."""
    where = f" in the body of {answer.body_of}" if answer.body_of else ""
    _print(console, f"{answer.operator} {answer.node or answer.asked}{where}: {answer.verdict}", style="bold")
    facts = [("why", f"{answer.code} {answer.text}".strip())]
    if answer.node and answer.became:
        facts.append(("became", f"{answer.gone} {answer.became}"))
    facts += [(label, _listed(names)) for label, names in (("reads", answer.reads), ("feeds", answer.feeds)) if names]
    _facts(console, facts)


def render_explain(report: Report, console: Console, *, everything: bool = False) -> None:
    """What is fused, then what is not and could have saved something, costliest first.

    Misses that would save nothing, or that something else covers, are only counted unless `everything` is asked for or
    there is nothing else to tell; the list stops at 20 either way. Last come the operators nothing was said of.
    """
    fusions = report.fusions
    rejected = [r for r in report.rejected if r.rule]
    _print(console, counted(len(fusions), "fusion"), style="bold")
    for alike in _alike(fusions):
        _explain_fusion(alike, console)
    shown = [r for r in rejected if everything or _is_worth_telling(r)][:_SHOWN_NEAR_MISSES]
    if not fusions and not shown:
        shown = rejected[:_SHOWN_REASONS]  # better than nothing
    order = ", the costliest first" if len(rejected) > 1 else ""
    _print(console, f"{counted(len(rejected), 'near miss', 'near misses')}{order}", style="bold")
    for rejection in shown:
        _explain_rejection(rejection, console)
    if len(shown) < len(rejected):
        ways = "--json has them" if everything else "--rule, --node and --json show them"
        _print(console, f"{len(rejected) - len(shown)} more, which save less or are covered otherwise: {ways}")
    _explain_nothing_near([r for r in report.rejected if not r.rule], console)
    for note in report.notes:
        _print(console, f"note: {note}")


def _explain_nothing_near(rejected: Sequence[Rejection], console: Console) -> None:
    hints: set[str] = set()
    for code, what in _NOTHING_NEAR.items():
        kinds = [r for r in rejected if r.code == code]
        if kinds:
            _print(console, f"- {code} {what}: {_listed([f'{r.places} {r.found}' for r in kinds])}", style="yellow")
            new = dict.fromkeys(r.hint for r in kinds if r.hint and r.hint not in hints)
            such = f"{_listed([r.node for r in kinds])} (--node says more of one)"
            _facts(console, [("such as", such), *(("hint", hint) for hint in new)])
            hints |= set(new)


def _is_worth_telling(rejection: Rejection) -> bool:
    if rejection.code == "FUS107":
        return True  # perhaps a slip of the model's author
    return not rejection.covered_by and (rejection.saving_us > 0 or rejection.stage not in ("match", "plan"))


def _alike(fusions: Sequence[Fusion]) -> list[list[Fusion]]:
    """Fusions by rule, kernels and targets: equal layers are told once."""
    groups: dict[object, list[Fusion]] = {}
    for fusion in fusions:
        key = (fusion.rule, fusion.stages, fusion.targets, len(fusion.nodes))
        groups.setdefault(key, []).append(fusion)
    return list(groups.values())


def _explain_fusion(alike: Sequence[Fusion], console: Console) -> None:
    fusion = alike[0]
    places = f" at {len(alike)} places" if len(alike) > 1 else ""
    _print(console, f"+ {fusion.rule} on {', '.join(fusion.targets) or 'no target'}{places}", style="green")
    also = ", and alike" if len(alike) > 1 else ""
    facts = [("nodes", f"{_listed(fusion.nodes)}{also}"), ("stages", " -> ".join(fusion.stages))]
    for target in fusion.predicted:
        scores = [f.predicted[target] for f in alike if target in f.predicted]
        saved = show_bytes(sum(s.bytes_before - s.bytes_after for s in scores))
        speed = show_speed(sum(s.before_us for s in scores), sum(s.after_us for s in scores))
        facts.append((target, f"predicted {speed}, {saved} less traffic"))
    _facts(console, facts)


def _explain_rejection(r: Rejection, console: Console) -> None:
    places = f" and {counted(r.places - 1, 'place')} alike" if r.places > 1 else ""
    saving = f": would save up to {show_us(r.saving_us)}" if r.saving_us > 0 else ""
    part = f" (part of {_listed(r.part_of, 4)})" if r.part_of else ""
    _print(console, f"- {r.code} {r.rule}{part} at {r.node}{places}{saving}", style="yellow")
    _facts(console, _details(r))


def _facts(console: Console, facts: Iterable[tuple[str, str]]) -> None:
    """Labelled lines below a heading; on a terminal they wrap within their column."""
    told = [(label, printable(text)) for label, text in facts if text]
    if not console.is_terminal:
        for label, text in told:
            _print(console, f"    {label:<9} {text}")
        return
    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=9)
    table.add_column(overflow="fold")
    for label, text in told:
        table.add_row(escape(label), escape(text))
    console.print(Padding(table, (0, 0, 0, 4)), highlight=False)


def _details(r: Rejection) -> list[tuple[str, str]]:
    details = [("expected", r.expected), ("found", r.found)]
    if r.source:
        got = f"{r.held} of {counted(r.lines, 'line')} matched" if r.lines else f"{r.progress:.0%} matched"
        if r.held == r.lines - 1:
            got = "all else matched"
        details.append(("rule", f"{r.source}, {got}"))
    else:
        details.append(("stage", r.stage))
    if r.nodes:
        details.append(("nodes", _listed(r.nodes)))
    if r.covered_by:
        details.append(("covered", f"by {r.covered_by}"))
    if r.hint:
        details.append(("hint", r.hint))
    return details


def _listed(names: Sequence[str], limit: int = 8) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _print(console: Console, text: str, style: str = "") -> None:
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=True)


def top_reasons(rejected: Iterable[Rejection], limit: int = _SHOWN_REASONS) -> list[str]:
    """The commonest reasons of the stages after matching (why candidates were not taken), one line each. A candidate
    whose nodes another has is no loss."""
    late = [r for r in rejected if r.stage != "match" and not r.covered_by]
    counts: Counter[tuple[str, str, str]] = Counter()
    for r in late:
        counts[r.code, r.rule, r.stage] += r.places
    lines = []
    for (code, rule, stage), count in counts.most_common(limit):
        one = next(r for r in late if (r.code, r.rule, r.stage) == (code, rule, stage))
        lines.append(f"{count} x {rule}: {code} ({stage}), expected {one.expected}, found {one.found}")
    if len(counts) > limit:
        lines.append(f"and {counted(len(counts) - limit, 'reason')} more, in report.json")
    return lines


def _fusion_table(fusions: Sequence[Fusion]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 2), header_style="bold")
    for column in ("rule", "operator", "places", "nodes", "stages", "targets", "error", "measured"):
        table.add_column(column, overflow="fold", justify="right" if column in ("places", "nodes") else "left")
    for name in dict.fromkeys(f.name for f in fusions):
        same = [f for f in fusions if f.name == name]
        first = same[0]
        errors = [c.error for c in first.measured]
        speeds = [f"{c.target} {show_speed(c.before_us, c.after_us)}" for c in first.measured if c.before_us]
        cells = (
            first.rule,
            name,
            str(len(same)),
            str(len(first.nodes)),
            " ".join(f"{n}x{k}" if n > 1 else k for k, n in Counter(first.stages).items()),
            ", ".join(first.targets),
            f"{max(errors):.1e}" if errors else "-",
            ", ".join(speeds) or "-",
        )
        table.add_row(*(escape(printable(c)) for c in cells))
    return table


def _list_counts(counts: Mapping[str, int]) -> str:
    text = ", ".join(f"{n} {name}" for name, n in sorted(counts.items(), key=lambda i: -i[1]))
    return f" (recognised: {text})" if text else ""


def _algebra(rewrites: Sequence[Rewrite]) -> str:
    return ", ".join(f"{r.places} {r.rule}" for r in rewrites) or "none"


def _sources(report: Report) -> str:
    if not report.sources:
        return "none"
    counts = Counter(s.target for s in report.sources)
    text = f"{len(report.sources)} ({', '.join(f'{t} {n}' for t, n in counts.items())})"
    for lib in report.libraries:
        text += f"; {lib.target} library: {counted(lib.compiled, 'file')} compiled in {lib.seconds:.1f} s"
    return text


def _next(report: Report) -> list[str]:
    if report.output is None:
        return [f"next: fusion-cli explain {report.model}"]
    bundle = f"bundle: {Path(report.output).with_suffix('.fusion')}{os.sep}"
    lines = [f"{bundle} (report.json; src: generated sources; lib: libraries)"] if report.fusions else []
    return [*lines, f"next: fusion-cli explain {report.model} | fusion-cli bench {report.model} {report.output}"]
