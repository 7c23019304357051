"""Plans of CUDA stages as decoders have them one after the other, built by hand."""

from __future__ import annotations

from dataclasses import replace

from fusion_cli.plan.attention_kind import kind_of
from fusion_cli.planir.stages import Attention, Linear, Operand, Pointwise, Rowwise, Store
from tests.helpers.cuda_case import Case
from tests.helpers.plan_builder import Builder, Program, Shape, operands


def layer(dtype: str) -> Case:
    """Attention, a product with a residual, an RMS norm, gate and up, and a product with the first one's result."""
    b = Builder()
    narrow: Shape = ("b", "h", "s", "n")
    wide: Shape = ("b", "h", "s", "m")
    q, k, v = (b.input(dtype, "b", "h", rows, 64) for rows in ("s", "t", "t"))
    attended = _attended(b, q, k, v)

    first, residual = b.input(dtype, 64, "n"), b.input(dtype, *narrow)
    dims = b.op("matmul", b.dims(attended), b.dims(first))
    hidden = b.temp(dtype, narrow, dims)
    _product(b, (attended, first, residual), "Add", hidden, dims)

    weight, normed = b.input(dtype, "n"), b.temp(dtype, narrow, dims)
    _normed(b, (Operand(hidden), Operand(weight)), (normed,), dims)

    gate, up = b.input(dtype, "n", "m"), b.input(dtype, "n", "m")
    dims = b.op("matmul", b.dims(normed), b.dims(gate))
    gated, product = b.temp(dtype, wide, dims), b.temp(dtype, wide, dims)
    p = Program()
    value = p("Mul", p.silu(p("acc", dtype=dtype)), p.const(2**-6))  # or sums of it might be beyond float16
    b.stages.append(Linear((Operand(normed), Operand(gate)), p.done(), (Store(gated, value),), dims, ("/gate",)))
    _product(b, (normed, up, gated), "Mul", product, dims)

    down = b.input(dtype, "m", "n")
    dims = b.op("matmul", b.dims(product), b.dims(down))
    _product(b, (product, down, hidden), "Add", b.output(dtype, narrow, dims), dims)
    sizes = (
        {"b": 1, "h": 1, "s": 1, "t": 1, "n": 256, "m": 520},
        {"b": 1, "h": 2, "s": 1, "t": 34, "n": 1024, "m": 2056},
        {"b": 2, "h": 2, "s": 2, "t": 64, "n": 136, "m": 72},
        {"b": 1, "h": 16, "s": 1, "t": 7, "n": 512, "m": 1000},
        {"b": 3, "h": 3, "s": 1, "t": 65, "n": 264, "m": 328},
        {"b": 1, "h": 2, "s": 1, "t": 9, "n": 60, "m": 44},
        {"b": 1, "h": 40, "s": 2, "t": 9, "n": 64, "m": 64},
        {"b": 0, "h": 2, "s": 1, "t": 9, "n": 64, "m": 64},
    )
    return Case(f"layer_{dtype}", b.plan(), sizes)


def ended(dtype: str) -> Case:
    """Rows of a table and their norm, a product of that with the rows as residual, and the result's LayerNorm."""
    b = Builder()
    shape: Shape = ("b", "s", "n")
    table, numbers = b.input(dtype, 6, "n"), b.input("int64", "b", "s", 1)
    weights, right = (b.input(dtype, "n"), b.input(dtype, "n")), b.input(dtype, "n", "n")
    dims = b.op("concat", b.op("take", b.dims(numbers), ints=(0, 1)), b.op("take", b.dims(table), ints=(1,)))
    x, normed, hidden = (b.temp(dtype, shape, dims) for _ in range(3))
    rows = Operand(table, rows=2), Operand(weights[0]), Operand(numbers)
    _normed(b, rows, (normed, x), dims)
    _product(b, (normed, right, x), "Add", hidden, dims)
    _normed(b, (Operand(hidden), Operand(weights[1])), (b.output(dtype, shape, dims),), dims, centred=True)
    sizes = (
        {"b": 1, "s": 1, "n": 1024},
        {"b": 2, "s": 3, "n": 136},
        {"b": 1, "s": 16, "n": 520},
        {"b": 3, "s": 7, "n": 72},
        {"b": 1, "s": 1, "n": 8},
        {"b": 0, "s": 1, "n": 64},
    )
    return Case(f"layer_ended_{dtype}", b.plan(), sizes)


def rotated(dtype: str, *, kept: bool = False) -> Case:
    """Queries and keys are scaled, side by side, before an attention to few keys and its product; `kept`: the keys lie
    where the queries were read, so that they have to wait."""
    b = Builder()
    rows: tuple[Shape, Shape] = ("b", "h", "s", 64), ("b", "h", "t", 64)
    q, k, v = b.input(dtype, *rows[0]), b.input(dtype, *rows[1]), b.input(dtype, *rows[1])
    made = q
    if kept:
        made = b.temp(dtype, rows[0], b.dims(q))
        _scaled(b, q, made, 2.0)
    scaled = b.temp(dtype, rows[0], b.dims(q)), b.temp(dtype, rows[1], b.dims(k))
    _scaled(b, made, scaled[0], 0.5)
    _scaled(b, k, scaled[1], 2.0)
    if kept:
        b.tensors[scaled[1]] = replace(b.tensors[scaled[1]], slot=b.tensors[made].slot)
        b.temps -= 1
    attended = _attended(b, *scaled, v)
    weight, residual = b.input(dtype, 64, "n"), b.input(dtype, "b", "h", "s", "n")
    dims = b.op("matmul", b.dims(attended), b.dims(weight))
    _product(b, (attended, weight, residual), "Add", b.output(dtype, ("b", "h", "s", "n"), dims), dims)
    sizes = (
        {"b": 1, "h": 2, "s": 1, "t": 34, "n": 1024},
        {"b": 2, "h": 3, "s": 2, "t": 5, "n": 136},
        {"b": 1, "h": 1, "s": 1, "t": 1, "n": 8},
    )
    return Case(f"layer_rotated_{dtype}{'_kept' * kept}", b.plan(), sizes)


def _attended(b: Builder, q: int, k: int, v: int) -> int:
    """Attention without a mask; its result, as large as the queries."""
    of = b.tensors[q]
    attended = b.temp(of.dtype, of.shape, of.dims)
    p = Program(of.dtype)
    score = p("acc")
    kind = kind_of(p.done(), score, (), 0, False, False)
    stores = (Store(attended, 0),)
    b.stages.append(Attention(operands(q, k, v), p.done(), stores, of.dims, scale=0.125, score=score, kind=kind))
    return attended


def _normed(
    b: Builder, operands: tuple[Operand, ...], outs: tuple[int, ...], dims: int, *, centred: bool = False
) -> None:
    """The RMS norm of the first operand times the second, and after it the operand itself if that is stored, too;
    `centred`: of its distances from its mean."""
    dtype = b.tensors[outs[0]].dtype
    p = Program()
    x = p.load(0, dtype)
    x = p("Sub", x, p("reduce_mean", x)) if centred else x
    inverse = p("Reciprocal", p("Sqrt", p("Add", p("reduce_mean", p("Mul", x, x)), p.const(1e-5))))
    value = p("Mul", p("Mul", x, inverse), p.load(1, dtype))
    stores = tuple(Store(out, made) for out, made in zip(outs, (value, x), strict=False))
    b.stages.append(Rowwise(operands, p.done(), stores, dims, ("/norm",)))


def _scaled(b: Builder, x: int, out: int, factor: float) -> None:
    p = Program(b.tensors[out].dtype)
    value = p("Mul", p.load(0), p.const(factor))
    b.stages.append(Pointwise((Operand(x),), p.done(), (Store(out, value),), b.dims(x), ("/scale",)))


def _product(b: Builder, operands: tuple[int, int, int], op: str, out: int, dims: int) -> None:
    """A product of two, and what an operator makes of it and the third."""
    dtype = b.tensors[out].dtype
    p = Program()
    value = p(op, p("acc", dtype=dtype), p.load(2, dtype))
    b.stages.append(Linear(tuple(map(Operand, operands)), p.done(), (Store(out, value),), dims, (f"/{op.lower()}",)))
