"""What holds of every plan, in time that grows with the plan's length: checked wherever one is made."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence

from fusion_cli.operators.dtypes import DTYPES
from fusion_cli.planir.faults import BrokenPlan, Shape, require, within
from fusion_cli.planir.host_op import ShapeOp, read_inputs
from fusion_cli.planir.printer import show
from fusion_cli.planir.stage_invariants import check_stage
from fusion_cli.planir.stages import Attention, Conv, Linear, Plan, Pointwise, Rowwise, Stage, Tensor

__all__ = ["BrokenPlan", "check"]

_GROUPED: dict[str, tuple[type[Stage], type[Stage]]] = {
    "products": (Linear, Linear),
    "rows": (Linear, Rowwise),
    "prologue": (Pointwise, Attention),
    "convolutions": (Conv, Conv),
    "elements": (Pointwise, Pointwise),
}
"""Per kind of group: what all its stages but the last are, and what that is."""
_LENGTHS: dict[str, tuple[int, Callable[..., int | None]]] = {
    "const": (0, lambda ints: len(ints)),
    "broadcast": (-1, lambda ints, *lengths: max(lengths)),
    "matmul": (2, lambda ints, a, b: max(a, b)),
    "gemm": (2, lambda ints, a, b: 2),
    "permute": (1, lambda ints, a: a if sorted(ints) == list(range(a)) else -1),
    "reshape": (2, lambda ints, shape, target: target),
    "reduce": (1, lambda ints, a: a if ints[0] else a - len({axis % a for axis in ints[1:]})),
    "concat": (-1, lambda ints, *lengths: sum(lengths)),
    "slice": (1, lambda ints, a: len(range(a)[slice(*ints)])),
    "take": (1, lambda ints, a: len(ints) if all(-a <= i < a for i in ints) else -1),
    "put": (2, lambda ints, a, values: a if len(ints) == values and all(-a <= i < a for i in ints) else -1),
    "slice_start": (3, lambda ints, sizes, starts, steps: sizes),
    "slice_count": (4, lambda ints, sizes, starts, ends, steps: sizes),
    "unsqueeze": (1, lambda ints, a: a + len(ints)),
    "squeeze": (1, lambda ints, a: a - len(ints) if ints else None),
    "flatten": (1, lambda ints, a: 2),
    "conv": (2, lambda ints, x, w: x),
    **dict.fromkeys(("add", "sub", "mul", "div", "mod", "min", "max", "equal"), (2, lambda ints, a, b: max(a, b))),
    "where": (3, lambda ints, *lengths: max(lengths)),
    "prod": (1, lambda ints, a: 1),
    "fill": (1, lambda ints, count: None),
}
"""Per kind of shape operation: the number of arguments (-1: one or more), and the result's length from `ints` and the
lengths of the arguments; None where only a run can tell, -1 where they do not fit together."""


def check(plan: Plan) -> Plan:
    """The plan, if it keeps all invariants. Raises BrokenPlan for the first that it breaks."""
    try:
        _check(plan)
    except BrokenPlan as fault:
        fault.add_note(show(plan))
        raise
    return plan


def _check(plan: Plan) -> None:
    """Everything, in an order in which each check may rely on those before it."""
    _check_interface(plan)
    lengths = _host_lengths(plan)
    shapes: dict[int, Shape] = {}
    for index, tensor in enumerate(plan.tensors):
        with within(f"tensor {index} ({tensor.role})"):
            _check_tensor(plan, index, tensor, lengths)
            known = shapes.setdefault(tensor.dims, tensor.shape)
            require(known == tensor.shape, "shape value {} is {} elsewhere", tensor.dims, known)
    memory = _Memory(plan)
    for index, stage in enumerate(plan.stages):
        with within(f"stage {index} ({type(stage).__name__})"):
            check_stage(plan, stage, lengths, shapes)
            memory.run(stage)
    memory.end()
    for group in plan.groups:
        first, last = _GROUPED[group.kind]
        kinds = [type(plan.stages[i]) for i in range(len(plan.stages)) if i in group.stages]
        fits = len(kinds) == len(group.stages) > 1 and kinds == [*[first] * (len(kinds) - 1), last]
        require(fits, "stages {} cannot run together as {}", group.stages, group.kind)


def _check_interface(plan: Plan) -> None:
    """What the operator takes and gives."""
    for role, listed in (("input", plan.inputs), ("output", plan.outputs)):
        known = {(index, tensor.slot) for index, tensor in enumerate(plan.tensors) if tensor.role == role}
        for slot, index in enumerate(listed):
            on_host = index == -1 and role == "input"
            require(on_host or (index, slot) in known, "{} {}: tensor {} is not it", role, slot, index)
        require(len(known) == sum(i >= 0 for i in listed), "tensors that are no {0} of the plan by role {0}", role)
    read = read_inputs(plan.shape_program)
    unread = {slot for slot in plan.host_inputs if plan.inputs[slot] < 0}
    are_theirs = list(plan.host_inputs) == sorted(read | unread)
    require(are_theirs, "host inputs {} are not those that the shape program reads, or nothing does", plan.host_inputs)


def _host_lengths(plan: Plan) -> list[int | None]:
    """How many integers each value of the shape program has, where that is known."""
    ranks = {t.dims: len(t.shape) for t in plan.tensors}
    lengths: list[int | None] = []
    for index, op in enumerate(plan.shape_program):
        with within(f"shape value {index} ({op.kind})"):
            length = _host_length(plan, op, lengths)
        lengths.append(ranks.get(index) if length is None else length)
    return lengths


def _host_length(plan: Plan, op: ShapeOp, lengths: Sequence[int | None]) -> int | None:
    if op.kind in ("dims", "read"):
        require(not op.args and len(op.ints) == 1 and 0 <= op.ints[0] < len(plan.inputs), "of no input")
        tensor = plan.inputs[op.ints[0]]
        return len(plan.tensors[tensor].shape) if op.kind == "dims" and tensor >= 0 else None
    require(all(0 <= a < len(lengths) for a in op.args), "argument that is no earlier value")
    require(op.kind in _LENGTHS, "unknown kind")
    count, length = _LENGTHS[op.kind]
    require(len(op.args) == count if count >= 0 else op.args, "{} arguments", len(op.args))
    args = [lengths[a] for a in op.args]
    result = None if None in args else length(op.ints, *args)
    require(result is None or result >= 0, "literals {} do not fit arguments of lengths {}", op.ints, args)
    return result


def _check_tensor(plan: Plan, index: int, tensor: Tensor, lengths: Sequence[int | None]) -> None:
    rank = len(tensor.shape)
    require(tensor.dtype in DTYPES, "unknown element type {}", tensor.dtype)
    for value in (tensor.dims, tensor.starts, tensor.steps) if tensor.role == "view" else (tensor.dims,):
        require(0 <= value < len(lengths), "{} is no shape value", value)
        length = lengths[value]
        require(length in (None, rank), "shape value {} has {} elements for {} axes", value, length, rank)
    require(tensor.role != "temp" or 0 <= tensor.slot < plan.buffers, "there is no buffer {}", tensor.slot)
    if tensor.is_own:
        return
    require(0 <= tensor.slot < index, "lies in tensor {}, which is no earlier one", tensor.slot)
    home = plan.tensors[tensor.slot]
    require(home.dtype == tensor.dtype, "{} in memory of {}", tensor.dtype, home.dtype)
    if tensor.role == "alias":
        differs = _volumes_differ(home.shape, tensor.shape)
        require(not differs, "{} has not as many elements as {}", tensor.shape, home.shape)
    else:
        is_part = len(tensor.shape) == len(home.shape) and all(
            a <= b for a, b in zip(tensor.shape, home.shape, strict=True) if isinstance(a, int) and isinstance(b, int)
        )
        require(is_part, "{} is no part of {}", tensor.shape, home.shape)


class _Memory:
    """What stages read and write, in their order: every tensor whole before it is read, nothing written twice."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.holds: dict[int, int] = {}
        """Workspace buffer -> the temp that lies in it."""
        self.written: dict[int, dict[tuple[int, ...], int]] = {}
        """Tensor with memory of its own -> places in it that were written, and the tensors that they are."""
        self.read: set[int] = set()

    def run(self, stage: Stage) -> None:
        """Check and note what the next stage does."""
        reads = {self.plan.root(o.tensor) for o in stage.operands}
        for root in sorted(reads):
            exists = self.plan.tensors[root].role == "input" or root in self.written
            require(exists, "reads tensor {}, which nothing wrote", root)
            self._require_place(root, "reads")
        self.read |= reads
        for store in stage.stores:
            root = self.plan.root(store.tensor)
            home = self.plan.tensors[root]
            require(home.role != "input", "writes to input tensor {}", root)
            when = "it reads" if root in reads else "was read already"
            require(root not in self.read, "writes to tensor {}, which {}", root, when)
            if root in self.written:
                self._require_place(root, "writes to")
            elif home.role == "temp":
                require(self.holds.get(home.slot) not in reads, "writes to buffer {}, which it reads", home.slot)
                self.holds[home.slot] = root
            place, written = self._place(store.tensor), self.written.setdefault(root, {})
            require(not place or isinstance(stage, Pointwise), "writes to tensor {}, a view", store.tensor)
            is_free = place not in written and () not in written and (place or not written)
            require(is_free, "writes to tensor {}, which is written already", store.tensor)
            written[place] = store.tensor

    def _require_place(self, root: int, does: str) -> None:
        """Refuse a temp whose buffer was given to another."""
        tensor = self.plan.tensors[root]
        held = self.holds.get(tensor.slot)
        in_place = tensor.role != "temp" or held == root
        require(in_place, "{} tensor {}, whose buffer {} holds tensor {} by now", does, root, tensor.slot, held)

    def _place(self, index: int) -> tuple[int, ...]:
        """Where in its memory a tensor lies: equal for the same view, empty if it is all of it."""
        tensor = self.plan.tensors[index]
        if tensor.role == "view":
            return tensor.slot, tensor.dims, tensor.starts, tensor.steps
        return self._place(tensor.slot) if tensor.role == "alias" else ()

    def end(self) -> None:
        """Check that everything was written as a whole, and every temp read."""
        for index, tensor in enumerate(self.plan.tensors):
            if tensor.role in ("output", "temp"):
                with within(f"tensor {index} ({tensor.role})"):
                    require(index in self.written, "nothing writes it")
                    require(tensor.role != "temp" or index in self.read, "nothing reads it")
                    parts = (self.plan.tensors[i].shape for i in self.written[index].values())
                    require(not _volumes_differ(tensor.shape, *parts), "not written as a whole")


def _volumes_differ(shape: Shape, *parts: Shape) -> bool:
    """Whether the parts certainly have not as many elements, together, as a tensor of this shape."""
    (whole, symbols), *found = map(_volume, (shape, *parts))
    return all(s == symbols for _, s in found) and sum(n for n, _ in found) != whole


def _volume(shape: Shape) -> tuple[int, Counter[str]]:
    return math.prod(d for d in shape if isinstance(d, int)), Counter(d for d in shape if isinstance(d, str))
