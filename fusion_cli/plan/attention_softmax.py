"""What a softmax is of, also where it is written out, and where each row has one score more than keys (a sink)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusion_cli.plan.graph import Uses, Val
from fusion_cli.plan.lowering import Builder
from fusion_cli.plan.slicing import Slice, sliced
from fusion_cli.sizes.algebra import ONE

_LOST = 2.0**-25
"""What added to a float32 of 1 or more changes nothing."""


@dataclass(frozen=True, eq=False)
class Softmax:
    """`root` is the softmax of the scores `x` over the last axis, `zero_empty` with zeros for a row that is all -inf.

    `sink`: one score more per row, of a key whose weight is dropped; `is_one_told`: that it is one is known now.
    """

    root: Val
    x: Val
    sink: Val | None = None
    zero_empty: bool = False
    is_one_told: bool = True


def softmax_at(b: Builder, uses: Uses, val: Val) -> Softmax | None:
    """The softmax that is `val` or that `val` is part of."""
    if val.op != "softmax":
        return _logarithmic(val) if val.op == "Exp" else _quotient(b, val)
    x = _unshifted(val.args[0])
    return _with_sink(b, uses, val, x) or Softmax(val, x, None, bool(val.attr("zero_empty")))


def _unshifted(x: Val) -> Val:
    """What x is, less the highest of each row: that changes no softmax."""
    if x.op == "Sub" and x.args[1].op == "reduce_max" and x.args[1].args[0] is x.args[0]:
        return x.args[0]
    return x


def _with_sink(b: Builder, uses: Uses, softmax: Val, x: Val) -> Softmax | None:
    """Scores joined with sinks, the softmax of both, and the sinks' weights cut off again."""
    readers = uses.readers(softmax)
    if x.op != "concat" or x.axis != -1 or len(x.args) != 2 or [r.op for r in readers] != ["slice"]:
        return None
    (root,), (scores, sink) = readers, (part.args[0] for part in x.args)
    width = b.sizes.norm(sink.shape[-1])
    starts, steps = b.literals(root.shape_value("starts")), b.literals(root.shape_value("steps"))
    if any(starts) or any(s != 1 for s in steps) or width.known not in (None, 1):
        return None
    if width != ONE:
        one = b.shapes.const((1,))
        sink = sliced(b, sink, Slice((-1,), b.shapes.const((0,)), one, one))
    return Softmax(root, scores, sink, is_one_told=width == ONE and b.sizes.equal(root.shape[-1], scores.shape[-1]))


def _logarithmic(val: Val) -> Softmax | None:
    """exp(x - log(sum(exp(x))))"""
    x = val.args[0]
    if x.op != "Sub" or x.args[1].op != "Log":
        return None
    total = x.args[1].args[0]
    if total.op != "reduce_sum" or total.args[0].op != "Exp" or total.args[0].args[0] is not x.args[0]:
        return None
    return Softmax(val, _unshifted(x.args[0]))


def _quotient(b: Builder, val: Val) -> Softmax | None:
    """exp(x) / (sum(exp(x)) + c): the number c is the weight, before it is normalised, of a sink."""
    if val.op == "Mul":
        inverse = next((a for a in val.args if a.op == "Reciprocal"), val)
        power, total = next((a for a in val.args if a is not inverse), val), inverse.args[0]
    elif val.op == "Div":
        power, total = val.args
    else:
        return None
    number = next((a for a in total.args if a.op == "const"), None) if total.op == "Add" else None
    if number is not None:
        total = next(a for a in total.args if a is not number)
    if power.op != "Exp" or total.op != "reduce_sum" or total.args[0] is not power:
        return None
    x = _unshifted(power.args[0])
    more = 0.0 if number is None else float(number.value or 0)
    if more == 0 or (x is not power.args[0] and abs(more) < _LOST):
        return Softmax(val, x)
    if x is not power.args[0] or more < 0:
        return None
    return Softmax(val, x, b.const(math.log(more), x.dtype))
