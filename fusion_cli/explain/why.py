"""Why one node of a model is not fused, or what it is fused into (the answer of `explain --node`), and which nodes
nothing was said of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from fusion_cli.codes.match import NO_RULE, NOT_NEAR, UNKNOWN
from fusion_cli.explain.hints import around, why_not_shaped
from fusion_cli.graph.index import GraphIndex
from fusion_cli.graph.origins import FILTERS
from fusion_cli.language.pattern import GROWING
from fusion_cli.load.structure import bodies_of
from fusion_cli.match import MatchResult, RuleSet
from fusion_cli.match.mixers import PRODUCTS
from fusion_cli.match.rearranging import ARRANGEMENTS
from fusion_cli.operators.registry import (
    ARRANGING,
    COUNTING,
    ELEMENTWISE_NAMES,
    GLOBAL_POOLS,
    MOVES,
    POOLS,
    ROW_OPERATORS,
)
from fusion_cli.simplify.trace import Traced
from fusion_cli.types import Candidate, Rejection, label

Verdict = Literal["fused", "taken back", "turned down", "missed", "not near", "no rule", "gone"]
_EXPECTED = {
    UNKNOWN: "values of known type and rank",
    NO_RULE: "an operator that rules name",
    NOT_NEAR: "something around it that rules describe",
}
_NO_WORK = frozenset({"Constant", "Identity", "Range", "Shape", "Size"})
_COUNTS = frozenset({ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL, None})
_GROWN = {
    "Pointwise": ELEMENTWISE_NAMES,
    "Rowwise": ELEMENTWISE_NAMES | ROW_OPERATORS,
    "Move": MOVES,
    "Convolutions": ELEMENTWISE_NAMES | ROW_OPERATORS | GLOBAL_POOLS | POOLS | FILTERS | {*PRODUCTS, *ARRANGEMENTS},
}


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
    meanings: Sequence[str],
) -> Answer:
    """Put an answer together; `rejections` are those that concern the node, the costliest first, and `meanings` the
    idioms that it is part of."""
    node = traced.node
    if node is None:
        text = f"gone before rules are matched: {traced.became or 'no graph output depends on it'}"
        return Answer(asked, "", traced.operator, "gone", traced.code, text, traced.code, traced.became)
    verdict, code, text = _verdict(node, rules, chosen, rejections, meanings)
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
    node: ir.Node,
    rules: RuleSet,
    chosen: Iterable[Candidate],
    rejections: Sequence[Rejection],
    meanings: Sequence[str],
) -> tuple[Verdict, str, str]:
    owner = next((c for c in chosen if node in c.region.nodes), None)
    if owner is not None:
        targets = ", ".join(owner.targets)
        others = len(owner.region.nodes) - 1
        company = f" with {others} other{'s' * (others > 1)}" if others else ""
        return "fused", "", f"fused by {owner.region.rule}{company}, for {targets}"
    late = [r for r in rejections if r.stage != "match"]
    if late:
        first = late[0]
        text = f"a candidate of {first.rule} holds it and is not taken: expected {first.expected}, found {first.found}"
        return "turned down", first.code, text
    near = [r for r in rejections if r.rule in {f.name for f in rules.fusions}] or list(rejections)
    if near:
        first = near[0]
        advice = f"; {first.hint}" if first.hint else ""
        text = f"{first.rule} came nearest; it expected {first.expected}, and found {first.found}{advice}"
        return "missed", first.code, text
    if _is_about_shapes(node):
        return "not near", NOT_NEAR, "it computes sizes or copies a value, which no kernel of ours would do any faster"
    known, name = operators(rules), _full_name(node)
    code = _code(node, known)
    hint = _hint(node, code)
    if code == UNKNOWN:
        return "not near", code, f"the type or rank of what it makes is not known: {hint}"
    advice = f"; {hint}" if hint else ""
    if code == NO_RULE:
        listed = ", ".join(sorted(known))
        return "no rule", code, f"no rule of this level names the operator {name}{advice}; rules know {listed}"
    what = f"it is part of {', '.join(meanings)}" if meanings else f"rules name {name}"
    return "not near", code, f"{what}, but what is around this one is near none of them{advice}"


def operators(rules: RuleSet) -> frozenset[str]:
    """The operators that the rules name, growing regions included; those of other domains as "domain.name"."""
    calls = [c for r in (*rules.idioms, *rules.fusions) for p in r.patterns for c in p.calls]
    named = {f"{c.domain}.{c.op}" if c.domain else c.op for c in calls if not c.is_pattern}
    return frozenset(named).union(*(_GROWN[c.op] for c in calls if c.is_pattern and c.op in GROWING))


def unconcerned(found: MatchResult, concerned: Collection[ir.Node]) -> tuple[Rejection, ...]:
    """The nodes that are part of nothing that was found or nearly found, by operator: those that no rule names, those
    that compute, those that move data. Shapes and copies are not worth a word."""
    known = operators(found.rules)
    nodes: dict[tuple[str, str], list[ir.Node]] = {}
    for node in (n for g in found.graphs for n in g.index.nodes):
        if node not in concerned and not _is_about_shapes(node):
            nodes.setdefault((_code(node, known), _full_name(node)), []).append(node)
    kinds = sorted(nodes.items(), key=lambda item: (item[0][0], item[0][1] in ARRANGING, -len(item[1]), item[0][1]))
    return tuple(_nothing_near(code, name, alike) for (code, name), alike in kinds)


def _nothing_near(code: str, operator: str, nodes: Sequence[ir.Node]) -> Rejection:
    first, name = nodes[0], label(nodes[0])
    hint = _hint(first, code)
    return Rejection("", name, "match", code, _EXPECTED[code], operator, hint, nodes=(name,), places=len(nodes))


def _code(node: ir.Node, known: Collection[str]) -> str:
    """Why nothing came near a node, where rules name the operators `known`."""
    if _full_name(node) not in known:
        return NO_RULE
    return UNKNOWN if any(v.name and (v.dtype is None or v.shape is None) for v in node.outputs[:1]) else NOT_NEAR


def _hint(node: ir.Node, code: str) -> str:
    if code == UNKNOWN:
        assert isinstance(node.graph, ir.Graph)
        return why_not_shaped(node.outputs[0], GraphIndex(node.graph))
    producers = (v.producer() for v in node.inputs if v is not None)
    return around(node, *producers, *(user for user, _ in node.outputs[0].uses()))


def _full_name(node: ir.Node) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _is_about_shapes(node: ir.Node) -> bool:
    """Whether the node computes sizes and indices, or nothing."""
    if node.domain or node.op_type in _NO_WORK:
        return not node.domain
    return node.op_type in COUNTING | MOVES and {v.dtype for v in node.outputs} <= _COUNTS
