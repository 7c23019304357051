"""Products of rows whose axes were merged for them, and split again afterwards, are of the rows' own axes.

A framework's linear layer is often Reshape, Gemm, Reshape: what follows has more axes than the product then, and could
not be computed by its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping

from fusion_cli.plan.graph import REDUCTIONS, Uses, Val
from fusion_cli.plan.lowering import Builder

_MATRIX = 2


def with_row_axes(b: Builder, uses: Uses, split: Val, new: Mapping[Val, Val]) -> Val | None:
    """A reshape that splits the rows of a product, or of what has been added to its columns, as a product that has them
    split; None where it is none, or nothing computes with it. `new`: what values before it became."""
    if len(split.shape) <= _MATRIX or not b.sizes.equal(split.shape[-1], split.args[0].shape[-1]):
        return None
    if not any(r.is_elementwise or r.op in REDUCTIONS for r in uses.readers(split)):
        return None
    chain = _chain(b, uses, split)
    if chain is None:
        return None
    product, *after = reversed(chain)
    left, right = (new[a] for a in product.args)
    rows = b.shapes.emit("slice", (split.dims,), (0, len(split.shape) - 1, 1))
    depth = b.shapes.emit("take", (left.dims,), (1,))
    b.node = product.node
    made = b.again(product, (b.reshape(left, b.shapes.emit("concat", (rows, depth))), right), split.dims)
    for val in after:
        b.node = val.node
        made = b.again(val, [made if a in chain else new[a] for a in val.args], split.dims)
    return made


def _chain(b: Builder, uses: Uses, split: Val) -> list[Val] | None:
    """What only the reshape reads, back to the product of a matrix and a matrix."""
    chain: list[Val] = []
    val = split.args[0]
    while val not in uses.outputs and len(uses.readers(val)) == 1:
        chain.append(val)
        if val.op == "matmul":
            is_plain = not val.attr("trans_a") and val.args[0].op != "transpose"
            return chain if is_plain and all(len(a.shape) == _MATRIX for a in val.args) else None
        whole = [a for a in val.args if len(a.shape) == len(val.shape) and b.sizes.equal(a.shape[0], val.shape[0])]
        others = [a for a in val.args if a not in whole]
        if not val.is_elementwise or len(whole) != 1 or not all(is_of_columns(b, a) for a in others):
            return None
        val = whole[0]
    return None


def is_of_columns(b: Builder, val: Val) -> bool:
    """Whether a value is the same for all rows."""
    return val.op != "index" and len(b.sizes.strip(val.shape)) <= 1
