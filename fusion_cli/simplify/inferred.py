"""What is known of sizes where shapes are inferred."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from weakref import WeakKeyDictionary

import onnx_ir as ir
from onnx_shape_inference import ShapeInferenceContext

from fusion_cli.sizes.algebra import Size, names_in
from fusion_cli.sizes.parsing import LONGEST, parse

Dim = int | ir.SymbolicDim
Infer = Callable[[ShapeInferenceContext, ir.Node], None]

MOST_ELEMENTS = 1024
"""Of a tensor whose elements are followed one by one: shapes and lists of axes have fewer."""
_OWN = re.compile(r"\b_d\d+\b")
"""What the library calls sizes that it does not know."""
_sizes: WeakKeyDictionary[ShapeInferenceContext, set[str]] = WeakKeyDictionary()
"""Of each run, the names that shapes have been read with. The library gives names of its own to elements of tensors
too, which need not be sizes: -1 and 0 mean something else to a Reshape."""


def note_sizes(ctx: ShapeInferenceContext, shape: Iterable[Dim]) -> None:
    """Remember the names in a shape that is read."""
    _sizes.setdefault(ctx, set()).update(n for dim in shape for n in names_in(parse(written(dim))))


def is_of_sizes(ctx: ShapeInferenceContext, dim: Dim) -> bool:
    """Whether an element of a tensor is made of nothing but numbers and sizes."""
    known = _sizes.get(ctx, set())
    return isinstance(dim, int) or all(
        n in known or not ctx.is_generated_symbol(n) for n in names_in(parse(written(dim)))
    )


def elements(ctx: ShapeInferenceContext, value: ir.Value) -> list[Dim] | None:
    """The elements of a list of integers, with names for those that are not known."""
    known: list[Dim] | None = ctx.get_symbolic_value(value)
    if known is not None or value.shape is None or not value.shape.is_static():
        return known
    if math.prod(value.shape.numpy()) > MOST_ELEMENTS:
        return None
    return [ctx.new_symbolic_dim() for _ in range(math.prod(value.shape.numpy()))]


def dim_of(ctx: ShapeInferenceContext, size: Size | None) -> Dim:
    """A size as the library has it. It takes names for positive wherever it comes by, `Min(1, n)` for 1 and
    `Max(0, _d0 - 1)` for `_d0 - 1`: what it would make a number of, what it would misread of its own names, which may
    stand for 0, and what it cannot read becomes a name."""
    if size is not None and size.known is not None:
        return size.known
    text = str(size or "")
    try:
        read: Dim = ctx.simplify_dim(ir.SymbolicDim(text)) if 0 < len(text) <= LONGEST else 0
    except ValueError:
        read = 0
    misread = isinstance(read, int) or (_OWN.search(text) and _extremes(str(read)) < _extremes(text))
    named: Dim = ctx.new_symbolic_dim() if misread else ir.SymbolicDim(text)
    return named


def _extremes(text: str) -> int:
    return text.count("Min(") + text.count("Max(")


def written(dim: Dim) -> int | str:
    return dim if isinstance(dim, int) else dim.value or ""
