"""Names that values of bodies may have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import onnx_ir as ir

from fusion_cli.load.structure import bodies_of


def tell_apart(model: ir.Model) -> None:
    """Give each value in a body whose name one of a graph around it has another, in place. Nodes that come out of a
    branch once it is decided keep the names that they had there, which branches of other nodes may have too; the
    library's own pass looks at what comes before only."""
    _tell_apart(model.graph, ())


def _tell_apart(graph: ir.Graph, around: Sequence[set[str]]) -> None:
    names = {value.name or "" for value in _made(graph)}
    for value in _made(graph) if around else ():
        if any(value.name in others for others in around):
            stem = value.name
            value.name = next(n for i in count(1) if not any((n := f"{stem}_{i}") in s for s in (*around, names)))
            names.add(value.name)
    for node in graph:
        for body in bodies_of(node):
            _tell_apart(body, (*around, names))


def _made(graph: ir.Graph) -> Iterator[ir.Value]:
    yield from graph.inputs
    yield from tuple(graph.initializers.values())
    for node in graph:
        yield from node.outputs
