"""Find idioms that are functions of one input by what they compute, not by how they are written.

Exporters and people arrange GELU in dozens of ways, all the same function. So a rule marked `# match: values` is a
definition: stretches of elementwise nodes over one value and scalar constants are evaluated in float64 at sample
points, and those that agree with the definition are the idiom.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from fusion_cli.codes.match import FUNCTION
from fusion_cli.graph.index import GraphIndex
from fusion_cli.language.pattern import Pattern, Rule
from fusion_cli.match.found import Match, Miss
from fusion_cli.match.stops import Stop
from fusion_cli.operators.elementwise import Array
from fusion_cli.operators.registry import OPERATORS, RESHAPES, evaluate, having, is_known
from fusion_cli.sizes.dims import shape_of

MAX_OPS = 16
"""Most nodes that one idiom is written with. (Hand-written GELU takes eight, with casts ten.)"""

# No value on a kink or zero of a usual activation; large ones tell a clipped function from one that is not.
_NEAR = np.array([0.03, 0.11, 0.37, 0.71, 1.13, 1.51, 1.93, 2.31, 2.72, 3.3, 4.1, 5.7])
POINTS = np.concatenate([-_NEAR, _NEAR, [-77.0, -19.0, 19.0, 77.0]])
_LINEAR = having("linear")
"""Operators that alone make no activation; a stretch of nothing else is not looked at."""
_NEARLY = 0.25
"""A largest difference below which a function was perhaps meant to be the idiom..."""
_LEAST_OPS = 3
"""...if it takes at least this many nodes: a lone Relu is meant as what it is."""

# Constants are rounded to the model's type: 0.044715 is 0.04468 in bfloat16.
_TOLERANCE: Mapping[ir.DataType | None, float] = {ir.DataType.FLOAT16: 2e-4, ir.DataType.BFLOAT16: 6e-4}


@dataclass(frozen=True, eq=False)
class _Curve:
    """A value as a function of another: what it is at POINTS, and the nodes in between."""

    source: ir.Value
    target: ir.Value
    nodes: frozenset[ir.Node]
    values: Array

    @property
    def tolerance(self) -> float:
        """Relative; of the coarsest type that the constants may have been rounded to."""
        return max(_TOLERANCE.get(v.dtype, 5e-5) for v in (self.source, self.target))


def find_by_value(index: GraphIndex, rules: Sequence[Rule]) -> Mapping[str, tuple[list[Match], list[Miss]]]:
    """By name, the matches and the near misses of rules that are defined by value. A curve goes to the nearest
    definition: the erf and tanh forms of GELU differ by only 5e-4."""
    found: dict[str, tuple[list[Match], list[Miss]]] = {r.name: ([], []) for r in rules}
    patterns = [p for r in rules for p in r.patterns]
    if not patterns:
        return found
    known = np.stack(list(map(definition, patterns)))
    missed: list[Miss] = []
    for curve in list(_curves(index)):
        distances = np.abs(known - curve.values) / np.maximum(1.0, np.abs(known))
        worst = distances.max(axis=1)
        nearest = int(np.argmin(worst))
        if worst[nearest] <= curve.tolerance:
            pattern = patterns[nearest]
            bindings = {pattern.inputs[0]: curve.source, pattern.outputs[0]: curve.target}
            found[pattern.rule][0].append(Match.of(pattern, curve.nodes, bindings))
        elif len(curve.nodes) >= _LEAST_OPS:
            # A definition written with one of the operators that bend the curve comes first.
            bending = {n.op_type for n in curve.nodes} - _LINEAR
            akin = [not bending.isdisjoint(c.op for c in p.calls) for p in patterns]
            meant = min(range(len(patterns)), key=lambda i: (not akin[i], worst[i]))
            if worst[meant] <= _NEARLY:
                missed.append(_miss(patterns[meant], curve, distances[meant]))
    matched = frozenset().union(*(m.nodes for matches, _ in found.values() for m in matches))
    for miss in missed:
        if miss.nodes.isdisjoint(matched):
            found[miss.pattern.rule][1].append(miss)
    return found


def definition(pattern: Pattern) -> Array:
    """The rule's own function at POINTS. `rules lint` has seen to it that it is one."""
    values: dict[str, Array] = {name: np.array(number) for name, number in pattern.constants.items()}
    values[pattern.inputs[0]] = POINTS
    for call in pattern.calls:
        values[call.outputs[0]] = evaluate(
            call.domain, call.op, [values[i] if i else None for i in call.inputs], call.attributes
        )
    return np.asarray(values[pattern.outputs[0]])


def _miss(pattern: Pattern, curve: _Curve, distances: Array) -> Miss:
    worst = int(np.argmax(distances))
    node = curve.target.producer()
    assert node is not None
    expected = f"'{curve.target.name}' to be {pattern.rule} of '{curve.source.name}'"
    found = f"{curve.values[worst]:.4g} at {POINTS[worst]:g}, another function"
    stop = Stop(pattern, FUNCTION, node=node, expected=expected, found=found)
    return Miss(pattern, node, curve.nodes, frozenset(), 0, stop, nearness=1.0 - float(distances[worst]))


def _curves(index: GraphIndex) -> Iterator[_Curve]:
    sources = [
        *index.graph.inputs,
        *index.captured,
        *(v for n in index.nodes if not index.is_transparent(n) for v in n.outputs),
    ]
    with np.errstate(all="ignore"):
        for source in sources:
            yield from _curves_from(index, source)


def _curves_from(index: GraphIndex, source: ir.Value) -> Iterator[_Curve]:
    """Values that depend on nothing but `source`, through at least one operator that is not linear."""
    values: dict[ir.Value, Array] = {source: POINTS}
    within: dict[ir.Value, frozenset[ir.Node]] = {source: frozenset()}
    bent: set[ir.Value] = set()
    edge = [source]
    while edge and len(values) <= MAX_OPS:
        consumers = sorted({c for v in edge for c in index.consumers(v)}, key=index.position.__getitem__)
        edge = []
        for node in consumers:
            result = _value(index, node, values)
            target = node.outputs[0]
            if result is None or target in values:
                continue
            made = [v for v in node.inputs if v in within]
            values[target] = result
            edge.append(target)
            # Casts at the source belong to what comes before, as everywhere in matching.
            leading = index.is_transparent(node) and not any(within[v] for v in made)
            within[target] = frozenset() if leading else frozenset([node]).union(*(within[v] for v in made))
            if node.op_type not in _LINEAR or any(v in bent for v in made):
                bent.add(target)
                if _ends(index, node, source, within[target]) and np.isfinite(result).all():
                    yield _Curve(source, target, within[target], result)


def _ends(index: GraphIndex, node: ir.Node, source: ir.Value, within: frozenset[ir.Node]) -> bool:
    """Whether a curve may end at the node. What is reshaped on the way has to have come back to its first shape, which
    it cannot once differing shapes were broadcast together: that makes more numbers, and nothing here makes fewer."""
    if index.is_transparent(node) or node.op_type in RESHAPES:
        return False
    return all(n.op_type not in RESHAPES for n in within) or _is_one_shape([source, node.outputs[0]])


def _is_one_shape(values: Sequence[ir.Value]) -> bool:
    shapes = [shape_of(v) for v in values]
    return shapes[0] is not None and all(s == shapes[0] for s in shapes)


def _value(index: GraphIndex, node: ir.Node, values: Mapping[ir.Value, Array]) -> Array | None:
    """What the node computes where its inputs are known, or None."""
    if not node.domain and node.op_type in RESHAPES:
        return values.get(node.inputs[0]) if node.inputs[0] is not None else None
    if not is_known(node.domain, node.op_type) or len(node.outputs) > (2 if index.is_transparent(node) else 1):
        return None
    if node.op_type in ("Cast", "Dropout") and not index.is_transparent(node):
        return None
    arguments: list[Array | None] = []
    inputs = index.inputs(node)
    for value in inputs[: OPERATORS[node.domain, node.op_type].arity]:
        known: Any = None
        if value is not None:
            known = values.get(value)
            if known is None:
                known = index.scalar(value)
            if known is None:
                return None
        arguments.append(known)
    return np.broadcast_to(evaluate(node.domain, node.op_type, arguments, index.attributes(node)), POINTS.shape)
