"""Each fused operator on its own: its kernel against its nodes, on values from a run of the whole model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir

from fusion_cli.types import FusedOp, OpCheck, TensorSpec
from fusion_cli.verify.feeds import Feeds
from fusion_cli.verify.model import compare_output
from fusion_cli.verify.numbers import tolerance
from fusion_cli.verify.sessions import CPU, Array, CannotRun, open_model
from fusion_cli.verify.timing import alternate

_VALUES_AT_ONCE = 64
"""How many intermediate values one run keeps; more would hold most of a large model's activations in memory."""


@dataclass(frozen=True)
class Call:
    """One call of an operator in the fused model."""

    op: FusedOp
    node: ir.Node

    @property
    def captured(self) -> tuple[ir.Value, ...]:
        """The inputs that are computed, not constants of the model."""
        return tuple(dict.fromkeys(v for v in self.node.inputs if v is not None and v.const_value is None))


def check_ops(
    fused: Path,
    ops: Sequence[FusedOp],
    feeds: Feeds,
    *,
    library: Path,
    target: str,
    providers: Sequence[str] = CPU,
    seconds: float = 10.0,
) -> tuple[OpCheck, ...]:
    """Run one call of every operator with its kernel and without, and compare (and, with `seconds`, time) the two.

    Calls in the bodies of control flow are left out: their inputs are not visible from outside. Raises CannotRun if
    ONNX Runtime does not run the fused model without the library.
    """
    model = ir.load(fused)
    calls = [Call(op, node) for op in ops if (node := _find_call(model, op)) is not None]
    share = min(1.0, seconds / len(calls)) if calls else 0.0
    checks: list[OpCheck] = []
    for batch in _batches(calls):
        values = _capture(fused, feeds, {v.name or "" for call in batch for v in call.captured}, providers)
        checks.extend(_check(model, call, values, fused.parent, library, target, providers, share) for call in batch)
    return tuple(checks)


def single_op_model(model: ir.Model, call: Call) -> onnx.ModelProto:
    """A model of one call: its function, the constants it is given, and its other inputs as graph inputs.

    Constants kept outside the model file stay outside: the result must be opened with the model's folder.
    """
    clones: dict[ir.Value, ir.Value] = {}
    for value, spec in zip(call.node.inputs, call.op.inputs, strict=True):
        if value is not None:
            clones[value] = _value(value.name or spec.name, spec)
            clones[value].const_value = value.const_value
    outputs = [_value(v.name or spec.name, spec) for v, spec in zip(call.node.outputs, call.op.outputs, strict=True)]
    node = ir.Node(
        call.node.domain,
        call.node.op_type,
        [None if v is None else clones[v] for v in call.node.inputs],
        call.node.attributes.values(),
        overload=call.node.overload,
        outputs=outputs,
        name=call.node.name,
    )
    graph = ir.Graph(
        [clones[v] for v in call.captured],
        outputs,
        nodes=[node],
        initializers=[c for c in clones.values() if c.const_value is not None],
        opset_imports=dict(model.graph.opset_imports),
        name=call.op.name,
    )
    function = model.functions[call.node.op_identifier()]
    return ir.to_proto(ir.Model(graph, ir_version=model.ir_version, functions=[function]))


def _check(
    model: ir.Model,
    call: Call,
    values: Mapping[str, Array],
    folder: Path,
    library: Path,
    target: str,
    providers: Sequence[str],
    seconds: float,
) -> OpCheck:
    op = call.op
    allowed = tolerance(spec.dtype for spec in (*op.inputs, *op.outputs))
    source = single_op_model(model, call).SerializeToString()
    try:
        off = open_model(source, providers=providers, folder=folder)
        on = open_model(source, libraries=[library], providers=providers, folder=folder)
        reference, found = off.run(values), on.run(values)
    except CannotRun as error:
        return OpCheck(op.name, target, float("inf"), allowed, note=str(error))
    worst = max(compare_output(reference, found, name) for name in reference)
    if seconds <= 0 or worst > allowed:
        return OpCheck(op.name, target, worst, allowed)
    a, b = off.bind(values), on.bind(values)
    timing = alternate(lambda: off.run_bound(a), lambda: on.run_bound(b), seconds=seconds)
    return OpCheck(op.name, target, worst, allowed, timing.a_us, timing.b_us)


def _find_call(model: ir.Model, op: FusedOp) -> ir.Node | None:
    names = set(op.call_names)
    return next((n for n in model.graph if n.name in names and n.op_type == op.name), None)


def _batches(calls: Iterable[Call]) -> Iterable[list[Call]]:
    batch: list[Call] = []
    wanted = 0
    for call in calls:
        if batch and wanted + len(call.captured) > _VALUES_AT_ONCE:
            yield batch
            batch, wanted = [], 0
        batch.append(call)
        wanted += len(call.captured)
    if batch:
        yield batch


def _capture(fused: Path, feeds: Feeds, names: set[str], providers: Sequence[str]) -> dict[str, Array]:
    """The values of that name in a run of the model without libraries."""
    proto = onnx.load(fused, load_external_data=False)
    present = {o.name for o in proto.graph.output} | set(feeds)
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names - present))
    values = open_model(proto.SerializeToString(), providers=providers, folder=fused.parent).run(feeds)
    return {name: feeds[name] if name in feeds else values[name] for name in names}


def _value(name: str, spec: TensorSpec) -> ir.Value:
    dtype = np.dtype(getattr(ml_dtypes, spec.dtype, spec.dtype))
    return ir.Value(name=name, type=ir.TensorType(ir.DataType.from_numpy(dtype)), shape=ir.Shape(spec.shape))
