"""What holds of every plan, in time that grows with the plan's length: checked wherever one is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusion_cli.planir.host_faults import host_faults
from fusion_cli.planir.memory_faults import memory_faults, volumes_differ
from fusion_cli.planir.printer import show
from fusion_cli.planir.stage_faults import DTYPES, Shape, stage_faults
from fusion_cli.planir.stages import Attention, Conv, Linear, Plan, Pointwise, Rowwise, Stage, Tensor

_GROUPED: dict[str, tuple[type[Stage], type[Stage]]] = {
    "products": (Linear, Linear),
    "rows": (Linear, Rowwise),
    "prologue": (Pointwise, Attention),
    "convolutions": (Conv, Conv),
}
"""Per kind of group: what all its stages but the last are, and what that is."""


class BrokenPlan(Exception):
    """A plan that breaks an invariant: a fault of the compiler, never of a model. The message says where; the plan's
    text is a note of the exception."""


def check(plan: Plan) -> Plan:
    """The plan, if it keeps all invariants. Raises BrokenPlan for the first that it breaks."""
    fault = next(_faults(plan), None)
    if fault is None:
        return plan
    error = BrokenPlan(fault)
    error.add_note(show(plan))
    raise error


def _faults(plan: Plan) -> Iterator[str]:
    """What is wrong, in an order in which each check may rely on those before it."""
    yield from _interface_faults(plan)
    lengths = yield from host_faults(plan)
    shapes: dict[int, Shape] = {}
    for index, tensor in enumerate(plan.tensors):
        for fault in _tensor_faults(plan, index, tensor, lengths):
            yield f"tensor {index} ({tensor.role}): {fault}"
        if shapes.setdefault(tensor.dims, tensor.shape) != tensor.shape:
            yield f"tensor {index} ({tensor.role}): host value {tensor.dims} is {shapes[tensor.dims]} elsewhere"
    yield from stage_faults(plan, lengths, shapes)
    yield from memory_faults(plan)
    for group in plan.groups:
        first, last = _GROUPED[group.kind]
        kinds = [type(plan.stages[i]) for i in range(len(plan.stages)) if i in group.stages]
        if len(kinds) != len(group.stages) or kinds != [*[first] * (len(kinds) - 1), last] or len(kinds) < 2:
            yield f"stages {group.stages} cannot run together as {group.kind}"


def _interface_faults(plan: Plan) -> Iterator[str]:
    for role, listed in (("input", plan.inputs), ("output", plan.outputs)):
        for slot, index in enumerate(listed):
            if index == -1 and role == "input":
                continue
            tensor = plan.tensors[index] if 0 <= index < len(plan.tensors) else None
            if tensor is None or (tensor.role, tensor.slot) != (role, slot):
                yield f"{role} {slot}: tensor {index} is not it"
        if sum(t.role == role for t in plan.tensors) != sum(i >= 0 for i in listed):
            yield f"tensors that are no {role} of the plan by role {role}"
    if list(plan.host_inputs) != sorted({op.ints[0] for op in plan.host if op.kind == "read"}):
        yield f"host inputs {plan.host_inputs} are not those that the shape program reads"


def _tensor_faults(plan: Plan, index: int, tensor: Tensor, lengths: Sequence[int | None]) -> Iterator[str]:
    rank = len(tensor.shape)
    if tensor.dtype not in DTYPES:
        yield f"unknown element type {tensor.dtype}"
    for value in (tensor.dims, tensor.starts, tensor.steps) if tensor.role == "view" else (tensor.dims,):
        if not 0 <= value < len(lengths):
            yield f"{value} is no host value"
        if lengths[value] not in (None, rank):
            yield f"host value {value} has {lengths[value]} elements for {rank} axes"
    if tensor.role == "temp" and not 0 <= tensor.slot < plan.buffers:
        yield f"there is no buffer {tensor.slot}"
    if tensor.is_own:
        return
    if not 0 <= tensor.slot < index:
        yield f"lies in tensor {tensor.slot}, which is no earlier one"
    home = plan.tensors[tensor.slot]
    if home.dtype != tensor.dtype:
        yield f"{tensor.dtype} in memory of {home.dtype}"
    if tensor.role == "alias" and volumes_differ(home.shape, tensor.shape):
        yield f"{tensor.shape} has not as many elements as {home.shape}"
    if tensor.role == "view" and not _is_within(tensor.shape, home.shape):
        yield f"{tensor.shape} is no part of {home.shape}"


def _is_within(part: Sequence[int | str], whole: Sequence[int | str]) -> bool:
    return len(part) == len(whole) and all(
        a <= b for a, b in zip(part, whole, strict=True) if isinstance(a, int) and isinstance(b, int)
    )
