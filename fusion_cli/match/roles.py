"""What the idioms know of the attentions in a region, for the stages that come after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from fusion_cli.match.found import Idioms, Match
from fusion_cli.types import AttentionRoles


def attention_ends(idioms: Idioms) -> frozenset[ir.Node]:
    """The nodes that make the results of attentions: a region without one has no attention."""
    makers = (m.outputs[0].producer() for m in idioms.by_name.get("Attention", ()))
    return frozenset(node for node in makers if node is not None)


def attentions_in(idioms: Idioms, nodes: Iterable[ir.Node]) -> tuple[AttentionRoles, ...]:
    """The attentions that lie wholly within these nodes, each in its largest reading."""
    inside = dict.fromkeys(nodes)
    results = (v for n in inside for v in n.outputs)
    readings = (next((m for m in idioms.producers("Attention", v) if m.nodes <= inside.keys()), None) for v in results)
    return tuple(_roles(idioms, match) for match in readings if match is not None)


def _roles(idioms: Idioms, match: Match) -> AttentionRoles:
    queries, keys, values = (dict(zip(match.pattern.inputs, match.inputs, strict=True)).get(n) for n in "qkv")
    scores = (m.outputs[0] for m in _within(idioms, match, "AttentionScores") if set(m.inputs[:2]) == {queries, keys})
    weights = [m for name in ("Softmax", "ColumnSoftmax") for m in _within(idioms, match, name)]
    outer = (m.outputs[0] for m in weights if not any(m.nodes < other.nodes for other in weights))
    return AttentionRoles(queries, keys, values, next(scores, None), next(outer, None), match.outputs[0])


def _within(idioms: Idioms, match: Match, name: str) -> Iterator[Match]:
    values = (v for n in match.nodes for v in n.outputs)
    return (m for v in values for m in idioms.producers(name, v) if m.nodes <= match.nodes)
