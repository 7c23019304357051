"""Why one node of a model is not fused, or what it is fused into: the answer of `explain --node`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from fusion_cli.load.structure import bodies_of
from fusion_cli.match import RuleSet
from fusion_cli.match.codes import NO_RULE, NOT_NEAR
from fusion_cli.match.operators import ELEMENTWISE, MOVES, ROW_OPERATORS
from fusion_cli.match.pattern import GROWING
from fusion_cli.simplify.trace import Traced
from fusion_cli.types import Candidate, Rejection, label

Verdict = Literal["fused", "turned down", "missed", "not near", "no rule", "gone"]
_GROWN = {"Pointwise": ELEMENTWISE, "Rowwise": ELEMENTWISE | ROW_OPERATORS, "Move": MOVES}


@dataclass(frozen=True)
class Answer:
    """What is to be said of the node that was asked about. `node` is its name after simplification ("" if it is gone);
    if that is another node or none, `gone` is the code that says why, and `became` what is there instead. `reads` and
    `feeds` are its neighbours, as "operator name"."""

    asked: str
    node: str
    operator: str
    verdict: Verdict
    code: str
    text: str
    gone: str = ""
    became: str = ""
    body_of: str = ""
    reads: tuple[str, ...] = ()
    feeds: tuple[str, ...] = ()


def answer(
    asked: str,
    traced: Traced,
    graph: ir.Graph,
    rules: RuleSet,
    chosen: Iterable[Candidate],
    rejections: Sequence[Rejection],
) -> Answer:
    """Put an answer together; `rejections` are those that concern the node, the costliest first."""
    node = traced.node
    if node is None:
        text = f"gone before rules are matched: {traced.became or 'no graph output depends on it'}"
        return Answer(asked, "", traced.operator, "gone", traced.code, text, traced.code, traced.became)
    verdict, code, text = _verdict(node, rules, chosen, rejections)
    owner = next((n for n in graph.all_nodes() if node.graph in bodies_of(n)), None)
    reads = (p for v in node.inputs if v is not None and (p := v.producer()) is not None)
    feeds = (user for v in node.outputs for user, _ in v.uses())
    return Answer(
        asked,
        label(node),
        node.op_type,
        verdict,
        code,
        text,
        traced.code,
        traced.became,
        "" if owner is None else f"{owner.op_type} {label(owner)}",
        tuple(dict.fromkeys(f"{n.op_type} {label(n)}" for n in reads)),
        tuple(dict.fromkeys(f"{n.op_type} {label(n)}" for n in feeds)),
    )


def _verdict(
    node: ir.Node, rules: RuleSet, chosen: Iterable[Candidate], rejections: Sequence[Rejection]
) -> tuple[Verdict, str, str]:
    owner = next((c for c in chosen if node in c.region.nodes), None)
    if owner is not None:
        targets = ", ".join(owner.targets)
        return "fused", "", f"fused by {owner.region.rule} with {len(owner.region.nodes) - 1} others, for {targets}"
    late = [r for r in rejections if r.stage != "match"]
    if late:
        first = late[0]
        text = f"a candidate of {first.rule} holds it and is not taken: expected {first.expected}, found {first.found}"
        return "turned down", first.code, text
    near = [r for r in rejections if r.rule in {f.name for f in rules.fusions}] or list(rejections)
    if near:
        first = near[0]
        text = f"{first.rule} came nearest; it expected {first.expected}, and found {first.found}"
        return "missed", first.code, text
    known = operators(rules)
    if node.domain or node.op_type not in known:
        whole = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        listed = ", ".join(sorted(known))
        return "no rule", NO_RULE, f"no rule of this level names the operator {whole}; rules know {listed}"
    return "not near", NOT_NEAR, f"rules name {node.op_type}, but what is around this one is near none of them"


def operators(rules: RuleSet) -> frozenset[str]:
    """The operators of the standard domain that the rules name, growing regions included."""
    calls = [c for r in (*rules.idioms, *rules.fusions) for p in r.patterns for c in p.calls]
    named = {c.op for c in calls if not c.domain}
    return frozenset(named).union(*(_GROWN[c.op] for c in calls if c.is_pattern and c.op in GROWING))
