"""What a report tells of one node: the answer of `explain --node` where a run was made already."""

from __future__ import annotations

from fusion_cli.errors import FusionError, did_you_mean
from fusion_cli.explain.why import Answer, Verdict
from fusion_cli.report import Report
from fusion_cli.report.readable import counted
from fusion_cli.types import Fate

_VERDICTS: dict[Fate, Verdict] = {
    "fused": "fused",
    "taken back": "taken back",
    "turned down": "turned down",
    "missed": "missed",
    "left": "not near",
}


def answer_from(report: Report, asked: str, where: str) -> Answer:
    """What became of the node of this name. Raises FusionError where the report knows none."""
    position = next((i for i, n in enumerate(report.graph) if n.name == asked), None)
    if position is None:
        hint = did_you_mean(asked, (n.name for n in report.graph))
        hint = hint or "simplification may have taken it: ask of the model itself"
        raise FusionError(f"no node '{asked}' among those that rules saw", where=where, hint=hint)
    node = report.graph[position]
    code, text = _why(report, asked)
    reads = tuple(f"{report.graph[i].operator} {report.graph[i].name}" for i in node.reads)
    feeds = tuple(f"{n.operator} {n.name}" for n in report.graph if position in n.reads)
    return Answer(asked, asked, node.operator, _VERDICTS[node.fate], code, text, reads=reads, feeds=feeds)


def _why(report: Report, name: str) -> tuple[str, str]:
    """The reason code, if there is one, and the answer in words."""
    fusion = next((f for f in report.fusions if name in f.nodes), None)
    if fusion is not None:
        return "", f"it is one of {counted(len(fusion.nodes), 'node')} of {fusion.name} on {', '.join(fusion.targets)}"
    first = next((r for r in report.rejected if name in r.nodes and r.rule), None)
    if first is not None:
        advice = f"; {first.hint}" if first.hint else ""
        return first.code, f"{first.rule} ({first.stage}) expected {first.expected}, found {first.found}{advice}"
    return "", "what stopped it is told of another place like this one; ask of the model itself for this one's"
