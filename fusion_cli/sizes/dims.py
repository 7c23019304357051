"""Shapes and element types of values: read as sizes, named, shown, and in numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import onnx_ir as ir

from fusion_cli.operators.dtypes import name_of
from fusion_cli.sizes.algebra import UNKNOWN, Shape, Size, names_in, unknown
from fusion_cli.sizes.operations import substitute
from fusion_cli.sizes.parsing import expression, parse, spelled_out, written


def shape_of(value: ir.Value) -> Shape | None:
    """A value's shape, or None; an unnamed unknown dimension is unequal to every other."""
    if value.shape is None:
        return None
    return tuple(
        parse(d) if isinstance(d, int) else parse(d.value) if d.value else unknown(f"{id(value)}_{i}")
        for i, d in enumerate(value.shape)
    )


def dims_of(value: ir.Value) -> tuple[int | str, ...] | None:
    """The same as numbers and symbols; equal symbols are equal sizes."""
    shape = shape_of(value)
    return None if shape is None else tuple(str(s) if s.known is None else s.known for s in shape)


def declared(value: ir.Value) -> tuple[int | str, ...] | None:
    """A value's shape as the model has it: numbers, and names; "" for a dimension without one."""
    return None if value.shape is None else tuple(d if isinstance(d, int) else d.value or "" for d in value.shape)


def number(dim: int | str | ir.SymbolicDim, sizes: Mapping[str, int]) -> int | None:
    """A dimension in numbers, given those of names or of whole dimensions; None where it cannot be told, or would be
    less than nothing."""
    if isinstance(dim, int):
        return dim
    text = dim.value if isinstance(dim, ir.SymbolicDim) else dim
    if text is None or text in sizes:
        return sizes.get(text or "")
    size = parse(text)
    found = substitute(size, {name: Size(sizes[name]) for name in names_in(size) if name in sizes}).known
    return None if found is None or found < 0 else found


def numbers(value: ir.Value, sizes: Mapping[str, int]) -> tuple[int, ...] | None:
    """The shape of a value in numbers, if all of it can be told."""
    if value.shape is None:
        return None
    known = [number(d, sizes) for d in value.shape]
    return None if None in known else tuple(k for k in known if k is not None)


def dtype_of(value: ir.Value) -> str:
    """The element type by its common name, such as "float32"."""
    return name_of(value.dtype)


def shown_shape(value: ir.Value) -> str:
    """A shape as it is read in messages: "[batch,?,64]"."""
    dims = dims_of(value)
    return " of unknown shape" if dims is None else listed(dims)


def listed(dims: Sequence[int | str | Size]) -> str:
    """Sizes and symbols in brackets; "?" for a size that has no name."""
    return "[" + ",".join("?" if UNKNOWN in str(d) else written(str(d)) for d in dims) + "]"


@cache
def symbol(name: str) -> str:
    """The name of a size as the stages speak of it. Shape inference takes it for an expression, stops at what is none,
    such as "output-0_dim0", or at a number, and never ends with 9**9**9**9: those are spelled out."""
    if name.isidentifier():
        return name
    found = expression(name)
    try:
        is_expression = found is not None and bool(names_in(found) and ir.SymbolicDim(name).free_symbols())
    except ValueError:
        is_expression = False
    return name if is_expression else spelled_out(name)


def name_sizes(model: ir.Model, name: Callable[[str], str | None]) -> None:
    """Rename the sizes of all values: with `symbol` after loading, with `written` before saving."""
    graphs: list[ir.Graph | ir.Function] = [model.graph, *model.graph.subgraphs(), *model.functions.values()]
    for graph in graphs:
        rename_sizes(graph.inputs, name)
        rename_sizes((v for node in graph for v in node.outputs), name)


def forget_names(body: Iterable[ir.Node]) -> None:
    """Leave sizes without names in the body of a function: calls share it, and have sizes of their own."""
    rename_sizes((v for node in body for v in node.outputs), lambda _: None)


def rename_sizes(values: Iterable[ir.Value], name: Callable[[str], int | str | None]) -> None:
    """Call the named sizes of values otherwise: by another name, by a number, or by none."""

    def renamed(dim: int | ir.SymbolicDim) -> int | str | ir.SymbolicDim | None:
        if isinstance(dim, int) or dim.value is None:
            return dim
        new = name(dim.value)
        return dim if new == dim.value else new

    for value in values:
        if value.shape is None or value.shape.is_static():
            continue
        dims = list(map(renamed, value.shape))
        if any(new is not old for new, old in zip(dims, value.shape, strict=True)):
            value.shape = ir.Shape(dims)
