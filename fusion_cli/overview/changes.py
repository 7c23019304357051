"""What nodes of one model became in another, by the values that both have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import onnx_ir as ir

from fusion_cli.load import load_model
from fusion_cli.overview.facts import Facts, facts_of
from fusion_cli.types import label


@dataclass(frozen=True)
class Became:
    """A node of the second model, and the nodes of the first that make the same of the same values; none of them where
    it makes a value that the first does not have."""

    node: str
    operator: str
    nodes: tuple[str, ...]
    operators: tuple[str, ...]

    @property
    def kind(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        """What makes two changes alike."""
        return self.operator, tuple(sorted(Counter(self.operators).items()))


@dataclass(frozen=True)
class Difference:
    """Two models: their facts, the nodes that became others, and how many nodes are the same."""

    before: Facts
    after: Facts
    became: tuple[Became, ...]
    gone: tuple[str, ...]
    """Nodes of the first that no node of the second stands for."""
    unchanged: int

    def operators(self) -> dict[str, tuple[int, int]]:
        """How often each operator is used before and after, where that is not the same."""
        names = sorted({*self.before.operators, *self.after.operators})
        counts = {n: (self.before.operators.get(n, 0), self.after.operators.get(n, 0)) for n in names}
        return {name: pair for name, pair in counts.items() if pair[0] != pair[1]}


def difference(first: Path, second: Path) -> Difference:
    """What differs between two models, bodies of control flow aside. Raises FusionError where one cannot be read."""
    before, after = load_model(first), load_model(second)
    makers: dict[str | None, ir.Node] = {v.name: n for n in before.graph for v in n.outputs if v.name}
    made = {v.name for n in after.graph for v in n.outputs}
    became, accounted, unchanged = [], set(), 0
    for node in after.graph:
        own = makers.get(node.outputs[0].name) if node.outputs else None
        if own is not None and _same(own, node):
            unchanged += 1
            accounted.add(own)
            continue
        nodes = _behind(node, makers, made)
        accounted.update(nodes)
        names = (tuple(label(n) for n in nodes), tuple(n.op_type for n in nodes))
        became.append(Became(label(node), node.op_type, *names))
    gone = tuple(label(n) for n in before.graph if n not in accounted)
    return Difference(facts_of(first, False), facts_of(second, False), tuple(became), gone, unchanged)


def _same(first: ir.Node, second: ir.Node) -> bool:
    return _identity(first) == _identity(second)


def _identity(node: ir.Node) -> object:
    inputs = [None if v is None else v.name for v in node.inputs]
    attributes = sorted((name, str(a.value)) for name, a in node.attributes.items() if not _is_body(a))
    return node.domain, node.op_type, inputs, [v.name for v in node.outputs], attributes


def _is_body(attribute: ir.Attr) -> bool:
    return attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def _behind(node: ir.Node, makers: Mapping[str | None, ir.Node], made: set[str | None]) -> list[ir.Node]:
    """The nodes of the first model between what this one reads and what it makes, that which makes it last."""
    read = {v.name for v in node.inputs if v is not None}
    found: dict[ir.Node, None] = {}
    pending = [v.name for v in node.outputs]
    while pending:
        maker = makers.get(pending.pop())
        if maker is not None and maker not in found:
            found[maker] = None
            pending += [v.name for v in maker.inputs if v is not None and v.name not in read | made]
    return list(reversed(found))
