"""What is wrong with a plan's stages, each on its own: operands, scalar programs, products, stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fusion_cli.operators.dtypes import DTYPES, FLOATS
from fusion_cli.planir.stages import Attention, Conv, Instr, Linear, Plan, Rowwise, Stage, Store

_AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")

Shape = Sequence[int | str | None]
"""What is known of dimensions: a number, a symbol, or nothing."""


def stage_faults(plan: Plan, lengths: Sequence[int | None], shapes: Mapping[int, Shape]) -> Iterator[str]:
    """The faults of all stages, given how many elements each host value has, and what is known of some."""
    for index, stage in enumerate(plan.stages):
        at = f"stage {index} ({type(stage).__name__})"
        if not 0 <= stage.dims < len(lengths):
            yield f"{at}: its space {stage.dims} is no host value"
        for fault in _operand_faults(plan, stage):
            yield f"{at}: {fault}"
        rank = lengths[stage.dims]
        space = shapes.get(stage.dims, (None,) * (_widest(plan, stage) if rank is None else rank))
        for fault in _faults(plan, stage, space):
            yield f"{at}: {fault}"


def _operand_faults(plan: Plan, stage: Stage) -> Iterator[str]:
    for index, operand in enumerate(stage.operands):
        if not 0 <= operand.tensor < len(plan.tensors):
            yield f"operand {index}: there is no tensor {operand.tensor}"
        rank = len(plan.tensors[operand.tensor].shape)
        if operand.perm is not None and sorted(operand.perm) != list(range(rank)):
            yield f"operand {index}: {operand.perm} is no permutation of {rank} axes"
    own = _own_operands(stage)
    if not all(0 <= i < len(stage.operands) for i in own):
        yield f"its operands {own} are not all among {len(stage.operands)}"
    for store in stage.stores:
        if not 0 <= store.tensor < len(plan.tensors):
            yield f"store to tensor {store.tensor}: there is no such tensor"


def _widest(plan: Plan, stage: Stage) -> int:
    """The least rank that a stage's space can have, where its shape is decided as the operator runs."""
    tensors = (*(o.tensor for o in stage.operands), *(s.tensor for s in stage.stores))
    axes = (-i.value for i in stage.program if i.op == "index" and isinstance(i.value, int))
    return max((*(len(plan.tensors[t].shape) for t in tensors), *axes), default=0)


def _faults(plan: Plan, stage: Stage, space: Shape) -> Iterator[str]:
    own = _own_operands(stage)
    yield from _anchor_faults(plan, stage, space)
    prob: tuple[Instr, ...] = ()
    points = space
    if isinstance(stage, Attention):
        prob = stage.prob_program
        points = (*space[:-1], plan.viewed(stage.operands[stage.k])[-1 if stage.k_transposed else -2])
    for name, program in (("", stage.program), ("probability ", prob)):
        for index, instr in enumerate(program):
            for fault in _instr_faults(plan, stage, index, instr, points):
                yield f"{name}instruction {index} ({instr.op}): {fault}"
    loaded = {i.value for i in (*stage.program, *prob) if i.op == "load"}
    if unread := set(range(len(stage.operands))) - loaded - set(own):
        yield f"operands {sorted(unread)} are not read"
    for store in stage.stores:
        for fault in _store_faults(plan, stage, store, space):
            yield f"store to tensor {store.tensor}: {fault}"


def _own_operands(stage: Stage) -> tuple[int, ...]:
    """The operands that "acc" is made of."""
    match stage:
        case Linear():
            return stage.a, stage.b
        case Conv():
            return (stage.x, stage.w) if stage.bias == -1 else (stage.x, stage.w, stage.bias)
        case Attention():
            return stage.q, stage.k, stage.v
    return ()


# Programs and stores


def _instr_faults(plan: Plan, stage: Stage, index: int, instr: Instr, space: Shape) -> Iterator[str]:
    value = instr.value
    if not all(0 <= a < index for a in instr.args):
        yield f"arguments {instr.args} are not all earlier instructions"
    if instr.dtype not in DTYPES:
        yield f"unknown element type {instr.dtype}"
    match instr.op:
        case "load":
            if not (isinstance(value, int) and 0 <= value < len(stage.operands)):
                yield f"there is no operand {value}"
                return
            operand = stage.operands[value]
            if plan.tensors[operand.tensor].dtype != instr.dtype:
                yield f"{instr.dtype} of a tensor of {plan.tensors[operand.tensor].dtype}"
            if not _broadcasts(plan.viewed(operand), space):
                yield f"{plan.viewed(operand)} does not broadcast to {space}"
        case "acc":
            if not _own_operands(stage):
                yield "the stage has no result of its own"
        case "const":
            if value is None:
                yield "no value"
        case "index":
            if not (isinstance(value, int) and -len(space) <= value < 0):
                yield f"{value} is no axis, from the end, of {space}"
        case op if op.startswith("reduce_") and not isinstance(stage, Rowwise):
            yield "a reduction"


def _store_faults(plan: Plan, stage: Stage, store: Store, space: Shape) -> Iterator[str]:
    tensor = plan.tensors[store.tensor]
    if isinstance(stage, Attention):
        perm = stage.out_perm or range(len(space))
        if not _equal(tensor.shape, [space[p] for p in perm]):
            yield f"the output over {space}, transposed by {stage.out_perm}, in {tensor.shape}"
        return
    if not 0 <= store.instr < len(stage.program):
        yield f"there is no instruction {store.instr}"
    dtype = stage.program[store.instr].dtype
    if tensor.dtype != dtype and not {tensor.dtype, dtype} <= FLOATS:
        yield f"{dtype} in memory of {tensor.dtype}"
    per_row = ((*space[:-1], 1), space[:-1]) if isinstance(stage, Rowwise) else ()
    if not any(_equal(tensor.shape, shape) for shape in (space, *per_row)):
        yield f"values over {space} in {tensor.shape}"


# Products, attention and convolution


def _anchor_faults(plan: Plan, stage: Stage, space: Shape) -> Iterator[str]:
    match stage:
        case Linear():
            a, b = (plan.viewed(stage.operands[i]) for i in (stage.a, stage.b))
            yield from _product_faults(_swapped(a, stage.trans_a), _swapped(b, stage.trans_b), space)
        case Attention():
            q, k, v = (plan.viewed(stage.operands[i]) for i in (stage.q, stage.k, stage.v))
            columns = _swapped(k, not stage.k_transposed)
            scores = (*space[:-1], columns[-1]) if columns else ()
            yield from _product_faults(q, columns, scores)
            yield from _product_faults(scores, v, space)
            if len(stage.stores) != 1:
                yield f"{len(stage.stores)} stores"
            if not 0 <= stage.score < len(stage.program):
                yield f"its score is no instruction: {stage.score}"
            if stage.prob_program and not 0 <= stage.prob < len(stage.prob_program):
                yield f"its probability is no instruction: {stage.prob}"
            if stage.prob_program and stage.kind.probabilities == "zero_empty":
                yield "a probability program, and zeros for empty rows"
            if not -1 <= stage.sink < len(stage.program):
                yield f"its sink is no instruction: {stage.sink}"
            if stage.out_perm is not None and sorted(stage.out_perm) != list(range(len(space))):
                yield f"{stage.out_perm} is no permutation of {len(space)} axes"
        case Conv():
            x, w = (plan.viewed(stage.operands[i]) for i in (stage.x, stage.w))
            n = len(x) - 2
            literals = ((stage.strides, n), (stage.pads, 2 * n), (stage.dilations, n))
            if n < 1 or len(w) != n + 2 or any(len(ints) not in (0, count) for ints, count in literals):
                yield f"a convolution of {x} with {w}, {literals}"
            if stage.group < 1 or _differ(space[1], w[0]):
                yield f"{stage.group} groups of {w} over {space}"
            if stage.auto_pad not in _AUTO_PADS:
                yield f"unknown padding {stage.auto_pad}"


def _product_faults(a: Shape, b: Shape, result: Shape) -> Iterator[str]:
    if min(len(a), len(b), len(result)) < 2:
        yield f"a product of vectors: {a}, {b}"
    elif _differ(a[-1], b[-2]) or _differ(a[-2], result[-2]) or _differ(b[-1], result[-1]):
        yield f"a product of {a} and {b} over {result}"


def _swapped(shape: Shape, swapped: bool) -> Shape:
    return (*shape[:-2], *shape[-2:][::-1]) if swapped else shape


def _differ(a: int | str | None, b: int | str | None) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b


def _broadcasts(shape: Shape, space: Shape) -> bool:
    """Whether a tensor may be broadcast to a space; sizes of different names may be equal all the same."""
    return len(shape) <= len(space) and not any(
        a != 1 and _differ(a, b) for a, b in zip(reversed(shape), reversed(space), strict=False)
    )


def _equal(shape: Shape, other: Shape) -> bool:
    """Whether shapes are equal as far as they are known, leading ones aside."""
    shared = min(len(shape), len(other))
    leading = {*shape[: len(shape) - shared], *other[: len(other) - shared]}
    return leading <= {1, None} and all(
        a == b or None in (a, b) for a, b in zip(reversed(shape), reversed(other), strict=False)
    )
