"""Each fused operator on its own: its kernel against its nodes, on values from a run of the whole model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
import onnx
import onnx_ir as ir
from onnx_ir.external_data import convert_tensors_from_external
from onnx_ir.passes.common import InlinePass

from fusion_cli.listener import NOBODY, Listener
from fusion_cli.load import load_model
from fusion_cli.load.weights import InModelFile
from fusion_cli.measured import OpCheck, OutputCheck
from fusion_cli.operators.dtypes import DTYPES
from fusion_cli.outline.both_ways import drop_guards
from fusion_cli.save.stream import write_model
from fusion_cli.sessions import Array, CannotRun, open_model
from fusion_cli.sessions.process import Opener, Runner
from fusion_cli.sizes.algebra import names_in
from fusion_cli.sizes.dims import number
from fusion_cli.sizes.parsing import parse
from fusion_cli.types import FusedOp, TensorSpec
from fusion_cli.verify import compare, limit
from fusion_cli.verify.feeds import Feeds
from fusion_cli.verify.sides import runs_with

_ROUNDS = 200
_SLOWER = 1.05
"""How many times as long as its nodes a kernel has to take to be given up by itself: whether less matters shows in the
whole model, and kernels of one rule are to stay or go together there."""
_UNNAMED = 4
"""The size, where one is made up, of a dimension without a name."""
_VALUES_AT_ONCE = 64
"""How many intermediate values one run keeps; more would hold most of a large model's activations in memory."""


@dataclass(frozen=True, eq=False)
class Call:
    """One call of an operator in `model`."""

    op: FusedOp
    model: ir.Model
    node: ir.Node

    @property
    def is_in_body(self) -> bool:
        """Whether it lies in a branch or a loop, where its inputs are not visible from outside."""
        return self.node.graph is not self.model.graph

    @property
    def captured(self) -> tuple[ir.Value, ...]:
        """The inputs that are computed, not constants of the model."""
        return tuple(dict.fromkeys(v for v in self.node.inputs if v is not None and v.const_value is None))


def check_ops(
    fused: Path,
    ops: Sequence[FusedOp],
    cases: Sequence[Feeds],
    *,
    library: Path,
    target: str,
    seconds: float = 10.0,
    opener: Opener = open_model,
    listener: Listener = NOBODY,
) -> tuple[OpCheck, ...]:
    """Run one call of every operator of `target` with its kernel and without, on the values that each of the `cases`
    gives it, and compare the two.

    The nodes are run as they are written, and as ONNX Runtime optimizes them where that rounds otherwise (see
    `compare`); with `seconds` the kernel is also timed against the latter, alternating, for about that long in all: in
    the first case, or the first in which its guard lets it run. Operators that are called in the bodies of control flow
    only are tried on made up values; those whose nodes do not run with these are left out. Raises CannotRun if ONNX
    Runtime does not run the fused model without the library.
    """
    calls = _locate(fused, [op for op in ops if target in op.targets])
    share = min(1.0, seconds / len(calls)) if calls else 0.0
    checks: list[OpCheck] = []
    for batch in _batches(call for call in calls if not call.is_in_body):
        values = _capture(batch, cases, fused.parent, opener)
        for call in batch:
            listener.step(len(checks), len(calls), f"{call.op.name} on {target}")
            runs = [runs_with(call.op, feeds) for feeds in cases]
            own = sorted(zip(runs, values, strict=True), key=lambda each: not each[0])
            timed = share if any(runs) else 0.0
            checks.append(_check(call.op, target, _nodes(call, fused, opener), library, [v for _, v in own], timed))
    for call in (call for call in calls if call.is_in_body):
        listener.step(len(checks), len(calls), f"{call.op.name} on {target}")
        nodes, values = _nodes(call, fused, opener), _made_up(call)
        with suppress(CannotRun):
            for feeds in values:
                nodes(use="reference").run(feeds)
            checks.append(_check(call.op, target, nodes, library, values, share))
    return tuple(checks)


def single_op_model(call: Call) -> onnx.ModelProto:
    """A model of one call: the functions it needs, the constants it is given, and its other inputs as graph inputs.

    Constants kept outside the model file stay outside: the result must be opened with the model's folder. Those that
    lie in the model file come along.
    """
    clones: dict[ir.Value, ir.Value] = {}
    for value, spec in zip(call.node.inputs, call.op.inputs, strict=True):
        if value is not None:
            clones[value] = _value(value.name or spec.name, spec)
            clones[value].const_value = _portable(value.const_value)
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
        opset_imports=dict(call.model.graph.opset_imports),
        name=call.op.name,
    )
    return ir.to_proto(ir.Model(graph, ir_version=call.model.ir_version, functions=_needed_functions(call)))


def _nodes(call: Call, fused: Path, opener: Opener) -> Callable[..., Runner]:
    """Opens the operator as a model of its own."""
    return partial(opener, single_op_model(call).SerializeToString(), folder=fused.parent)


def _made_up(call: Call) -> list[Feeds]:
    """Inputs of two sizes."""
    specs = {v.name or "": s for v, s in zip(call.node.inputs, call.op.inputs, strict=True) if v in call.captured}
    names = sorted({name for s in specs.values() for dim in s.shape if dim for name in names_in(parse(dim))})
    return [_random(specs, {name: least + 2 * i for i, name in enumerate(names)}) for least in (3, 8)]


def _random(specs: Mapping[str, TensorSpec], sizes: Mapping[str, int]) -> Feeds:
    """Floats normal, integers and truth values zero or one."""
    rng = np.random.default_rng(0)
    feeds: Feeds = {}
    for name, spec in specs.items():
        shape = [_UNNAMED if dim is None else number(dim, sizes) or 0 for dim in spec.shape]
        dtype = DTYPES[spec.dtype].onnx.numpy()
        is_float = DTYPES[spec.dtype].onnx.is_floating_point()
        feeds[name] = (rng.standard_normal(shape) if is_float else rng.integers(0, 2, shape)).astype(dtype)
    return feeds


def _check(
    op: FusedOp, target: str, nodes: Callable[..., Runner], library: Path, cases: Sequence[Feeds], seconds: float
) -> OpCheck:
    """`nodes` opens the operator as a model of its own."""
    allowed = limit(spec.dtype for spec in (*op.inputs, *op.outputs))
    try:
        reference = nodes(use="reference")
        kernel = nodes(libraries=[library], use="timing")
        worst = OutputCheck("", 0.0, allowed.relative)
        for values in cases:
            outputs = compare(reference.run(values), [kernel.run(values)], allowed, nodes, values)
            worst = max(worst, *outputs, key=lambda o: o.share)
        if seconds <= 0 or not worst.ok:
            return OpCheck(op.name, target, worst.error, worst.tolerance)
        timing = nodes(use="timing").time_against([kernel], cases[0], seconds=seconds, most=_ROUNDS)
    except CannotRun as error:
        return OpCheck(op.name, target, float("inf"), allowed.relative, note=str(error))
    before, after, speed = timing.us(0), timing.us(1), timing.speed(1)
    is_slower = speed.is_slower and speed.ratio < 1 / _SLOWER
    return OpCheck(op.name, target, worst.error, worst.tolerance, before, after, is_slower)


def _locate(fused: Path, ops: Sequence[FusedOp]) -> list[Call]:
    """A call of every operator, without its guard; those that are called inside others only come up as the others are
    inlined."""
    calls: dict[str, Call] = {}
    inlined: set[str] = set()
    while True:
        model = load_model(fused)
        drop_guards(model, lambda _: True)
        InlinePass(lambda function: function.name in inlined)(model)
        in_bodies = {n.op_type: n for n in model.graph.all_nodes() if n.op_identifier() in model.functions}
        nodes = in_bodies | {n.op_type: n for n in model.graph if n.op_identifier() in model.functions}
        for op in ops:
            if op.name in nodes and op.name not in calls:
                calls[op.name] = Call(op, model, nodes[op.name])
        bodies = {name: model.functions[node.op_identifier()] for name, node in nodes.items()}
        outer = {name for name, body in bodies.items() if any(n.domain == body.domain for n in body)}
        if len(calls) == len(ops) or not outer:
            return list(calls.values())
        inlined.update(outer)


def _needed_functions(call: Call) -> list[ir.Function]:
    """The function called and those it calls."""
    needed: dict[ir.OperatorIdentifier, ir.Function] = {}
    pending = [call.node.op_identifier()]
    while pending:
        name = pending.pop()
        if name in call.model.functions and name not in needed:
            needed[name] = call.model.functions[name]
            pending.extend(n.op_identifier() for n in needed[name].all_nodes())
    return list(needed.values())


def _batches(calls: Iterable[Call]) -> Iterable[list[Call]]:
    """Calls of the same model that together need a bounded number of values."""
    batch: list[Call] = []
    for call in calls:
        wanted = sum(len(c.captured) for c in (*batch, call))
        if batch and (wanted > _VALUES_AT_ONCE or call.model is not batch[0].model):
            yield batch
            batch = []
        batch.append(call)
    if batch:
        yield batch


def _capture(batch: Sequence[Call], cases: Sequence[Feeds], folder: Path, opener: Opener) -> list[dict[str, Array]]:
    """For each case the inputs of the calls in a run of their model without libraries, operator by operator as it is
    written."""
    graph = batch[0].model.graph
    wanted = {v.name or "": v for call in batch for v in call.captured}
    own = list(graph.outputs)
    # The model goes through a file, beside its weights if these are in another: only ONNX Runtime has it in memory.
    with NamedTemporaryFile(dir=folder, suffix=".onnx") as file:
        graph.outputs.extend(v for name, v in wanted.items() if v not in own and name not in cases[0])
        write_model(batch[0].model, Path(file.name))
        del graph.outputs[len(own) :]
        model = opener(Path(file.name), use="reference")
        given = [{**model.run(feeds), **feeds} for feeds in cases]
    return [{name: values[name] for name in wanted} for values in given]


def _portable(tensor: ir.TensorProtocol | None) -> ir.TensorProtocol | None:
    """The tensor in memory, if it is part of a model file: it is about to become part of another."""
    return convert_tensors_from_external([tensor])[0] if isinstance(tensor, InModelFile) else tensor


def _value(name: str, spec: TensorSpec) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(DTYPES[spec.dtype].onnx), shape=ir.Shape(spec.shape))
