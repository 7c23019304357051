"""C++ for the CPU provider: each stage of a plan as a loop that GCC vectorises, run on ONNX Runtime's threads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fusion_cli.emit.common import comment, ints, resolve, space_shape, viewed_shape
from fusion_cli.emit.expr import compute, literal, needed, onnx_type, render_program, storage
from fusion_cli.emit.rows import Pass, schedule
from fusion_cli.errors import Unsupported
from fusion_cli.plan.ir import Attention, Conv, Instr, Linear, Operand, Plan, Rowwise, Stage, Store
from fusion_cli.types import FusedOp, Target

_NARROW = ("float16", "bfloat16")
_WORK = 1 << 15  # scalar operations worth handing to another thread
_COST = {"Exp": 10, "Erf": 20, "Tanh": 20, "Sigmoid": 12, "Log": 15, "Pow": 40, "Softplus": 30, "Mish": 50, "Div": 4}
_ROWS_KEPT = 64  # thread_row's capacity in templates/cpu/loop.h


@dataclass(frozen=True)
class Access:
    """One array that a stage's loop walks.

    `strides` is the C++ expression of its strides over `space`; `inner` the innermost one it is specialised for (0, 1,
    or -1 for any).
    """

    name: str
    dtype: str
    type: str
    role: str
    tensor: str
    strides: str
    inner: int
    factor: float = 1.0
    """What an element is multiplied by when read (a product's alpha, attention's scale)."""

    @property
    def narrow(self) -> bool:
        return self.dtype in _NARROW


@dataclass(frozen=True)
class Reduction:
    """A reduction of a row: its accumulator, the OpenMP clause, the step, and the finished value."""

    name: str
    type: str
    initial: str
    clause: str
    step: str
    result: str


@dataclass(frozen=True)
class Walk:
    """One pass over a row, as C++ lines."""

    before: list[str]
    body: list[str]
    reductions: list[Reduction]


@dataclass(frozen=True)
class Body:
    """The generated loop of a stage: what it reads and writes, and its passes (one, without reductions, if pointwise)."""

    accesses: list[Access]
    head: list[str]
    walks: list[Walk]
    tail: list[str]
    grain: int


@dataclass(frozen=True)
class StageCode:
    """A stage as the template prints it."""

    index: int
    kind: str
    nodes: list[str]
    space: str
    body: Body | None
    detail: dict[str, Any]


def context(op: FusedOp, target: Target, *, debug: bool) -> dict[str, Any]:
    """The variables of `templates/cpu/region.cc.jinja` for an operator with a plan."""
    assert op.plan is not None
    plan = op.plan
    return {
        "stages": [_stage(plan, i, s) for i, s in enumerate(plan.stages)],
        "tensors": _tensors(plan),
        "workspace": _workspace(plan),
    }


def _stage(plan: Plan, index: int, stage: Stage) -> StageCode:
    nodes = [comment(n) for n in stage.nodes]
    kind = type(stage).__name__.lower()
    if isinstance(stage, Attention):
        body, detail = _attention(plan, stage)
    elif isinstance(stage, Linear):
        body, detail = _product(plan, stage, _linear(plan, stage))
    elif isinstance(stage, Conv):
        body, detail = _product(plan, stage, _conv(plan, stage))
    else:
        body, detail = _loop(plan, stage, isinstance(stage, Rowwise)), {}
    return StageCode(index, kind, nodes, f"h{stage.dims}", body, detail)


# Loops


def _loop(plan: Plan, stage: Stage, rowwise: bool, acc_dtype: str = "float32", factor: float = 1.0) -> Body:
    """The loop over a stage's program; the stage's own result (if it has one), times `factor`, is array `acc`."""
    row_stores = _row_stores(plan, stage) if rowwise else frozenset()
    live = needed(stage.program, [s.instr for s in stage.stores])
    accesses = _accesses(plan, stage, live, row_stores, _acc(acc_dtype, factor))
    grain = _WORK // max(1, sum(_COST.get(stage.program[i].op, 1) for i in live))
    if rowwise:
        return _row_body(stage.program, stage.stores, accesses, row_stores, grain)
    return _span_body(stage.program, stage.stores, accesses, grain)


def _row_stores(plan: Plan, stage: Stage) -> frozenset[int]:
    space = space_shape(plan, stage)
    shapes = {s.tensor: plan.tensors[s.tensor].shape for s in stage.stores}
    return frozenset(t for t, s in shapes.items() if space[-1] != 1 and (len(s) < len(space) or s[-1] == 1))


def _accesses(
    plan: Plan, stage: Stage, live: frozenset[int], row_stores: frozenset[int], acc: Access
) -> dict[str, Access]:
    """The arrays by role: load k is "x<k>", a position is "p<-axis>", the store to tensor t "y<t>"."""
    space = space_shape(plan, stage)
    found: dict[str, Access] = {}
    for i in sorted(live):
        instr = stage.program[i]
        if instr.op == "load":
            k = int(instr.value or 0)
            found[f"x{k}"] = _load(plan, f"x{k}", stage.operands[k], space)
        elif instr.op == "index":
            axis = int(instr.value or 0)
            name = f"p{-axis}"
            found[name] = Access(name, "int64", "", "index", "", f"strides_of_index(space, {axis})", -1)
        elif instr.op == "acc":
            found["acc"] = acc
    for store in stage.stores:
        dtype = plan.tensors[store.tensor].dtype
        name = f"y{store.tensor}"
        row = store.tensor in row_stores
        strides = "strides_of_rows(space)" if row else "contiguous(space)"
        role = "row_store" if row else "store"
        found[name] = Access(name, dtype, storage(dtype), role, f"t{store.tensor}", strides, 0 if row else 1)
    return found


def _acc(dtype: str, factor: float) -> Access:
    return Access("acc", dtype, compute(dtype), "acc", "acc", "contiguous(space)", 1, factor)


def _load(plan: Plan, name: str, operand: Operand, space: Sequence[int | str]) -> Access:
    dtype = plan.tensors[operand.tensor].dtype
    perm = f", {ints(operand.perm)}" if operand.perm is not None else ""
    strides = f"strides_over(space, {name}.dims{perm})"
    return Access(name, dtype, storage(dtype), "load", f"t{operand.tensor}", strides, _inner(plan, operand, space))


def _inner(plan: Plan, operand: Operand, space: Sequence[int | str]) -> int:
    """The stride of an operand along the innermost axis that is not always 1, where that is known."""
    shape = viewed_shape(plan, operand)
    axis = next((a for a in range(-1, -len(space) - 1, -1) if space[a] != 1), -1)
    if len(shape) < -axis or shape[axis] == 1:
        return 0
    source = (operand.perm or tuple(range(len(shape))))[axis]
    own = plan.tensors[operand.tensor].shape
    return 1 if all(d == 1 for d in own[source + 1 :]) else -1


def _element(accesses: dict[str, Access], name: str) -> str:
    """The element of an array at column i, in its compute type."""
    access = accesses[name]
    if access.role == "index":
        return f"at_{name} + i * step_{name}"
    if access.role == "acc":
        return "acc[i]" if access.factor == 1.0 else f"acc[i] * {literal(access.factor, access.dtype)}"
    if access.narrow:
        return f"{name}_wide[i]"
    if access.inner == 0:
        return f"kUnit ? {name}_first : {name}[i * step_{name}]"
    return f"{name}[i * step_{name}]"


def _steps(accesses: dict[str, Access]) -> list[str]:
    """Local constants of the loads: strides, and the one element of those that do not move along the row."""
    lines = []
    for position, access in enumerate(accesses.values()):
        if access.role == "index":
            lines.append(f"const int64_t at_{access.name} = at[{position}], step_{access.name} = step[{position}];")
        elif access.role == "load" and not access.narrow:
            stride = f"kUnit ? {access.inner} : step[{position}]" if access.inner >= 0 else f"step[{position}]"
            lines.append(f"const int64_t step_{access.name} = {stride};")
            if access.inner == 0:
                lines.append(f"const {access.type} {access.name}_first = *{access.name};")
    return lines


def _span_body(program: Sequence[Instr], stores: Sequence[Store], accesses: dict[str, Access], grain: int) -> Body:
    head, tail = _steps(accesses), []
    for position, access in enumerate(accesses.values()):
        if not access.narrow:
            continue
        buffer = f"{access.name}_wide"
        head.append(f"float {buffer}[kBlock];")
        if access.role == "load":
            head.append(f"widen({access.name}, step[{position}], n, {buffer});")
        else:
            tail.append(f"narrow({buffer}, n, {access.name});")
    live = needed(program, [s.instr for s in stores])
    lines, names = _render(program, accesses, live, {})
    for store in stores:
        lines.append(_store(program, store, accesses, names))
    return Body(list(accesses.values()), head, [Walk([], lines, [])], tail, max(1, grain))


def _render(
    program: Sequence[Instr], accesses: dict[str, Access], only: Sequence[int] | frozenset[int], names: dict[int, str]
) -> tuple[list[str], dict[int, str]]:
    lines = render_program(
        program,
        load=lambda k: _element(accesses, f"x{k}"),
        acc=_element(accesses, "acc") if "acc" in accesses else "acc",
        index=lambda axis: _element(accesses, f"p{-axis}"),
        only=frozenset(only),
        names=names,
    )
    values = {i: literal(p.value, p.dtype) for i, p in enumerate(program) if p.op == "const" and p.value is not None}
    return lines, {**values, **names}


def _store(program: Sequence[Instr], store: Store, accesses: dict[str, Access], names: dict[int, str]) -> str:
    access = accesses[f"y{store.tensor}"]
    value = names.get(store.instr, f"v{store.instr}")
    if access.role == "row_store":
        return f"store({access.name}, {value});"
    array = f"{access.name}_wide" if access.narrow else access.name
    return f"store({array} + i, {value});"


# Rows


def _row_body(
    program: Sequence[Instr],
    stores: Sequence[Store],
    accesses: dict[str, Access],
    row_stores: frozenset[int],
    grain: int,
) -> Body:
    uniform = {int(a.name[1:]) for a in accesses.values() if a.role == "load" and a.inner == 0}
    passes = schedule(program, stores, uniform, row_stores)
    rows = _RowBuffers()
    head, tail = _steps(accesses), []
    for position, access in enumerate(accesses.values()):
        if not access.narrow or access.role not in ("load", "store"):
            continue
        if access.role == "load" and access.inner == 0:
            continue
        buffer = f"{access.name}_wide"
        head.append(rows.declare("float", buffer))
        if access.role == "load":
            head.append(f"widen({access.name}, step[{position}], n, {buffer});")
        else:
            tail.append(f"narrow({buffer}, n, {access.name});")
    for p in passes:
        head += [rows.declare(compute(program[i].dtype), f"k{i}") for i in p.keep]
    walks = [_walk(program, p, accesses) for p in passes]
    return Body(list(accesses.values()), head, walks, tail, max(1, grain))


class _RowBuffers:
    """Numbers the working rows of a kernel."""

    def __init__(self) -> None:
        self.count = 0

    def declare(self, ctype: str, name: str) -> str:
        if self.count == _ROWS_KEPT:
            raise Unsupported("too_large", f"at most {_ROWS_KEPT} values kept per row", "more")
        self.count += 1
        return f"{ctype}* {name} = thread_row<{ctype}>({self.count - 1}, n);"


def _walk(program: Sequence[Instr], p: Pass, accesses: dict[str, Access]) -> Walk:
    uniform = render_program(
        program,
        load=lambda k: f"load(x{k})",
        index=lambda axis: f"at_p{-axis}",
        only=frozenset(p.row),
        names={i: f"v{i}" for i, instr in enumerate(program) if instr.op.startswith("reduce_")},
    )
    before = uniform + [_store(program, s, accesses, _constants(program)) for s in p.row_stores]
    body, names = _render(program, accesses, p.each, {i: f"k{i}[i]" for i in p.kept})
    body += [f"k{i}[i] = v{i};" for i in p.keep]
    body += [_store(program, s, accesses, names) for s in p.stores]
    return Walk(before, body, [_reduction(program, i, names) for i in p.reduce])


def _constants(program: Sequence[Instr]) -> dict[int, str]:
    return {i: literal(p.value, p.dtype) for i, p in enumerate(program) if p.op == "const" and p.value is not None}


def _reduction(program: Sequence[Instr], i: int, names: dict[int, str]) -> Reduction:
    instr = program[i]
    ctype = compute(instr.dtype)
    if ctype == "bool":
        raise Unsupported("dtype", "a numeric reduction", instr.dtype)
    source = instr.args[0]
    value = names.get(source, f"v{source}")
    acc = f"r{i}"
    if instr.op in ("reduce_sum", "reduce_mean"):
        result = f"{acc} / {ctype}(n)" if instr.op == "reduce_mean" else acc
        return Reduction(f"v{i}", ctype, f"{ctype} {acc} = 0", f"+ : {acc}", f"{acc} += {value};", result)
    if instr.op == "reduce_prod":
        return Reduction(f"v{i}", ctype, f"{ctype} {acc} = 1", f"* : {acc}", f"{acc} *= {value};", acc)
    greatest = instr.op == "reduce_max"
    word, sign = ("max", ">") if greatest else ("min", "<")
    limit = f"lowest<{ctype}>()" if greatest else f"highest<{ctype}>()"
    step = f"{acc} = {value} {sign} {acc} ? {value} : {acc};"
    if instr.dtype in ("float32", "float64", *_NARROW):
        # A comparison drops NaN, so it is looked for separately: the result must be NaN if any element is.
        step += f" bad{i} |= is_nan({value});"
        initial = f"int bad{i} = 0; {ctype} {acc} = {limit}"
        return Reduction(
            f"v{i}", ctype, initial, f"{word} : {acc}) reduction(| : bad{i}", step, f"bad{i} ? nan<{ctype}>() : {acc}"
        )
    return Reduction(f"v{i}", ctype, f"{ctype} {acc} = {limit}", f"{word} : {acc}", step, acc)


# Products


def _product(plan: Plan, stage: Linear | Conv, detail: dict[str, Any]) -> tuple[Body | None, dict[str, Any]]:
    """A vendor kernel's result, and the loop of the epilogue over it (None where there is nothing left to do)."""
    dtype = detail["dtype"]
    factor = stage.alpha if isinstance(stage, Linear) else 1.0
    in_place = next((s.tensor for s in stage.stores if plan.tensors[s.tensor].dtype == dtype), None)
    detail["acc"] = f"t{in_place}" if in_place is not None else ""
    copies = [stage.program[s.instr].op == "acc" for s in stage.stores] == [True]
    if copies and in_place is not None and factor == 1.0:
        return None, detail
    return _loop(plan, stage, False, dtype, factor), detail


def _linear(plan: Plan, stage: Linear) -> dict[str, Any]:
    dtype = _product_dtype(plan, stage.operands[stage.a])
    sides = []
    for operand, trans in ((stage.operands[stage.a], stage.trans_a), (stage.operands[stage.b], stage.trans_b)):
        rank = len(plan.tensors[operand.tensor].shape)
        perm = operand.perm or tuple(range(rank))
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        if perm == swapped:
            perm, trans = tuple(range(rank)), not trans
        if trans and dtype != "float32":  # ONNX Runtime's transposing product exists for float only
            perm, trans = (*perm[:-2], perm[-1], perm[-2]), False
        identity = perm == tuple(range(rank))
        sides.append((f"t{operand.tensor}", "" if identity else ints(perm), trans))
    return {"dtype": dtype, "type": compute(dtype), "onnx_type": onnx_type(dtype), "a": sides[0], "b": sides[1]}


def _conv(plan: Plan, stage: Conv) -> dict[str, Any]:
    dtype = _product_dtype(plan, stage.operands[stage.x])
    slots = [stage.x, stage.w] + ([stage.bias] if stage.bias >= 0 else [])
    inputs = []
    for slot in slots:
        operand = stage.operands[slot]
        inputs.append((f"t{operand.tensor}", ints(operand.perm) if operand.perm is not None else ""))
    if stage.auto_pad not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise Unsupported("auto_pad", "one of ONNX's", stage.auto_pad)
    return {
        "dtype": dtype,
        "type": compute(dtype),
        "onnx_type": onnx_type(dtype),
        "inputs": inputs,
        "strides": ints(stage.strides),
        "pads": ints(stage.pads if stage.auto_pad == "NOTSET" else ()),
        "dilations": ints(stage.dilations),
        "group": int(stage.group),
        "auto_pad": stage.auto_pad,
    }


def _product_dtype(plan: Plan, operand: Operand) -> str:
    """The type a product is computed in: 16-bit floats are widened."""
    dtype = plan.tensors[operand.tensor].dtype
    return "float32" if dtype in _NARROW else dtype


# Attention


def _attention(plan: Plan, stage: Attention) -> tuple[Body, dict[str, Any]]:
    """The row loop over a block of scores (score program, softmax, probability program), and the two products."""
    q, k, v = (stage.operands[i] for i in (stage.q, stage.k, stage.v))
    if _product_dtype(plan, q) != "float32":
        raise Unsupported("dtype", "attention in float32, float16 or bfloat16", plan.tensors[q.tensor].dtype)
    program, result = softmax_program(stage)
    rank = len(viewed_shape(plan, q))
    columns = viewed_shape(plan, k)[-1 if stage.k_transposed else -2]
    space = ("?",) * (rank - 1) + (columns,)
    accesses: dict[str, Access] = {}
    live = needed(program, [result])
    for i in sorted(live):
        instr = program[i]
        if instr.op == "load":
            index = int(instr.value or 0)
            accesses[f"x{index}"] = _load(plan, f"x{index}", stage.operands[index], space)
        elif instr.op == "index":
            axis = int(instr.value or 0)
            accesses[f"p{-axis}"] = Access(
                f"p{-axis}", "int64", "", "index", "", f"strides_of_index(space, {axis})", -1
            )
    accesses["acc"] = accesses["y-1"] = _acc("float32", stage.scale)
    body = _row_body(program, (Store(-1, result),), accesses, frozenset(), _WORK // max(1, len(live)))
    body = replace(body, accesses=[a for name, a in accesses.items() if name != "y-1"])
    store = stage.stores[0]
    detail = {
        "q": _view(q),
        "k": _view(k),
        "v": _view(v),
        "k_transposed": stage.k_transposed,
        "out": f"t{store.tensor}",
        "out_type": storage(plan.tensors[store.tensor].dtype),
        "types": [storage(plan.tensors[o.tensor].dtype) for o in (q, k, v)],
        "out_perm": ints(stage.out_perm) if stage.out_perm is not None else "Ints{}",
    }
    return body, detail


def _view(operand: Operand) -> tuple[str, str]:
    return f"t{operand.tensor}", ints(operand.perm) if operand.perm is not None else "Ints{}"


def softmax_program(stage: Attention) -> tuple[tuple[Instr, ...], int]:
    """Attention between its products as one rowwise program on raw scores, and the instruction that is its value."""
    program = list(stage.program)
    score = stage.score
    first = len(program)
    program += [
        Instr("reduce_max", (score,), "float32"),
        Instr("Sub", (score, first), "float32"),
        Instr("Exp", (first + 1,), "float32"),
        Instr("reduce_sum", (first + 2,), "float32"),
        Instr("Div", (first + 2, first + 3), "float32"),
    ]
    probability = len(program) - 1
    if not stage.prob_program:
        return tuple(program), probability
    shift = len(program)
    for instr in stage.prob_program:
        if instr.op == "acc":
            program.append(Instr("Identity", (probability,), instr.dtype))
        else:
            program.append(replace(instr, args=tuple(a + shift for a in instr.args)))
    return tuple(program), shift + stage.prob


# Memory


def _tensors(plan: Plan) -> list[str]:
    """Statements that define the arrays t0, t1, ...; aliases after what they alias."""
    lines, aliases = [], []
    for i, tensor in enumerate(plan.tensors):
        ctype, dims = storage(tensor.dtype), f"h{tensor.dims}"
        if tensor.role == "input":
            lines.append(f"const auto t{i} = array<{ctype}>(run.input({tensor.slot}), {dims});")
        elif tensor.role == "output":
            lines.append(f"const auto t{i} = array<{ctype}>(run.output({tensor.slot}, {dims}), {dims});")
        elif tensor.role == "temp":
            lines.append(f"const auto t{i} = array<{ctype}>(buffer{tensor.slot}, {dims});")
        else:
            source = plan.tensors.index(resolve(plan, i))
            aliases.append(f"const auto t{i} = array<{ctype}>(t{source}.data, {dims});")
    return lines + aliases


def _workspace(plan: Plan) -> list[tuple[int, list[str]]]:
    """Per workspace buffer: its number, and the byte counts of the tensors that live in it."""
    sizes: dict[int, list[str]] = {}
    for tensor in plan.tensors:
        if tensor.role == "temp":
            sizes.setdefault(tensor.slot, []).append(f"bytes<{storage(tensor.dtype)}>(h{tensor.dims})")
    return sorted(sizes.items())
