"""The region compiler's front door: a region of ONNX nodes to a plan of kernel stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import partial

import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.codes.advice import UNOPTIMISED
from fusion_cli.errors import Unsupported
from fusion_cli.plan import (
    lower_contributed,
    lower_einsum,
    lower_elementwise,
    lower_enlarging,
    lower_linear,
    lower_pool,
    lower_rotary,
    lower_rows,
    lower_slices,
    lower_views,
)
from fusion_cli.plan.assemble import assemble
from fusion_cli.plan.channels_last import put_channels_last
from fusion_cli.plan.concat_sinking import compute_by_parts, join_at_once
from fusion_cli.plan.context import Context
from fusion_cli.plan.fuse_attention import Roles, fuse_attention
from fusion_cli.plan.gated_products import split_gates
from fusion_cli.plan.graph import LEAVES, Val
from fusion_cli.plan.grouping import find_groups
from fusion_cli.plan.lower_shapes import HOST_RULES
from fusion_cli.plan.lowering import Builder
from fusion_cli.plan.partition import Partition
from fusion_cli.plan.row_prologues import sink_into_rows
from fusion_cli.plan.shape_program import ShapeProgram
from fusion_cli.plan.transpose_sinking import copies, sink_transposes
from fusion_cli.plan.workspace import Storage, assign_buffers, rename_symbols
from fusion_cli.planir.host_op import read_inputs
from fusion_cli.planir.invariants import check
from fusion_cli.planir.stages import Plan, Stage, Tensor
from fusion_cli.types import Region

RULES = {
    **lower_elementwise.RULES,
    **lower_rows.RULES,
    **lower_views.RULES,
    **lower_slices.RULES,
    **lower_linear.RULES,
    **lower_pool.RULES,
    **lower_enlarging.RULES,
    **lower_einsum.RULES,
    **lower_rotary.RULES,
}
_RULES_OF_DOMAIN = {"": RULES, "ai.onnx": RULES, "com.microsoft": lower_contributed.RULES}
_HOST_ONLY = frozenset({"Shape", "Size", "Constant"})


def supported_ops() -> frozenset[str]:
    """ONNX operators that regions may hold (in some form at least), shape arithmetic aside."""
    return frozenset(RULES)


def plan_region(region: Region) -> Plan:
    """Compile a region to stages. Raises Unsupported with a code of `plan.codes` where that cannot be done."""
    context = Context(region, HOST_RULES)
    try:
        outputs = _lower(context)
    except (ValueError, IndexError, TypeError) as error:
        # Operands that no valid model has: shapes that do not broadcast, axes out of range, missing inputs.
        raise Unsupported(codes.INVALID, "operands that the operators allow", str(error)) from error
    if region.channels_last:
        outputs = put_channels_last(context.b, outputs)
    outputs = fuse_attention(context.b, outputs, _roles(context))
    outputs = _distinct(_with_fewest_copies(context.b, outputs))
    partition = Partition(context.b, outputs)
    sink_into_rows(partition)
    storage = Storage(partition, _input_values(context), outputs)
    stages = tuple(assemble(partition, storage, group) for group in partition.ordered())
    tensors, buffers = assign_buffers(storage.tensors, stages)
    on_host = {region.inputs.index(v) for v, _, is_there in region.positions if is_there}
    return _finish(context.b.shapes, tensors, stages, storage, buffers, on_host)


def _lower(context: Context) -> list[Val]:
    for node in context.nodes:
        if node.op_type in _HOST_ONLY:
            continue
        rule = _RULES_OF_DOMAIN.get(node.domain, {}).get(node.op_type)
        if rule is None:
            name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            raise Unsupported(
                codes.OPERATOR,
                "an operator with a kernel stage",
                name,
                UNOPTIMISED if node.domain == "com.microsoft" else "",
            )
        context.b.node = node.name or node.op_type
        made = rule(context, node)
        for value, val in zip(node.outputs, (made,) if isinstance(made, Val) else made, strict=False):
            if val is not None:
                context.bind(value, val)
    missing = next((v for v in context.region.outputs if v not in context.tensors), None)
    if missing is not None:
        raise Unsupported(codes.UNUSED_OUTPUT, "outputs that the region computes", f"{missing.name}")
    return [context.tensors[v] for v in context.region.outputs]


def _with_fewest_copies(b: Builder, outputs: Sequence[Val]) -> list[Val]:
    """The program by parts, with transposes behind products where fewer views are copied then."""
    sunk = sink_transposes(b, outputs)
    made = _parted(b, outputs)
    return made if sunk == outputs else min(made, _parted(b, sunk), key=partial(copies, b))


def _parted(b: Builder, outputs: Sequence[Val]) -> list[Val]:
    return join_at_once(b, compute_by_parts(b, split_gates(b, outputs)))


def _roles(context: Context) -> list[Roles]:
    """What the attentions that the matcher saw became."""
    made: dict[ir.Value | None, Val] = dict(context.tensors.items())
    return [
        Roles(made.get(a.scores), made.get(a.weights), made[a.result])
        for a in context.region.attentions
        if a.result in made
    ]


def _distinct(outputs: Sequence[Val]) -> list[Val]:
    """Copies where an output would share memory with an input or with another output."""
    taken: set[Val] = set()
    result = []
    for val in outputs:
        origin = val
        while origin.op == "reshape":
            origin = origin.args[0]
        if origin.op in LEAVES or origin in taken:
            val = replace(val, op="Identity", args=(val,), value=None, attrs=())
            origin = val
        taken.add(origin)
        result.append(val)
    return result


def _input_values(context: Context) -> list[Val | None]:
    """What is read of each input; of positions nothing."""
    counted = {v for v, *_ in context.region.positions}
    return [None if v in counted else context.tensors.get(v) for v in context.region.inputs]


def _finish(
    shapes: ShapeProgram,
    tensors: Sequence[Tensor],
    stages: tuple[Stage, ...],
    storage: Storage,
    buffers: int,
    on_host: Set[int],
) -> Plan:
    """The plan with the shape operations that something uses, in their order; `on_host` are inputs that come there
    though nothing reads them."""
    needed = {t.dims for t in tensors} | {s.dims for s in stages}
    needed |= {host_value for t in tensors if t.role == "view" for host_value in (t.starts, t.steps)}
    for index in range(len(shapes.ops) - 1, -1, -1):
        if index in needed:
            needed.update(shapes.ops[index].args)
    position = {old: new for new, old in enumerate(sorted(needed))}
    kept = [shapes.ops[i] for i in sorted(needed)]
    ops = tuple(replace(op, args=tuple(position[a] for a in op.args)) for op in kept)
    plan = Plan(
        tensors=rename_symbols([_renumbered(t, position) for t in tensors]),
        shape_program=ops,
        stages=tuple(replace(s, dims=position[s.dims]) for s in stages),
        inputs=storage.inputs,
        outputs=storage.outputs,
        buffers=buffers,
        host_inputs=tuple(sorted(read_inputs(ops) | on_host)),
        groups=find_groups(tensors, stages, storage.outputs),
    )
    return check(plan)


def _renumbered(tensor: Tensor, position: Mapping[int, int]) -> Tensor:
    """The tensor with shape values by their new numbers."""
    moved = replace(tensor, dims=position[tensor.dims])
    if tensor.role != "view":
        return moved
    return replace(moved, starts=position[tensor.starts], steps=position[tensor.steps])
