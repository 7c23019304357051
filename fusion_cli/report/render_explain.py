"""What `explain` says of a model, and of what a run made of it."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console

from fusion_cli.codes.match import NO_RULE, NOT_NEAR, UNKNOWN
from fusion_cli.costs import Terms
from fusion_cli.explain.why import Answer
from fusion_cli.report import Fusion, Report
from fusion_cli.report.lines import INDENT, listed, print_facts, print_line, print_wrapped
from fusion_cli.report.outcome import outcome, predicted
from fusion_cli.report.readable import counted, show_saved, show_speed, show_us, spent
from fusion_cli.report.verdict import verdict
from fusion_cli.types import Rejection

_SHOWN_REASONS = 5
_SHOWN_NEAR_MISSES = 20
_ANSWER_LINES = 10
_LEAST = ("why", "hint", "became", "rule", "also", "reads", "feeds", "nodes")
"""Of what is said of a node, what matters most comes first."""
_NOTHING_NEAR = {
    UNKNOWN: "operators on values of unknown type or rank",
    NO_RULE: "operators that no rule names",
    NOT_NEAR: "operators that no rule came near",
}


def render_answer(answer: Answer, rejected: Sequence[Rejection], console: Console) -> None:
    """What `explain --node` says of the node, in ten lines; `rejected` are the reasons that concern it. What matters
    least is left out where a terminal is narrow."""
    where = f" in the body of {answer.body_of}" if answer.body_of else ""
    heading = f"{answer.operator} {answer.node or answer.asked}{where}: {answer.verdict}"
    print_line(console, heading, style="bold")
    facts = [("why", f"{answer.code} {answer.text}".strip())]
    if answer.node and answer.became:
        facts.append(("became", f"{answer.gone} {answer.became}"))
    facts += [(label, listed(names)) for label, names in (("reads", answer.reads), ("feeds", answer.feeds)) if names]
    if rejected and answer.verdict != "fused":
        first, others = rejected[0], len(rejected) - 1
        facts += [fact for fact in _details(first) if fact[0] in ("rule", "nodes", "hint")]
        more = f"{counted(others, 'reason')} more of this node: --json shows them" if others else ""
        facts.append(("also", more))
    left = _ANSWER_LINES - math.ceil(len(heading) / console.width)
    print_facts(console, _fitting([fact for fact in facts if fact[1]], console, left))


def _fitting(facts: Sequence[tuple[str, str]], console: Console, left: int) -> list[tuple[str, str]]:
    """Those that fit in as many lines; of the answer itself as much as does."""
    if not console.is_terminal:
        return list(facts)
    width, kept = console.width - INDENT, {}
    for label, text in sorted(facts, key=lambda fact: _LEAST.index(fact[0])):
        lines = textwrap.wrap(text, width)
        if len(lines) > left and label == "why":
            lines = textwrap.wrap(text, width, max_lines=left, placeholder=" ...")
        if len(lines) <= left:
            left -= len(lines)
            kept[label] = " ".join(lines)
    return [(label, kept[label]) for label, _ in facts if label in kept]


def render_explain(report: Report, console: Console, *, everything: bool = False) -> None:
    """What was fused, or would be; what was measured and taken back; then what is not fused and could have saved
    something, costliest first.

    Misses that would save nothing, or that something else covers, are only counted unless `everything` is asked for or
    there is nothing else to tell; the list stops at 20 either way. Last come the operators nothing was said of.
    """
    print_wrapped(console, verdict(report), style="bold")
    if report.output is not None:
        print_facts(console, outcome(report))
    else:
        print_facts(console, predicted(report))
    print_line(console, counted(len(report.fusions), "fusion"), style="bold")
    render_fusions(report.fusions, console)
    if tried := [r for r in report.rejected if r.stage == "verify"]:
        print_line(console, f"{counted(sum(r.places for r in tried), 'fusion')} measured and taken back", style="bold")
        for rejection in tried:
            _explain_rejection(rejection, console)
    _near_misses([r for r in report.rejected if r.rule and r.stage != "verify"], report.fusions, everything, console)
    _explain_nothing_near([r for r in report.rejected if not r.rule], console)
    for note in report.notes:
        print_wrapped(console, f"note: {note}", 6)


def render_fusions(fusions: Sequence[Fusion], console: Console) -> None:
    """Equal places once: what is predicted of them, and what was measured."""
    for alike in _alike(fusions):
        _explain_fusion(alike, console)


def _near_misses(rejected: Sequence[Rejection], fusions: Sequence[Fusion], everything: bool, console: Console) -> None:
    shown = [r for r in rejected if everything or _is_worth_telling(r)][:_SHOWN_NEAR_MISSES]
    if not fusions and not shown:
        shown = list(rejected[:_SHOWN_REASONS])  # better than nothing
    ways = "--json has them" if everything else "--rule, --node and --json show them"
    untold = f"(less saved, or covered otherwise): {ways}"
    heading = counted(len(rejected), "near miss", "near misses")
    order = ", the costliest first" if len(shown) > 1 else "" if shown or not rejected else f" {untold}"
    print_wrapped(console, f"{heading}{order}", style="bold")
    for rejection in shown:
        _explain_rejection(rejection, console)
    if 0 < len(shown) < len(rejected):
        print_wrapped(console, f"{len(rejected) - len(shown)} more {untold}")


def _explain_nothing_near(rejected: Sequence[Rejection], console: Console) -> None:
    hints: set[str] = set()
    for code, what in _NOTHING_NEAR.items():
        kinds = [r for r in rejected if r.code == code]
        if kinds:
            print_line(console, f"- {code} {what}: {listed([f'{r.places} {r.found}' for r in kinds])}", style="yellow")
            new = dict.fromkeys(r.hint for r in kinds if r.hint and r.hint not in hints)
            such = f"{listed([r.node for r in kinds])} (--node says more of one)"
            print_facts(console, [("such as", such), *(("hint", hint) for hint in new)])
            hints |= set(new)


def _is_worth_telling(rejection: Rejection) -> bool:
    if rejection.code == "FUS107":
        return True  # perhaps a slip of the model's author
    return not rejection.covered_by and (rejection.saving_us > 0 or rejection.stage not in ("match", "plan"))


def _alike(fusions: Sequence[Fusion]) -> list[list[Fusion]]:
    """Fusions by operator, kernels and targets: equal layers are told once."""
    groups: dict[object, list[Fusion]] = {}
    for fusion in fusions:
        guards = tuple(score.guard for score in fusion.predicted.values())
        key = (fusion.name, fusion.stages, fusion.targets, len(fusion.nodes), guards)
        groups.setdefault(key, []).append(fusion)
    return list(groups.values())


def _explain_fusion(alike: Sequence[Fusion], console: Console) -> None:
    fusion = alike[0]
    places = f" at {len(alike)} places" if len(alike) > 1 else ""
    print_line(console, f"+ {fusion.name} on {', '.join(fusion.targets) or 'no target'}{places}", style="green")
    also = ", and alike" if len(alike) > 1 else ""
    stages = " -> ".join(f"{n} x {stage}" if n > 1 else stage for stage, n in _runs(fusion.stages))
    facts = [("nodes", f"{listed(fusion.nodes)}{also}"), ("stages", stages)]
    for target in fusion.predicted:
        scores = [f.predicted[target] for f in alike if target in f.predicted]
        saved = show_saved(sum(s.bytes_before - s.bytes_after for s in scores))
        speed = show_speed(sum(s.before_us for s in scores), sum(s.after_us for s in scores))
        off = sum(s.uncertainty_us for s in scores)
        doubt = f", give or take {show_us(off)}" if off >= 0.05 else ""
        facts.append((target, f"predicted {speed}{doubt}, {saved}"))
        facts += [
            ("", f"{when} {spent(sum((s.before if when == 'before' else s.after for s in scores), Terms()))}")
            for when in ("before", "after")
        ]
        if (guard := scores[0].guard) is not None:
            facts.append(("", f"{guard} ONNX Runtime's own nodes"))
    for check in fusion.measured:
        time = f"measured {show_speed(check.before_us, check.after_us)} at one place, " if check.before_us else ""
        facts.append((check.target, f"{time}error {check.error:.1e} (tolerance {check.tolerance:g})"))
    print_facts(console, facts)


def _runs(stages: Sequence[str]) -> list[tuple[str, int]]:
    """Stages with how often each comes in a row."""
    return [(stage, len(list(same))) for stage, same in groupby(stages)]


def _explain_rejection(r: Rejection, console: Console) -> None:
    places = f" and {counted(r.places - 1, 'place')} alike" if r.places > 1 else ""
    places += f" on {r.target}" if r.stage == "verify" else ""
    saving = f": would save up to {show_us(r.saving_us)}" if r.saving_us > 0 else ""
    part = f" (part of {listed(r.part_of, 4)})" if r.part_of else ""
    print_line(console, f"- {r.code} {r.rule}{part} at {r.node}{places}{saving}", style="yellow")
    print_facts(console, _details(r))


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
        details.append(("nodes", listed(r.nodes)))
    if r.covered_by:
        details.append(("covered", f"by {r.covered_by}"))
    if r.hint:
        details.append(("hint", r.hint))
    return details
