"""What the CUDA stage templates print: names, argument fields and program lines of one stage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fusion_cli.emit.common import comment
from fusion_cli.emit.expr import compute, literal, needed, onnx_type, render_program, storage
from fusion_cli.errors import Unsupported
from fusion_cli.plan.ir import Attention, Conv, Instr, Linear, Operand, Plan, Pointwise, Stage, Store, Tensor

HEAD_DIMS = (16, 32, 64, 96, 128, 192, 256)
"""Head dimensions that attention kernels are instantiated for; others are padded with zeros to the next one."""
DYNAMIC_HEAD_DIMS = (64, 128, 256)
"""Those compiled in when the head dimension is known at run time only."""
_MAX_RANK = 8
_MAX_OPERANDS = 24
_MATRIX_TYPES = ("float32", "float16", "bfloat16")
_SIZES = {
    1: ("bool", "int8", "uint8"),
    2: ("float16", "bfloat16", "int16", "uint16"),
    8: ("float64", "int64", "uint64"),
}


@dataclass(frozen=True)
class Field:
    """A member of a kernel's argument struct, and the host expression that fills it."""

    type: str
    name: str
    value: str


@dataclass(frozen=True)
class Load:
    """An operand of a stage: `name` in the kernel, `tensor` on the host (a gpu::Tensor), `view` its strides there."""

    operand: int
    name: str
    dtype: str
    tensor: str
    view: str

    @property
    def type(self) -> str:
        return storage(self.dtype)

    @property
    def compute(self) -> str:
        return compute(self.dtype)

    @property
    def field(self) -> Field:
        return Field(f"const {self.type}*", self.name, f"static_cast<const {self.type}*>({self.tensor}.data)")


@dataclass(frozen=True)
class Out:
    """A tensor that a stage writes: instruction `instr` of its program, or the stage's result."""

    name: str
    dtype: str
    tensor: str
    instr: int
    compute: str
    value: str

    @property
    def type(self) -> str:
        return storage(self.dtype)

    @property
    def field(self) -> Field:
        return Field(f"{self.type}*", self.name, f"static_cast<{self.type}*>({self.tensor}.data)")


@dataclass(frozen=True)
class Body:
    """A scalar program ready to print: the operands it loads, the positions it asks for, and its statements."""

    loads: tuple[Load, ...]
    outs: tuple[Out, ...]
    axes: tuple[int, ...]
    """Axes, counted from the end (1 is the last), whose positions the program uses."""
    lines: tuple[str, ...]

    @property
    def axis_fields(self) -> tuple[Field, ...]:
        return tuple(Field("gpu::Axis", f"axis_{back}", f"gpu::axis(dims, {back})") for back in self.axes)

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*(x.field for x in self.loads), *(y.field for y in self.outs), *self.axis_fields)


@dataclass(frozen=True)
class StageView:
    """One stage as its template sees it. `parameters` are the tensors its host function takes."""

    name: str
    template: str
    nodes: tuple[str, ...]
    dims: str
    parameters: tuple[str, ...]


@dataclass(frozen=True)
class PointwiseView(StageView):
    body: Body
    width: int
    """Elements per thread: 16 bytes of the widest operand."""


@dataclass(frozen=True)
class LinearView(StageView):
    body: Body
    a: Load
    b: Load
    trans_a: bool
    trans_b: bool
    """Whether A is contiguous along M, and B along K."""
    a_view: str
    b_view: str
    alpha: str
    passes: PointwiseView | None
    """The epilogue as a pass of its own after a vendor product; None where there is nothing left to do."""
    accumulator: str
    """Tensor the vendor's product is written to; "" for workspace."""


@dataclass(frozen=True)
class AttentionView(StageView):
    q: Load
    k: Load
    v: Load
    k_view: str
    out: Out
    out_view: str
    scale: str
    score: Body
    score_value: str
    prob: Body
    prob_value: str
    prob_kind: str
    head_dims: tuple[tuple[int, int], ...]

    @property
    def program_loads(self) -> tuple[Load, ...]:
        return tuple({x.operand: x for x in (*self.score.loads, *self.prob.loads)}.values())

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple(sorted({*self.score.axes, *self.prob.axes}))


@dataclass(frozen=True)
class ConvView(StageView):
    type: str
    onnx_type: int
    tensors: tuple[str, ...]
    attributes: str
    passes: PointwiseView | None
    accumulator: str


class Names:
    """Builds the parts that all kinds of stage share."""

    def __init__(self, plan: Plan, stage: Stage, name: str) -> None:
        self.plan = plan
        self.stage = stage
        self.name = name
        if len(stage.operands) > _MAX_OPERANDS:
            raise Unsupported("operands", f"at most {_MAX_OPERANDS} operands of a kernel", str(len(stage.operands)))

    def tensor(self, index: int) -> Tensor:
        tensor = self.plan.tensors[index]
        if len(tensor.shape) > _MAX_RANK:
            raise Unsupported("rank", f"tensors of rank {_MAX_RANK} or less", str(len(tensor.shape)))
        return tensor

    def load(self, k: int) -> Load:
        operand = self.stage.operands[k]
        return Load(k, f"in{k}", self.tensor(operand.tensor).dtype, f"t{operand.tensor}", view(operand))

    def outs(self, stores: Sequence[Store], program: Sequence[Instr]) -> tuple[Out, ...]:
        return tuple(
            Out(
                f"out{n}",
                self.tensor(s.tensor).dtype,
                f"t{s.tensor}",
                s.instr,
                compute(program[s.instr].dtype),
                result(program, s.instr),
            )
            for n, s in enumerate(stores)
        )

    def body(
        self,
        program: Sequence[Instr],
        roots: Sequence[int],
        outs: tuple[Out, ...],
        *,
        load: Callable[[int], str],
        position: str,
        acc: str = "acc",
        loads: dict[int, Load] | None = None,
    ) -> Body:
        """The part of `program` that `roots` need. `position` is the linear index that positions are taken from;
        {0} in it stands for the axis."""
        live = needed(program, roots)
        used = sorted({int(program[i].value or 0) for i in live if program[i].op == "load"})
        axes = sorted({-int(program[i].value or 0) for i in live if program[i].op == "index"})
        lines = render_program(
            program, load=load, acc=acc, index=lambda axis: position.format(-axis), only=live, names=None
        )
        return Body(tuple((loads or {}).get(k) or self.load(k) for k in used), outs, tuple(axes), tuple(lines))

    def common(self, template: str) -> tuple[str, str, tuple[str, ...], str, tuple[str, ...]]:
        tensors = {o.tensor for o in self.stage.operands} | {s.tensor for s in self.stage.stores}
        parameters = tuple(f"t{t}" for t in sorted(tensors))
        nodes = tuple(comment(n) for n in self.stage.nodes)
        return self.name, f"stages/{template}.cu.jinja", nodes, f"h{self.stage.dims}", parameters


def result(program: Sequence[Instr], i: int) -> str:
    """An instruction's value as later statements write it: its name, or the literal of a constant."""
    instr = program[i]
    return f"v{i}" if instr.op != "const" or instr.value is None else literal(instr.value, instr.dtype)


def view(operand: Operand) -> str:
    """The operand's strides, as a host expression."""
    perm = ", {" + ", ".join(map(str, operand.perm)) + "}" if operand.perm else ""
    return f"gpu::view(t{operand.tensor}{perm})"


def pointwise(plan: Plan, stage: Pointwise, name: str) -> PointwiseView:
    names = Names(plan, stage, name)
    return _pointwise(names, stage.program, {})


def _pointwise(names: Names, program: Sequence[Instr], extra: dict[int, Load]) -> PointwiseView:
    outs = names.outs(names.stage.stores, program)
    body = names.body(
        program,
        [o.instr for o in outs],
        outs,
        load=lambda k: f"x{k}[i]",
        position="a.axis_{0}.at(e + i)",
        loads=extra,
    )
    widest = max(_size(dtype) for dtype in [x.dtype for x in body.loads] + [y.dtype for y in outs])
    return PointwiseView(*names.common("pointwise"), body=body, width=min(8, 16 // widest))


def _size(dtype: str) -> int:
    return next((size for size, dtypes in _SIZES.items() if dtype in dtypes), 4)


def _epilogue_pass(plan: Plan, stage: Linear | Conv, name: str, acc_dtype: str) -> tuple[PointwiseView | None, str]:
    """The epilogue as a pass over the product, and the tensor that holds the product ("" if none can)."""
    written = [s for s in stage.stores if plan.tensors[s.tensor].dtype == acc_dtype]
    operands = {_root(plan, o.tensor) for o in stage.operands}
    home = next((s for s in written if _root(plan, s.tensor) not in operands), None)
    if home is not None and len(stage.stores) == 1 and stage.program[home.instr].op == "acc":
        return None, f"t{home.tensor}"
    extra = len(stage.operands)
    program = tuple(Instr("load", (), i.dtype, extra) if i.op == "acc" else i for i in stage.program)
    load = Load(extra, f"in{extra}", acc_dtype, "product", "gpu::view(product)")
    names = Names(plan, stage, f"{name}_pass")
    epilogue = _pointwise(names, program, {extra: load})
    parameters = ("product", *(p for p in epilogue.parameters))
    return replace(epilogue, parameters=parameters), f"t{home.tensor}" if home is not None else ""


def _root(plan: Plan, index: int) -> tuple[str, int]:
    while plan.tensors[index].role == "alias":
        index = plan.tensors[index].slot
    return plan.tensors[index].role, plan.tensors[index].slot


def linear(plan: Plan, stage: Linear, name: str) -> LinearView:
    names = Names(plan, stage, name)
    a, b = names.load(stage.a), names.load(stage.b)
    if a.dtype != b.dtype or a.dtype not in _MATRIX_TYPES:
        raise Unsupported("dtype", "a product of two float32, float16 or bfloat16 matrices", f"{a.dtype} @ {b.dtype}")
    outs = names.outs(stage.stores, stage.program)
    body = names.body(
        stage.program,
        [o.instr for o in outs],
        outs,
        load=lambda k: f"fusion::load(in{k} + at[at{k}] + row * row{k} + column * column{k})",
        position="axis_{0}.at(e)",
    )
    passes, home = _epilogue_pass(plan, stage, name, a.dtype)
    a_operand, b_operand = stage.operands[stage.a], stage.operands[stage.b]
    return LinearView(
        *names.common("linear"),
        body=body,
        a=a,
        b=b,
        trans_a=_column_major(plan, a_operand, stage.trans_a),
        trans_b=_column_major(plan, b_operand, stage.trans_b),
        a_view=f"gpu::transposed({a.view})" if stage.trans_a else a.view,
        b_view=f"gpu::transposed({b.view})" if stage.trans_b else b.view,
        alpha=f"{stage.alpha!r}f",
        passes=passes,
        accumulator=home,
    )


def _column_major(plan: Plan, operand: Operand, transposed: bool) -> bool:
    """Whether the matrix is contiguous along its rows' axis, the last but one as the product sees it."""
    rank = len(plan.tensors[operand.tensor].shape)
    perm = operand.perm or tuple(range(rank))
    innermost = rank - 1 - perm.index(rank - 1)
    return innermost == (0 if transposed else 1)


def attention(plan: Plan, stage: Attention, name: str) -> AttentionView:
    names = Names(plan, stage, name)
    q, k, v = names.load(stage.q), names.load(stage.k), names.load(stage.v)
    if len({q.dtype, k.dtype, v.dtype}) > 1 or q.dtype not in _MATRIX_TYPES:
        raise Unsupported("dtype", "q, k, v all float32, float16 or bfloat16", f"{q.dtype}, {k.dtype}, {v.dtype}")
    store = stage.stores[0]
    out = Out("out", names.tensor(store.tensor).dtype, f"t{store.tensor}", 0, "float", "")
    if out.dtype != q.dtype:
        raise Unsupported("dtype", f"attention written as {q.dtype}", out.dtype)
    element = "fusion::load(in{0} + at[at{0}] + row * row{0} + column * column{0})"
    position = "axis_{0}.at((batch * queries + row) * keys + column)"

    def body(program: Sequence[Instr], root: int) -> Body:
        return names.body(program, [root], (), load=lambda i: element.format(i), position=position)

    kind = prob_kind(stage)
    score = body(stage.program, stage.score) if stage.program else Body((), (), (), ())
    prob = body(stage.prob_program, stage.prob) if kind == "kGeneral" else Body((), (), (), ())
    return AttentionView(
        *names.common("attention"),
        q=q,
        k=k,
        v=v,
        k_view=f"gpu::transposed({k.view})" if stage.k_transposed else k.view,
        out=out,
        out_view=view(Operand(store.tensor, _inverse(stage.out_perm))),
        scale=f"{stage.scale!r}f",
        score=score,
        score_value=result(stage.program, stage.score) if stage.program else "acc",
        prob=prob,
        prob_value=result(stage.prob_program, stage.prob) if kind == "kGeneral" else "acc",
        prob_kind=kind,
        head_dims=_head_dims(plan, stage),
    )


def _inverse(perm: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return tuple(perm.index(i) for i in range(len(perm))) if perm else None


def prob_kind(stage: Attention) -> str:
    """How `stage.prob_program` is run. Casts between float types are dropped: probabilities are rounded to the
    operands' type for the product with V anyway."""
    program = stage.prob_program
    if not program:
        return "kIdentity"

    def peel(i: int) -> Instr:
        while program[i].op in ("Cast", "Identity") and "float" in program[i].dtype:
            i = program[i].args[0]
        return program[i]

    root = peel(stage.prob)
    if root.op == "acc":
        return "kIdentity"
    if root.op == "Where":
        test, other = program[root.args[0]], peel(root.args[1])
        if (
            test.op == "IsNaN"
            and peel(test.args[0]).op == "acc"
            and other.op == "const"
            and other.value == 0
            and peel(root.args[2]).op == "acc"
        ):
            return "kZeroNaN"
    return "kGeneral"


def _head_dims(plan: Plan, stage: Attention) -> tuple[tuple[int, int], ...]:
    depth = _dim(plan, stage.operands[stage.q], -1)
    value_depth = _dim(plan, stage.operands[stage.v], -1)
    if isinstance(depth, str) or isinstance(value_depth, str):
        return tuple((d, d) for d in DYNAMIC_HEAD_DIMS)
    if max(depth, value_depth) > HEAD_DIMS[-1]:
        raise Unsupported("head-dim", f"a head dimension of at most {HEAD_DIMS[-1]}", str(max(depth, value_depth)))
    return ((_padded(depth), _padded(value_depth)),)


def _padded(dim: int) -> int:
    return next(d for d in HEAD_DIMS if d >= dim)


def _dim(plan: Plan, operand: Operand, axis: int) -> int | str:
    shape = plan.tensors[operand.tensor].shape
    return shape[operand.perm[axis]] if operand.perm else shape[axis]


def conv(plan: Plan, stage: Conv, name: str) -> ConvView:
    names = Names(plan, stage, name)
    slots = [stage.x, stage.w] + ([stage.bias] if stage.bias >= 0 else [])
    loads = [names.load(k) for k in slots]
    if any(load.dtype not in ("float32", "float16") or load.dtype != loads[0].dtype for load in loads):
        raise Unsupported("dtype", "a convolution in float32 or float16", ", ".join(x.dtype for x in loads))
    if any(stage.operands[k].perm for k in slots):
        raise Unsupported("conv-perm", "convolution operands as they lie in memory", "a transposed operand")
    passes, home = _epilogue_pass(plan, stage, name, loads[0].dtype)
    lists = (stage.strides, stage.pads if stage.auto_pad == "NOTSET" else (), stage.dilations)
    auto_pad = stage.auto_pad if stage.auto_pad in ("VALID", "SAME_UPPER", "SAME_LOWER") else "NOTSET"
    attributes = [*("fusion::Ints{" + ", ".join(map(str, x)) + "}" for x in lists), str(stage.group), f'"{auto_pad}"']
    return ConvView(
        *names.common("conv"),
        type=loads[0].type,
        onnx_type=onnx_type(loads[0].dtype),
        tensors=tuple(x.tensor for x in loads),
        attributes="{" + ", ".join(attributes) + "}",
        passes=passes,
        accumulator=home,
    )
