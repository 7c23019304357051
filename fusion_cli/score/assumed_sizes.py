"""Numbers for a model's symbolic dimensions, to predict costs with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter

import onnx_ir as ir

from fusion_cli.quiet import quiet
from fusion_cli.simplify.libraries import attempt, fold_constants, infer_shapes
from fusion_cli.sizes.dims import declared, number
from fusion_cli.sizes.likely import OpenInput, likely_sizes
from fusion_cli.types import Options

_FOLDED = 1 << 12
"""Bytes of the largest constants worth folding: shapes."""


def default_sizes(model: ir.Model, options: Options) -> list[dict[str, int]]:
    """Sizes of every symbolic dimension of the model, at each end of the ranges the user gave.

    Sizes of the graph inputs come from `options.shapes`, `options.dims`, or are likely ones; those inside follow from
    shape inference with these. A symbol that stays unknown is absent.
    """
    symbols = _symbols(model)
    ends: list[dict[str, int]] = []
    for end in (0, 1) if options.bounds else (0,):
        tried: list[tuple[dict[str, int], int]] = []
        for likely in likely_sizes(_open_inputs(model), list(map(declared, model.graph.outputs))):
            bound = likely | _given(model, options, end)
            told = all(number(dim, bound) is not None for dim in symbols.values())
            tried.append((bound, 0) if told else _inferred(model, bound))
            if not tried[-1][1]:
                break
        ends.append(min(tried, key=itemgetter(1))[0])
    return ends[:1] if ends[0] == ends[-1] else ends


def _open_inputs(model: ir.Model) -> list[OpenInput]:
    wanted = [v for v in model.graph.inputs if v.name not in model.graph.initializers]
    return [OpenInput.of(v.name or "", v.dtype, declared(v) or ()) for v in wanted]


def _given(model: ir.Model, options: Options, end: int) -> dict[str, int]:
    """What the user says of sizes."""
    sizes = {
        dim.value: size
        for value in model.graph.inputs
        for dim, size in zip(value.shape or (), options.shapes.get(value.name or "", ()), strict=False)
        if isinstance(dim, ir.SymbolicDim) and dim.value is not None
    }
    return sizes | {name: bounds[end] for name, bounds in options.bounds.items()}


def _inferred(model: ir.Model, inputs: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Infer shapes on a copy with numbers at the inputs, and read off what each symbol became, and how many became
    nothing: sizes that do not go together leave some.

    With numbers the shape arithmetic of exporters folds to constants, which inference alone does not see through. What
    goes with it has no shape any more, and does not count.
    """
    fold = partial(fold_constants, input_elements=_FOLDED, output_elements=_FOLDED)
    start = partial(_with_inputs, model, inputs)
    with quiet():
        copy = attempt({"infer shapes": infer_shapes, "fold constants": fold}, start(), start)
        infer_shapes(copy)
    shapes = {v.name: v.shape for v in (*_values(copy), *copy.graph.initializers.values())}
    sizes, left = dict(inputs), set()
    for value in (v for v in _values(model) if v.name in shapes):
        now = shapes[value.name]
        for axis, old in enumerate(value.shape or ()):
            if isinstance(old, int) or old.value is None:
                continue
            new = now[axis] if now is not None and axis < len(now) else None
            if isinstance(new, int) and new >= 0:
                sizes.setdefault(old.value, new)
            else:
                left.add(old.value)
    return sizes, len(left - sizes.keys())


def _with_inputs(model: ir.Model, sizes: Mapping[str, int]) -> ir.Model:
    """A copy with these sizes at the inputs, of which nothing else is known but what no size changes."""
    copy = model.clone()
    for value in copy.graph.inputs:
        if value.shape is not None:
            known = [(d, number(d, sizes)) for d in value.shape]
            value.shape = ir.Shape([dim if size is None else size for dim, size in known])
    for node in copy.graph.all_nodes():
        for value in node.outputs:
            if value.shape is not None and not value.shape.is_static():
                value.shape = None
    return copy


def _values(model: ir.Model) -> Sequence[ir.Value]:
    return [v for node in model.graph.all_nodes() for v in node.outputs]


def _symbols(model: ir.Model) -> dict[str, ir.SymbolicDim]:
    """The dimensions inside the model that are no numbers, each once, by what they are called."""
    dims = (d for v in _values(model) for d in v.shape or ())
    return {d.value: d for d in dims if not isinstance(d, int) and d.value is not None}
