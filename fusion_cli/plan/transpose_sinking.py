"""Products of transposed rows are computed of the rows as they lie, and transposed: views of a result may be read where
it lies, while a product's rows cannot.

PyTorch's attention has the sequence first whatever its input has, and is exported with a Transpose before the product
that makes queries, keys and values, which the heads' own Transposes after it undo.
"""

from __future__ import annotations

from collections.abc import Sequence

from fusion_cli.plan.aliases import AliasAnalysis
from fusion_cli.plan.graph import Uses, Val
from fusion_cli.plan.lowering import Builder
from fusion_cli.plan.row_axes import is_of_columns

_MATRIX = 2


def sink_transposes(builder: Builder, outputs: Sequence[Val]) -> list[Val]:
    """The program with transposes of rows behind the products of these with matrices, and behind what has been added to
    the columns of these."""
    uses = Uses(outputs)
    sunk = {
        val
        for val in uses.order
        if _is_of_rows(val) and val not in uses.outputs and all(_multiplies_rows(r, val) for r in uses.readers(val))
    }
    if not sunk:
        return list(outputs)
    new: dict[Val, Val] = {}
    for val in uses.order:
        builder.node = val.node
        args = [new[a] for a in val.args]
        at = next((n for n, a in enumerate(val.args) if a in sunk and _is_of_rows(new[a])), None)
        if at is not None and (_multiplies_rows(val, val.args[at]) or _adds_to_columns(builder, uses, val, at)):
            new[val] = _transposed_after(builder, val, args, at)
            sunk.add(val)
        elif args == list(val.args):
            new[val] = val
        elif val.op == "reshape":
            new[val] = builder.reshape(args[0], val.dims)
        elif val.op == "transpose":
            new[val] = builder.transpose(args[0], val.perm)
        else:
            new[val] = builder.again(val, args, val.dims)
    return [new[o] for o in outputs]


def copies(builder: Builder, outputs: Sequence[Val]) -> int:
    """How many views of a program are copied."""
    return len(AliasAnalysis(builder, Uses(outputs)).copied)


def _is_of_rows(val: Val) -> bool:
    """Whether a value is a transpose that leaves every row together."""
    return val.op == "transpose" and len(val.shape) > _MATRIX and val.perm[-1] == len(val.perm) - 1


def _multiplies_rows(reader: Val, rows: Val) -> bool:
    """Whether a value is the product of rows and one matrix."""
    if reader.op != "matmul" or reader.args[0] is not rows or reader.attr("trans_a"):
        return False
    return len(reader.args[1].shape) == _MATRIX


def _adds_to_columns(b: Builder, uses: Uses, val: Val, at: int) -> bool:
    """Whether a value is computed of such a product and of numbers by column, and nobody else reads the product."""
    product = val.args[at]
    others = [a for n, a in enumerate(val.args) if n != at]
    alone = product not in uses.outputs and uses.readers(product) == [val]
    return val.is_elementwise and alone and val.shape == product.shape and all(is_of_columns(b, a) for a in others)


def _transposed_after(b: Builder, val: Val, args: Sequence[Val], at: int) -> Val:
    """The same of rows as they lie, in place of those that are transposed, and transposed."""
    rows, perm = args[at].args[0], args[at].perm
    if val.op == "matmul":
        alpha = val.attr("alpha")
        assert isinstance(alpha, float)
        return b.transpose(b.matmul(rows, args[1], trans_b=bool(val.attr("trans_b")), alpha=alpha), perm)
    return b.transpose(b.again(val, [*args[:at], rows, *args[at + 1 :]], rows.dims), perm)
