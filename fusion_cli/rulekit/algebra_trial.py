"""Rules of algebra tried on their witnesses: applied alone, to what they should make, with the same results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from fusion_cli.operators.registry import COMMUTATIVE
from fusion_cli.outline.apart import keep_apart
from fusion_cli.rulekit.trial import Limits, Outcome
from fusion_cli.rulekit.witnesses import Witness, Witnessed
from fusion_cli.sessions import Array, open_model
from fusion_cli.simplify import simplify
from fusion_cli.verify import largest_error

_LEAST, _MOST = 3, 12
"""Sizes of the dimensions that a witness names."""
_MAGNITUDES = (1.0, 1e-3, 1e3)
_FLOAT32 = np.finfo(np.float32)
_LIMITS = (_FLOAT32.max, _FLOAT32.tiny, _FLOAT32.smallest_subnormal)
_EXTREMES = np.array([np.nan, np.inf, -np.inf, -0.0, *_LIMITS, *(-n for n in _LIMITS)], np.float32)
_ROUNDING = 16 * float(_FLOAT32.eps)
"""How far results may be off, relative to their largest magnitude."""


def try_algebra(
    rules: Sequence[Witnessed], limits: Limits, *, keep: Path | None = None, say: Callable[[str], None] = lambda _: None
) -> Iterator[Outcome]:
    """Try each witness of these rules `limits.orders` times: each time with operands in another order, other constants,
    sizes and inputs, which are the same in every run. `keep` is where they are left as written, and where they failed.

    Raises CannotRun without ONNX Runtime.
    """
    for rule in rules:
        say(rule.name)
        for witness in rule.witnesses:
            yield _tried(witness, limits.orders, keep)


def _tried(witness: Witness, draws: int, keep: Path | None) -> Outcome:
    faults: list[str] = []
    errors: list[float] = []
    for draw in range(draws):
        rng = np.random.default_rng(draw)
        model = _drawn(witness.model, rng, as_written=draw == 0)
        left, fault = _changed(witness, model)
        if not fault:
            error = _error(witness, model, left, rng)
            allowed = 0 if witness.is_exact else _ROUNDING
            errors.append(error)
            fault = f"numbers differ by {error:.2g}" if error > allowed else ""
        faults += [fault] if fault else []
        if keep is not None and (fault or draw == 0):
            keep.mkdir(parents=True, exist_ok=True)
            onnx.save(model, keep / f"{witness.rule}-w{witness.number}d{draw + 1}.onnx")
    detail = f"in {len(faults)} of {draws}: {faults[0]}" if faults else ""
    place = witness.rule, "algebra", witness.number, witness.path, witness.line
    return Outcome(*place, "failed" if faults else "ok", 1, draws, "-", max(errors, default=None), detail)


def _changed(witness: Witness, model: onnx.ModelProto) -> tuple[ir.Model, str]:
    """What algebra makes of a graph, and what of that the witness does not say."""
    found = simplify(ir.from_proto(model), partial(ir.from_proto, model), blocks=True)
    applied = [r.rule for r in (*found.algebra, *keep_apart(found.model))]
    operators = tuple(n.op_type for n in found.model.graph)
    if applied != [witness.rule]:
        return found.model, f"applied was {', '.join(applied) or 'no rule'}"
    if operators != witness.becomes:
        return found.model, f"it became {', '.join(operators)}"
    return found.model, ""


def _drawn(written: onnx.ModelProto, rng: np.random.Generator, as_written: bool) -> onnx.ModelProto:
    """The graph with a number for each constant, half to two and of either sign, and with operands in any order."""
    model = onnx.ModelProto()
    model.CopyFrom(written)
    for value in model.graph.value_info:
        shape = _sizes(value, {})
        numbers = rng.uniform(0.5, 2, shape) * rng.choice([-1, 1], shape)
        model.graph.initializer.append(numpy_helper.from_array(numbers.astype(np.float32), value.name))
    del model.graph.value_info[:]
    for node in model.graph.node:
        if node.op_type in COMMUTATIVE and not as_written and rng.random() < 0.5:
            node.input[:] = reversed(node.input)
    return model


def _error(witness: Witness, model: onnx.ModelProto, left: ir.Model, rng: np.random.Generator) -> float:
    """How far results lie apart, operator by operator, at sizes and with inputs drawn."""
    dims = [d for value in model.graph.input for d in value.type.tensor_type.shape.dim if d.dim_param]
    sizes = {d.dim_param: int(rng.integers(_LEAST, _MOST)) for d in dims}
    magnitude = rng.choice(_MAGNITUDES)
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        numbers = rng.normal(scale=4 * magnitude, size=_sizes(value, sizes))
        if witness.is_exact:
            numbers = np.where(rng.random(numbers.shape) < 0.3, rng.choice(_EXTREMES, numbers.shape), numbers)
        feeds[value.name] = numbers.astype(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
    protos = (model, ir.to_proto(left))
    expected, found = (open_model(p.SerializeToString(), use="reference").run(feeds) for p in protos)
    return max(largest_error(expected[name], found[name]) for name in expected)


def _sizes(value: onnx.ValueInfoProto, named: dict[str, int]) -> tuple[int, ...]:
    return tuple(named[d.dim_param] if d.dim_param else d.dim_value for d in value.type.tensor_type.shape.dim)
