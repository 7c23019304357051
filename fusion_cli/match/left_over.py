"""What other fusions leave of a grown region, which is the largest that there is: a fusion that needs one node of it
would have the others run one by one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

import onnx_ir as ir

from fusion_cli.language.pattern import Rule
from fusion_cli.match.grow import Grower
from fusion_cli.types import Region

_GROWN = frozenset({"Pointwise", "Rowwise"})


def left_over(grower: Grower, rule: Rule, regions: Sequence[Region]) -> list[frozenset[ir.Node]]:
    """The regions that a rule which is one growing pattern finds in its own `regions` without the nodes of another
    rule's, or of all others, that they overlap."""
    calls = [p.calls[0] for p in rule.patterns if len(p.calls) == 1 and p.calls[0].op in _GROWN]
    if not calls:
        return []
    own = [frozenset(r.nodes) for r in regions if r.rule == rule.name]
    known = set(own)
    found: dict[frozenset[ir.Node], None] = {}
    for rest in dict.fromkeys(_differences(own, [r for r in regions if r.rule != rule.name])):
        for call in calls:
            found |= dict.fromkeys(g for g in grower.groups(call, rest) if g not in known)
    return list(found)


def _differences(groups: Sequence[frozenset[ir.Node]], others: Collection[Region]) -> Iterator[frozenset[ir.Node]]:
    """Each group without each of the other regions that has some of it, and without all of those."""
    holding: dict[ir.Node, list[frozenset[ir.Node]]] = defaultdict(list)
    for nodes in dict.fromkeys(frozenset(r.nodes) for r in others):
        for node in nodes:
            holding[node].append(nodes)
    for group in groups:
        cutting = dict.fromkeys(other for node in group for other in holding[node] if not group <= other)
        for other in cutting:
            yield group - other
        if cutting:
            yield group.difference(*cutting)
