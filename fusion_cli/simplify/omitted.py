"""Optional outputs that a model leaves out.

An operator may do more, or other things, for an output that has a name, and the passes of other libraries name every
value. So omitted outputs carry a name of ours while these run, and lose it in the end.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

_PREFIX = "__omitted_output_"


def name_omitted_outputs(model: ir.Model) -> None:
    for number, value in enumerate(v for v in _outputs(model) if not v.name):
        value.name = f"{_PREFIX}{number}"


def omit_outputs(model: ir.Model) -> None:
    """Take the names away that `name_omitted_outputs` gave, and that passes may have added to."""
    for value in _outputs(model):
        if (value.name or "").startswith(_PREFIX) and not value.uses() and not value.is_graph_output():
            value.name = ""


def _outputs(model: ir.Model) -> Iterator[ir.Value]:
    for graph in (model.graph, *(f.graph for f in model.functions.values())):
        for node in graph.all_nodes():
            yield from node.outputs
