"""Initializers that are graph inputs too: a caller may override them, so nothing may be computed from them ahead of
time and no rule may take them for constants."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from fusion_cli.errors import ModelError, did_you_mean

ALL = "all"
_FIRST_OVERRIDABLE = 4
"""Before this IR version every initializer had to be listed as an input, and ONNX Runtime lets none be overridden."""


def is_constant(value: ir.Value) -> bool:
    """Whether the value is known when the model is built: it has an initializer, which callers cannot override."""
    return value.const_value is not None and not value.is_graph_input()


def fix_initializers(model: ir.Model, assumed: Collection[str], where: str) -> None:
    """Take the initializers that nobody overrides out of the graph inputs: those named in `assumed` ("all": every
    one), and in models of IR version 3 and below every one.

    Raises ModelError for a name that is no graph input with an initializer.
    """
    graph = model.graph
    overridable = {v.name or "": v for v in graph.inputs if v.name in graph.initializers}
    wanted = set(assumed) - {ALL}
    for name in sorted(wanted - overridable.keys()):
        raise ModelError(_problem(name, graph), where=where, hint=_advice(name, overridable))
    if ALL in assumed or (model.ir_version or 0) < _FIRST_OVERRIDABLE:
        wanted = set(overridable)
    if wanted:
        kept = [v for v in graph.inputs if v.name not in wanted]
        graph.inputs.clear()
        graph.inputs.extend(kept)


def _problem(name: str, graph: ir.Graph) -> str:
    if name in graph.initializers:
        return f"'{name}' is a constant already: it is not among the graph inputs"
    if any(v.name == name for v in graph.inputs):
        return f"the graph input '{name}' has no initializer, so it has no value to assume"
    return f"no graph input '{name}'"


def _advice(name: str, overridable: Collection[str]) -> str:
    if not overridable:
        return "no graph input of this model has an initializer; leave --assume-constant out"
    guess = did_you_mean(name, overridable) or f"those with an initializer include '{min(overridable)}'"
    return f"{guess.rstrip('?')}; `--assume-constant {ALL}` takes every graph input that has an initializer"
