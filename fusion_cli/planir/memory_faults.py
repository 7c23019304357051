"""What a plan's stages read and write, in their order: every tensor whole before it is read, nothing written twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from fusion_cli.planir.stages import Plan, Pointwise, Stage


def memory_faults(plan: Plan) -> Iterator[str]:
    """What is wrong with the order of reads and writes."""
    state = _Memory(plan)
    for index, stage in enumerate(plan.stages):
        for fault in state.run(stage):
            yield f"stage {index} ({type(stage).__name__}): {fault}"
    yield from state.end()


def volumes_differ(shape: Sequence[int | str], *parts: Sequence[int | str]) -> bool:
    """Whether the parts certainly have not as many elements, together, as a tensor of this shape."""
    numbers, symbols = _volume(shape)
    found = [_volume(part) for part in parts]
    return all(s == symbols for _, s in found) and sum(n for n, _ in found) != numbers


def _volume(shape: Sequence[int | str]) -> tuple[int, Counter[str]]:
    numbers = 1
    for size in shape:
        numbers *= size if isinstance(size, int) else 1
    return numbers, Counter(size for size in shape if isinstance(size, str))


class _Memory:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.holds: dict[int, int] = {}
        """Workspace buffer -> the temp that lies in it."""
        self.written: dict[int, dict[tuple[int, ...], int]] = {}
        """Tensor with memory of its own -> places in it that were written, and the tensors that they are."""
        self.read: set[int] = set()

    def run(self, stage: Stage) -> Iterator[str]:
        reads = {self.plan.root(o.tensor) for o in stage.operands}
        for root in sorted(reads):
            if self.plan.tensors[root].role != "input" and root not in self.written:
                yield f"reads tensor {root}, which nothing wrote"
            yield from self._in_place(root, "reads")
        self.read |= reads
        for store in stage.stores:
            root = self.plan.root(store.tensor)
            if self.plan.tensors[root].role == "input":
                yield f"writes to input tensor {root}"
            if root in self.read:
                yield f"writes to tensor {root}, which {'it reads' if root in reads else 'was read already'}"
            if root in self.written:
                yield from self._in_place(root, "writes to")
            elif self.plan.tensors[root].role == "temp":
                slot = self.plan.tensors[root].slot
                if self.holds.get(slot) in reads:
                    yield f"writes to buffer {slot}, which it reads"
                self.holds[slot] = root
            place, written = self._place(store.tensor), self.written.setdefault(root, {})
            if place and not isinstance(stage, Pointwise):
                yield f"writes to tensor {store.tensor}, a view"
            if place in written or () in written or (written and not place):
                yield f"writes to tensor {store.tensor}, which is written already"
            written[place] = store.tensor

    def _in_place(self, root: int, does: str) -> Iterator[str]:
        tensor = self.plan.tensors[root]
        if tensor.role == "temp" and self.holds.get(tensor.slot) != root:
            yield f"{does} tensor {root}, whose buffer {tensor.slot} holds tensor {self.holds.get(tensor.slot)} by now"

    def _place(self, index: int) -> tuple[int, ...]:
        """Where in its memory a tensor lies: equal for the same view, empty if it is all of it."""
        tensor = self.plan.tensors[index]
        if tensor.role == "view":
            return tensor.slot, tensor.dims, tensor.starts, tensor.steps
        return self._place(tensor.slot) if tensor.role == "alias" else ()

    def end(self) -> Iterator[str]:
        for index, tensor in enumerate(self.plan.tensors):
            if tensor.role not in ("output", "temp"):
                continue
            at = f"tensor {index} ({tensor.role})"
            if index not in self.written:
                yield f"{at}: nothing writes it"
            if tensor.role == "temp" and index not in self.read:
                yield f"{at}: nothing reads it"
            if volumes_differ(tensor.shape, *(self.plan.tensors[i].shape for i in self.written[index].values())):
                yield f"{at}: not written as a whole"
