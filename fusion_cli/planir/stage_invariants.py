"""What holds of each stage on its own: operands, scalar programs, products, stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fusion_cli.operators.dtypes import DTYPES, FLOATS
from fusion_cli.planir.faults import Shape, are_equal, differ, require, within
from fusion_cli.planir.stages import (
    Attention,
    Conv,
    Instr,
    Linear,
    Moments,
    Operand,
    Plan,
    Pool,
    Rowwise,
    Stage,
    Store,
    own_operands,
)

_AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def check_stage(plan: Plan, stage: Stage, lengths: Sequence[int | None], shapes: Mapping[int, Shape]) -> None:
    """A stage, given how many elements each shape value has, and what is known of some."""
    require(0 <= stage.dims < len(lengths), "its space {} is no shape value", stage.dims)
    own = own_operands(stage)
    _check_operands(plan, stage, own)
    rank = lengths[stage.dims]
    space = shapes.get(stage.dims, (None,) * (_widest(plan, stage) if rank is None else rank))
    _check_result(plan, stage, space)
    points = space
    prob: tuple[Instr, ...] = ()
    if isinstance(stage, Attention):
        points = (*space[:-1], plan.viewed(stage.operands[stage.k])[-2])
        prob = stage.prob_program
    for name, program in (("", stage.program), ("probability ", prob)):
        for index, instr in enumerate(program):
            with within(f"{name}instruction {index} ({instr.op})"):
                _check_instr(plan, stage, index, instr, points)
    loaded = {i.value for i in (*stage.program, *prob) if i.op == "load"}
    numbers = {o.rows for o in stage.operands}
    unread = set(range(len(stage.operands))) - loaded - set(own) - numbers
    require(not unread, "operands {} are not read", sorted(unread))
    for store in stage.stores:
        with within(f"store to tensor {store.tensor}"):
            _check_store(plan, stage, store, space)


def _check_operands(plan: Plan, stage: Stage, own: Sequence[int]) -> None:
    for index, operand in enumerate(stage.operands):
        with within(f"operand {index}"):
            require(0 <= operand.tensor < len(plan.tensors), "there is no tensor {}", operand.tensor)
            _check_permutation(operand.perm, len(plan.tensors[operand.tensor].shape))
            if operand.rows is not None:
                _check_table(plan, stage, operand)
    number = len(stage.operands)
    require(all(0 <= i < number for i in own), "its operands {} are not all among {}", own, number)
    for store in stage.stores:
        require(0 <= store.tensor < len(plan.tensors), "store to tensor {}: there is no such tensor", store.tensor)


def _check_table(plan: Plan, stage: Stage, operand: Operand) -> None:
    table = plan.tensors[operand.tensor]
    require(isinstance(stage, Rowwise), "rows of a table")
    is_table = table.is_own and operand.perm is None and len(table.shape) == 2 and isinstance(table.shape[0], int)
    require(is_table, "{} is no table of a number of rows that is known", table.shape)
    require(0 <= (operand.rows or 0) < len(stage.operands), "there is no operand {}", operand.rows)
    numbers = stage.operands[operand.rows or 0]
    is_integer = plan.tensors[numbers.tensor].dtype in ("int32", "int64") and numbers.rows is None
    require(is_integer and plan.viewed(numbers)[-1:] == (1,), "its rows are not told by one integer each")


def _check_permutation(perm: Sequence[int] | None, rank: int) -> None:
    is_one = perm is None or sorted(perm) == list(range(rank))
    require(is_one, "{} is no permutation of {} axes", perm, rank)


def _widest(plan: Plan, stage: Stage) -> int:
    """The least rank that a stage's space can have, where its shape is decided as the operator runs."""
    axes = (-i.value for i in stage.program if i.op == "index" and isinstance(i.value, int))
    return max((*(len(plan.tensors[t].shape) for t in stage.tensors), *axes), default=0)


def _check_instr(plan: Plan, stage: Stage, index: int, instr: Instr, space: Shape) -> None:
    value = instr.value
    require(all(0 <= a < index for a in instr.args), "arguments {} are not all earlier instructions", instr.args)
    require(instr.dtype in DTYPES, "unknown element type {}", instr.dtype)
    match instr.op:
        case "load":
            is_operand = isinstance(value, int) and 0 <= value < len(stage.operands)
            require(is_operand, "there is no operand {}", value)
            operand = stage.operands[int(value or 0)]
            dtype, shape = plan.tensors[operand.tensor].dtype, plan.viewed(operand)
            require(dtype == instr.dtype, "{} of a tensor of {}", instr.dtype, dtype)
            # Sizes of different names may be equal all the same.
            sides = zip(reversed(shape), reversed(space), strict=False)
            fits = len(shape) <= len(space) and not any(a != 1 and differ(a, b) for a, b in sides)
            require(fits, "{} does not broadcast to {}", shape, space)
        case "acc":
            require(own_operands(stage), "the stage has no result of its own")
        case "const":
            require(value is not None, "no value")
        case "index":
            is_axis = isinstance(value, int) and -len(space) <= value < 0
            require(is_axis, "{} is no axis, from the end, of {}", value, space)
        case op:
            require(isinstance(stage, Rowwise) or not op.startswith("reduce_"), "a reduction")


def _check_store(plan: Plan, stage: Stage, store: Store, space: Shape) -> None:
    tensor = plan.tensors[store.tensor]
    if isinstance(stage, Attention):
        turned = [space[p] for p in stage.out_perm or range(len(space))]
        fits = are_equal(tensor.shape, turned)
        require(fits, "the output over {}, transposed by {}, in {}", space, stage.out_perm, tensor.shape)
        return
    require(0 <= store.instr < len(stage.program), "there is no instruction {}", store.instr)
    dtype = stage.program[store.instr].dtype
    fits = tensor.dtype == dtype or {tensor.dtype, dtype} <= FLOATS
    require(fits, "{} in memory of {}", dtype, tensor.dtype)
    per_row = ((*space[:-1], 1), space[:-1]) if isinstance(stage, Rowwise) else ()
    fits = any(are_equal(tensor.shape, shape) for shape in (space, *per_row))
    require(fits, "values over {} in {}", space, tensor.shape)


def _check_result(plan: Plan, stage: Stage, space: Shape) -> None:
    """The product, attention or convolution that a stage is about."""
    factors = [plan.viewed(stage.operands[i]) for i in own_operands(stage)]
    match stage:
        case Linear():
            a, b = factors
            _check_product(_swapped(a, stage.trans_a), _swapped(b, stage.trans_b), space)
        case Attention():
            q, k, v = factors
            columns = _swapped(k, True)
            scores = (*space[:-1], columns[-1]) if columns else ()
            _check_product(q, columns, scores)
            _check_product(scores, v, space)
            require(len(stage.stores) == 1, "{} stores", len(stage.stores))
            is_instr = 0 <= stage.score < len(stage.program)
            require(is_instr, "its score is no instruction: {}", stage.score)
            is_instr = not stage.prob_program or 0 <= stage.prob < len(stage.prob_program)
            require(is_instr, "its probability is no instruction: {}", stage.prob)
            is_twice = stage.prob_program and stage.kind.probabilities == "zero_empty"
            require(not is_twice, "a probability program, and zeros for empty rows")
            require(-1 <= stage.sink < len(stage.program), "its sink is no instruction: {}", stage.sink)
            _check_permutation(stage.out_perm, len(space))
        case Conv():
            x, w = factors[:2]
            n = len(x) - 2
            literals = ((stage.strides, n), (stage.pads, 2 * n), (stage.dilations, n))
            fits = n >= 1 and len(w) == n + 2 and all(len(ints) in (0, count) for ints, count in literals)
            require(fits, "a convolution of {} with {}, {}", x, w, literals)
            fits = stage.group >= 1 and not differ(stage.image(space)[1], w[0])
            require(fits, "{} groups of {} over {}", stage.group, w, space)
            require(stage.auto_pad in _AUTO_PADS, "unknown padding {}", stage.auto_pad)
            require(not stage.channels_last or stage.bias == -1, "a bias, channels last")
        case Pool():
            (x,) = factors
            n = len(x) - 2
            lengths = tuple(map(len, (stage.kernel, stage.strides, stage.pads, stage.dilations)))
            require(n >= 1 and lengths == (n, n, 2 * n, n), "windows of {} over {}", lengths, x)
            is_one = len(space) == len(x) and not differ(x[-1], space[-1])
            require(is_one, "{} of channels of {}", space, x)
            require(stage.mean or not stage.counts_pads, "pads that count for the largest")
        case Moments():
            (x,) = factors
            is_whole = stage.groups >= 1 and isinstance(x[-1], int) and x[-1] % stage.groups == 0
            require(is_whole and len(x) >= 3, "{} groups of {}", stage.groups, x)
            require(are_equal(space, (2, x[0], x[-1])), "moments of {} over {}", x, space)


def _check_product(a: Shape, b: Shape, result: Shape) -> None:
    require(min(map(len, (a, b, result))) >= 2, "a product of vectors: {}, {}", a, b)
    pairs = ((a[-1], b[-2]), (a[-2], result[-2]), (b[-1], result[-1]))
    require(not any(differ(x, y) for x, y in pairs), "a product of {} and {} over {}", a, b, result)


def _swapped(shape: Shape, swapped: bool) -> Shape:
    return (*shape[:-2], *shape[-2:][::-1]) if swapped else shape
