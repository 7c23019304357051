"""The parts that the CUDA stage templates print: argument fields, operands, scalar programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fusion_cli.codegen.expr import compute, literal, loaded, needed, render_program, storage
from fusion_cli.codegen.narrow import narrowed
from fusion_cli.codegen.text import comment
from fusion_cli.codes import emit as codes
from fusion_cli.errors import Unsupported
from fusion_cli.planir.stages import MOST_OPERANDS, Instr, Operand, Plan, Stage, Tensor

_MAX_RANK = 8


@dataclass(frozen=True)
class Field:
    """A member of a kernel's argument struct, and the host expression that fills it."""

    type: str
    name: str
    value: str


@dataclass(frozen=True)
class _Array:
    """A tensor of a stage: `name` in the kernel, `tensor` on the host (a gpu::Tensor)."""

    qualifier: ClassVar[str] = ""
    name: str
    dtype: str
    tensor: str

    @property
    def type(self) -> str:
        return storage(self.dtype)

    @property
    def field(self) -> Field:
        pointer = f"{self.qualifier}{self.type}*"
        return Field(pointer, self.name, f"static_cast<{pointer}>({self.tensor}.data)")


@dataclass(frozen=True)
class Load(_Array):
    """An operand of a stage, and its strides as a host expression."""

    qualifier = "const "
    operand: int
    view: str

    @property
    def compute(self) -> str:
        return compute(self.dtype)


@dataclass(frozen=True)
class Out(_Array):
    """A tensor that a stage writes: instruction `instr` of its program, or the stage's result."""

    instr: int
    compute: str
    value: str
    view: str = ""
    """Its strides on the host, where it is part of a tensor."""


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
class Member:
    """Something that a kernel object keeps from one run to the next: its type, name and constructor arguments."""

    type: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Buffer:
    """A workspace buffer: the largest of these byte counts."""

    name: str
    sizes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CudaStage:
    """One stage as its template prints it. Equal stages are one function: what differs from call to call is not
    compared."""

    can_replay: ClassVar[bool] = True
    """Whether what its function launches may be launched again as it was: by itself, in memory of the call's."""
    is_long: ClassVar[bool] = False
    """Whether it has so many kernels that a compiler takes seconds."""
    template: str
    """Its macro `code` takes the stage and prints the function."""
    headers: tuple[str, ...]
    parameters: tuple[str, ...]
    """The tensors that the function takes."""
    takes: tuple[str, ...] = ()
    """What it takes besides, as parameter declarations."""
    setup: tuple[tuple[str, str], ...] = ()
    """Names that its call uses, and what they are, once for all stages of a run."""
    prepares: bool = False
    """Whether its function NAME_prepare(device) has to run before the first call."""

    name: str = field(default="", compare=False)
    nodes: tuple[str, ...] = field(default=(), compare=False)
    dims: str = field(default="", compare=False)
    tensors: tuple[str, ...] = field(default=(), compare=False)
    """What is given for `parameters`."""
    arguments: tuple[str, ...] = field(default=(), compare=False)
    """What is given for `takes`."""
    members: tuple[Member, ...] = field(default=(), compare=False)
    buffers: tuple[Buffer, ...] = field(default=(), compare=False)


@dataclass(frozen=True, kw_only=True)
class CudaGroup:
    """Stages that one launch runs together where their sizes allow it, each chain in order; where they do not, the
    function of its name says so, and the stages' own run."""

    template: str
    """Its macro `together` takes the group and prints the function."""
    is_long: ClassVar[bool] = False
    """Whether it has so many kernels that a compiler takes seconds."""
    chains: tuple[tuple[CudaStage, ...], ...]
    """Every stage reads what nothing in the group writes but those before it in its chain."""
    prepares: bool = False
    """Whether its function NAME_prepare(device) has to run before the first call."""
    takes: tuple[str, ...] = ()
    """What its function takes besides the stages' tensors, as parameter declarations."""
    name: str = field(default="", compare=False)
    arguments: tuple[str, ...] = field(default=(), compare=False)
    """What is given for `takes`."""

    @property
    def stages(self) -> tuple[CudaStage, ...]:
        return tuple(stage for chain in self.chains for stage in chain)


class Names:
    """Builds the parts that all kinds of stage share. A function names its tensors by their order in its stage."""

    def __init__(self, plan: Plan, stage: Stage) -> None:
        self.plan = plan
        self.stage = stage
        self.local = {tensor: f"t{n}" for n, tensor in enumerate(stage.tensors)}
        if len(stage.operands) > MOST_OPERANDS:
            raise Unsupported(codes.LIMIT, f"at most {MOST_OPERANDS} operands of a kernel", str(len(stage.operands)))

    def tensor(self, index: int) -> Tensor:
        tensor = self.plan.tensors[index]
        if len(tensor.shape) > _MAX_RANK:
            raise Unsupported(codes.LIMIT, f"tensors of rank {_MAX_RANK} or less", str(len(tensor.shape)))
        return tensor

    def load(self, k: int) -> Load:
        operand = self.stage.operands[k]
        tensor = self.tensor(operand.tensor)
        return Load(f"in{k}", tensor.dtype, self.local[operand.tensor], k, self.view(operand))

    def view(self, operand: Operand) -> str:
        """The operand's strides, as a host expression."""
        if operand.rows is not None:
            return f"gpu::one_row(gpu::view({self.local[operand.tensor]}))"
        perm = ", {" + ", ".join(map(str, operand.perm)) + "}" if operand.perm else ""
        return f"gpu::view({self.local[operand.tensor]}{perm})"

    def outs(self) -> tuple[Out, ...]:
        """What the stage writes."""
        program = self.stage.program
        return tuple(
            Out(
                f"out{n}",
                self.tensor(s.tensor).dtype,
                self.local[s.tensor],
                s.instr,
                compute(program[s.instr].dtype),
                result(program, s.instr),
                self.view(Operand(s.tensor)) if self.plan.tensors[s.tensor].role == "view" else "",
            )
            for n, s in enumerate(self.stage.stores)
        )

    def body(
        self,
        program: Sequence[Instr],
        outs: tuple[Out, ...],
        *,
        load: Callable[[int], str],
        position: Callable[[int], str],
        loads: Mapping[int, Load] | None = None,
        root: int | None = None,
    ) -> Body:
        """The part of `program` that `outs` need, or without any an instruction `root`. `position` gives the position
        along an axis, counted from the end."""
        program = narrowed(program)
        live = needed(program, [o.instr for o in outs] if root is None else [root])
        used = sorted(loaded(program, live))
        axes = sorted({-int(program[i].value or 0) for i in live if program[i].op == "index"})
        lines = render_program(program, load=load, index=lambda axis: position(-axis), only=live)
        return Body(tuple((loads or {}).get(k) or self.load(k) for k in used), outs, tuple(axes), tuple(lines))

    def common(self, template: str, *headers: str) -> dict[str, Any]:
        """The fields of a CudaStage that follow from the plan."""
        return {
            "template": f"stages/{template}.cu.jinja",
            "headers": headers,
            "parameters": tuple(self.local.values()),
            "nodes": tuple(comment(n) for n in self.stage.nodes),
            "dims": f"h{self.stage.dims}",
            "tensors": tuple(f"t{tensor}" for tensor in self.local),
        }


def result(program: Sequence[Instr], i: int) -> str:
    """An instruction's value as later statements write it: its name, or the literal of a constant."""
    instr = program[i]
    return f"v{i}" if instr.op != "const" or instr.value is None else literal(instr.value, instr.dtype)
