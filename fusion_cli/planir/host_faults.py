"""How many integers each value of a shape program has, and what is wrong with the program."""

from __future__ import annotations

from collections.abc import Callable, Generator

from fusion_cli.planir.stages import HostOp, Plan

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
"""Per kind: the number of arguments (-1: one or more), and the result's length from `ints` and the lengths of the
arguments; None where only a run can tell, -1 where they do not fit together."""


def host_faults(plan: Plan) -> Generator[str, None, list[int | None]]:
    """What is wrong with the shape program; in the end, the length of each of its values where that is known."""
    ranks = {t.dims: len(t.shape) for t in plan.tensors}
    lengths: list[int | None] = []
    for index, op in enumerate(plan.host):
        at = f"host value {index} ({op.kind})"
        if op.kind in ("dims", "read"):
            if op.args or len(op.ints) != 1 or not 0 <= op.ints[0] < len(plan.inputs):
                yield f"{at}: of no input"
            tensor = plan.inputs[op.ints[0]]
            lengths.append(len(plan.tensors[tensor].shape) if op.kind == "dims" and tensor >= 0 else ranks.get(index))
            continue
        if not all(0 <= a < index for a in op.args):
            yield f"{at}: argument that is no earlier value"
        if op.kind not in _LENGTHS:
            yield f"{at}: unknown kind"
        length = yield from _length(at, op, [lengths[a] for a in op.args])
        lengths.append(ranks.get(index) if length is None else length)
    return lengths


def _length(at: str, op: HostOp, args: list[int | None]) -> Generator[str, None, int | None]:
    count, length = _LENGTHS[op.kind]
    if len(args) != count if count >= 0 else not args:
        yield f"{at}: {len(args)} arguments"
    result = None if None in args else length(op.ints, *args)
    if result is not None and result < 0:
        yield f"{at}: literals {op.ints} do not fit arguments of lengths {args}"
    return result
