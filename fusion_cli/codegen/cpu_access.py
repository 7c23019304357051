"""The arrays that a CPU kernel's loop walks, and the C++ that reads and writes their elements."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from fusion_cli.codegen.expr import compute, literal, render_program, storage
from fusion_cli.codegen.text import ints, is_unit
from fusion_cli.operators.dtypes import NARROW
from fusion_cli.planir.stages import Instr, Operand, Plan, Store


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
    tensor: str = field(compare=False)
    strides: str
    inner: int
    scattered: bool = False
    """Of a store: whether it writes to a view, not to neighbours in memory."""
    factor: float = 1.0
    """What an element is multiplied by when read (a product's alpha, attention's scale)."""
    row: str = ""
    """Of a table of which each row reads one: which, as an expression of what the loop's body has."""

    @property
    def narrow(self) -> bool:
        return self.dtype in NARROW


def reads(
    plan: Plan,
    program: Sequence[Instr],
    operands: Sequence[Operand],
    live: Collection[int],
    space: Sequence[int | str],
    acc: Access,
) -> dict[str, Access]:
    """The arrays a program reads: load k is "x<k>", a position is "p<-axis>", the stage's own result "acc"."""
    found: dict[str, Access] = {}
    for i in sorted(live):
        instr = program[i]
        if instr.op == "load":
            k = int(instr.value or 0)
            rows = operands[k].rows
            for operand in (k,) if rows is None else (rows, k):
                found[f"x{operand}"] = _load(plan, operands, operand, space)
        elif instr.op == "index":
            axis = int(instr.value or 0)
            name = f"p{-axis}"
            found[name] = Access(name, "int64", "", "index", "", f"strides_of_index(space, {axis})", -1)
        elif instr.op == "acc":
            found["acc"] = acc
    return found


def _load(plan: Plan, operands: Sequence[Operand], k: int, space: Sequence[int | str]) -> Access:
    name, operand = f"x{k}", operands[k]
    tensor = plan.tensors[operand.tensor]
    strides = f"strides_over(space, {name}{'' if operand.perm is None else f', {ints(operand.perm)}'})"
    inner, row = inner_stride(plan, operand, space), ""
    if operand.rows is not None:
        strides, inner, row = "strides_of_index(space, -1)", 1, f"row_of(*x{operand.rows}, {tensor.shape[0]})"
    return Access(name, tensor.dtype, storage(tensor.dtype), "load", f"t{operand.tensor}", strides, inner, row=row)


def writes(
    plan: Plan, stores: Sequence[Store], row_stores: Collection[int], space: Sequence[int | str]
) -> dict[str, Access]:
    """The arrays a program writes, named y0, y1, ...; that of the store to tensor t is found as "y<t>"."""
    found: dict[str, Access] = {}
    for n, store in enumerate(stores):
        dtype = plan.tensors[store.tensor].dtype
        name = f"y{n}"
        row = store.tensor in row_stores
        scattered = plan.tensors[store.tensor].role == "view"
        whole = f"strides_over(space, {name})" if scattered else "contiguous(space)"
        strides = "strides_of_rows(space)" if row else whole
        inner = 0 if row else inner_stride(plan, Operand(store.tensor), space) if scattered else 1
        role = "row_store" if row else "store"
        access = Access(name, dtype, storage(dtype), role, f"t{store.tensor}", strides, inner, scattered)
        found[f"y{store.tensor}"] = access
    return found


def acc_access(dtype: str, factor: float) -> Access:
    """The array of a stage's own result, before its program."""
    return Access("acc", dtype, compute(dtype), "acc", "acc", "contiguous(space)", 1, factor=factor)


def inner_stride(plan: Plan, operand: Operand, space: Sequence[int | str]) -> int:
    """The stride of an operand along the innermost axis that is not always 1, where that is known."""
    shape = plan.viewed(operand)
    axis = next((a for a in range(-1, -len(space) - 1, -1) if space[a] != 1), -1)
    if len(shape) < -axis or shape[axis] == 1:
        return 0
    source = (operand.perm or tuple(range(len(shape))))[axis]
    return 1 if is_unit(plan, operand.tensor, source) else -1


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


def steps(accesses: dict[str, Access]) -> list[str]:
    """Local constants of the loads: strides, and the one element of those that do not move along the row."""
    lines = []
    for position, access in enumerate(accesses.values()):
        if access.role == "index":
            lines.append(f"const int64_t at_{access.name} = at[{position}], step_{access.name} = step[{position}];")
        elif (access.role == "load" or access.scattered) and not access.narrow:
            stride = f"kUnit ? {access.inner} : step[{position}]" if access.inner >= 0 else f"step[{position}]"
            lines.append(f"const int64_t step_{access.name} = {stride};")
            if access.role == "load" and access.inner == 0:
                lines.append(f"const {access.type} {access.name}_first = *{access.name};")
    return lines


def render(
    program: Sequence[Instr], accesses: dict[str, Access], only: Sequence[int] | frozenset[int], names: dict[int, str]
) -> tuple[list[str], dict[int, str]]:
    """The instructions `only` for column i, and what stands for those that are not variables."""
    lines = render_program(
        program,
        load=lambda k: _element(accesses, f"x{k}"),
        acc=_element(accesses, "acc") if "acc" in accesses else "acc",
        index=lambda axis: _element(accesses, f"p{-axis}"),
        only=frozenset(only),
        names=names,
    )
    literals = {i: literal(p.value, p.dtype) for i, p in enumerate(program) if p.op == "const" and p.value is not None}
    return lines, {**literals, **names}


def store_line(program: Sequence[Instr], store: Store, accesses: dict[str, Access], names: dict[int, str]) -> str:
    """The statement that writes a stored value."""
    access = accesses[f"y{store.tensor}"]
    value = names.get(store.instr, f"v{store.instr}")
    if access.role == "row_store":
        return f"store({access.name}, {value});"
    array = f"{access.name}_wide" if access.narrow else access.name
    step = f" * step_{access.name}" if access.scattered and not access.narrow else ""
    return f"store({array} + i{step}, {value});"
