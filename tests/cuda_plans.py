"""Plans that exercise every kind of CUDA stage, built by hand so that no other stage of the compiler is involved."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np
import plan_builder
from plan_builder import Builder, Program, Shape
from region_tools import whole
from slice_graphs import (
    CACHE,
    GRAPHS,
    NORM_OF_PARTS,
    PACKED_ATTENTION,
    REVERSED,
    ROPE_HALVES,
    ROPE_PAIRS,
    Graph,
)

from fusion_cli.plan import plan_region
from fusion_cli.plan.ir import (
    Attention,
    Conv,
    HostOp,
    Instr,
    Linear,
    Operand,
    Plan,
    Pointwise,
    Rowwise,
    Stage,
    Store,
    Tensor,
)
from fusion_cli.types import FusedOp

Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """A plan, the symbols' values to run it with, and values to plant in its inputs (slot -> (index, value)); an index
    shorter than the rank plants a whole slice."""

    name: str
    plan: Plan
    sizes: tuple[Mapping[str, int], ...]
    planted: Mapping[int, tuple[tuple[int, ...], float]] = field(default_factory=dict)

    def inputs(self, sizes: Mapping[str, int], rng: np.random.Generator) -> list[Array]:
        arrays = []
        for slot, index in enumerate(self.plan.inputs):
            tensor = self.plan.tensors[index]
            shape = tuple(sizes[d] if isinstance(d, str) else d for d in tensor.shape)
            array = random(tensor.dtype, shape, rng)
            if slot in self.planted and array.size:
                where, value = self.planted[slot]
                array[tuple(min(i, n - 1) for i, n in zip(where, shape, strict=False))] = value
            arrays.append(array)
        return arrays


def random(dtype: str, shape: Sequence[int], rng: np.random.Generator) -> Array:
    if dtype == "bool":
        return rng.random(shape) < 0.7
    if dtype.startswith("int"):
        return rng.integers(-5, 6, shape).astype(dtype)
    return rng.standard_normal(shape).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def pointwise(dtype: str) -> Case:
    """Broadcasts over every axis, a transposed operand, a mask, positions, two outputs, a narrowing cast."""
    b = Builder()
    x, bias, turned, mask, scale = (
        b.input(dtype, "b", "s", "d"),
        b.input("float32", "d"),
        b.input(dtype, "d", "b", "s"),
        b.input("bool", "s", 1),
        b.input(dtype, "b", 1, 1),
    )
    p = Program()
    total = p("Add", p.load(0, dtype), p.load(1))
    total = p("Add", total, p("Mul", p.load(2, dtype), p.load(4, dtype)))
    kept = p("Where", p.load(3, "bool"), p.silu(total), p.const(-0.5))
    odd = p("Mod", p("index", dtype="int64", value=-2), p.const(2, "int64"), dtype="int64", value=0)
    # Of an operand: a computed number that lies between two of float16 may go to either.
    narrowed = p("Cast", p.load(1), dtype="float16")
    second = p("Add", p("Add", p("Erf", narrowed), p("Cast", odd)), p("Tanh", total))
    dims = b.dims(x)
    outs = b.output(dtype, ("b", "s", "d"), dims), b.output("float32", ("b", "s", "d"), dims)
    operands = (Operand(x), Operand(bias), Operand(turned, (1, 2, 0)), Operand(mask), Operand(scale))
    stores = Store(outs[0], kept), Store(outs[1], second)
    b.stages.append(Pointwise(operands, p.done(), stores, dims, ("/act/Mul", "*/ injected \\")))
    sizes = ({"b": 2, "s": 3, "d": 64}, {"b": 3, "s": 5, "d": 7}, {"b": 1, "s": 1, "d": 1}, {"b": 0, "s": 4, "d": 8})
    return Case(f"pointwise_{dtype}", b.plan(), sizes, {0: ((0, 0, 3), float("nan")), 4: ((1, 0, 0), float("inf"))})


def integers() -> Case:
    """int64, int32 and double operands; a space of one axis whose length is no multiple of a vector."""
    b = Builder()
    ids, table, wide = b.input("int64", "n"), b.input("int32", "n"), b.input("float64", "n")
    p = Program()
    total = p("Add", p.load(0, "int64"), p("Cast", p.load(1, "int32"), dtype="int64"), dtype="int64")
    half = p("Div", total, p.const(2, "int64"), dtype="int64")
    doubled = p("Mul", p.load(2, "float64"), p("Cast", total, dtype="float64"), dtype="float64")
    dims = b.dims(ids)
    outs = b.output("int64", ("n",), dims), b.output("float64", ("n",), dims)
    b.stages.append(
        Pointwise(
            (Operand(ids), Operand(table), Operand(wide)),
            p.done(),
            (Store(outs[0], half), Store(outs[1], doubled)),
            dims,
        )
    )
    return Case("integers", b.plan(), ({"n": 1001}, {"n": 0}, {"n": 1}))


def layer_norm(dtype: str, length: int | str = "d") -> Case:
    """Residual, LayerNorm with scale and shift, and three stores: the sum, the result, and each row's mean."""
    b = Builder()
    x, r = b.input(dtype, "b", "s", length), b.input(dtype, "b", "s", length)
    gamma, beta = b.input(dtype, length), b.input(dtype, length)
    p = Program()
    total = p("Add", p.load(0, dtype), p.load(1, dtype))
    mean = p("reduce_mean", total)
    centred = p("Sub", total, mean)
    variance = p("reduce_mean", p("Mul", centred, centred))
    inverse = p("Reciprocal", p("Sqrt", p("Add", variance, p.const(1e-5))))
    result = p("Add", p("Mul", p("Mul", centred, inverse), p.load(2, dtype)), p.load(3, dtype))
    dims = b.dims(x)
    shape: Shape = ("b", "s", length)
    outs = b.output(dtype, shape, dims), b.output(dtype, shape, dims)
    rows = b.output("float32", ("b", "s", 1), b.op("reduce", dims, ints=(1, -1)))
    stores = Store(outs[0], total), Store(outs[1], result), Store(rows, mean)
    b.stages.append(Rowwise(tuple(map(Operand, (x, r, gamma, beta))), p.done(), stores, dims, ("/norm",)))
    lengths = (768, 77, 1, 8200, 20003) if isinstance(length, str) else (length,)
    sizes = [{"b": 2, "s": 9, "d": d} for d in lengths] + [{"b": 0, "s": 2, "d": 16}]
    return Case(f"layer_norm_{dtype}_{length}", b.plan(), tuple(sizes), {0: ((0, 1, 3), float("nan"))})


def softmax(dtype: str) -> Case:
    """A masked softmax whose mask broadcasts over heads, with one scale per row, then a product along the row."""
    b = Builder()
    x, mask, per_row = (
        b.input(dtype, "b", "h", "q", "k"),
        b.input("bool", "b", 1, "q", "k"),
        b.input(dtype, "h", "q", 1),
    )
    p = Program()
    score = p("Where", p.load(1, "bool"), p("Mul", p.load(0, dtype), p.load(2, dtype)), p.const(float("-inf")))
    top = p("reduce_max", score)
    e = p("Exp", p("Sub", score, top))
    prob = p("Div", e, p("reduce_sum", e))
    dims = b.dims(x)
    out = b.output(dtype, ("b", "h", "q", "k"), dims)
    flat = b.output("float32", ("b", "h", "q"), b.op("reduce", dims, ints=(0, -1)))
    stores = Store(out, prob), Store(flat, p("reduce_min", score))
    b.stages.append(Rowwise(tuple(map(Operand, (x, mask, per_row))), p.done(), stores, dims))
    sizes = ({"b": 2, "h": 3, "q": 5, "k": 128}, {"b": 1, "h": 2, "q": 3, "k": 37}, {"b": 2, "h": 1, "q": 1, "k": 9001})
    return Case(f"softmax_{dtype}", b.plan(), sizes, {1: ((0, 0, 1), 0)})


def linear(dtype: str, *, trans_a: bool = False, trans_b: bool = False, narrow: bool = False) -> Case:
    """alpha * A @ B + bias, SiLU, residual; `narrow` writes float32 from it as well (no place for the bare product)."""
    b = Builder()
    a = b.input(dtype, *(("k", "m") if trans_a else ("m", "k")))
    w = b.input(dtype, *(("n", "k") if trans_b else ("k", "n")))
    bias, residual = b.input(dtype, "n"), b.input(dtype, "m", "n")
    dims = b.op("gemm", b.dims(a), b.dims(w), ints=(int(trans_a), int(trans_b)))
    p = Program()
    value = p("Add", p.silu(p("Add", p("acc", dtype=dtype), p.load(2, dtype))), p.load(3, dtype))
    other = "float32" if narrow else dtype
    out = b.output(other, ("m", "n"), dims)
    operands = tuple(map(Operand, (a, w, bias, residual)))
    b.stages.append(
        Linear(
            operands,
            p.done(),
            (Store(out, value),),
            dims,
            ("/fc1", "/act"),
            trans_a=trans_a,
            trans_b=trans_b,
            alpha=0.5,
        )
    )
    sizes = (
        {"m": 128, "n": 192, "k": 64},
        {"m": 33, "n": 65, "k": 47},
        {"m": 1, "n": 9, "k": 129},
        {"m": 5, "n": 1, "k": 1},
        {"m": 0, "n": 4, "k": 8},
        {"m": 3, "n": 4, "k": 0},
        {"m": 257, "n": 384, "k": 520},
        {"m": 301, "n": 333, "k": 401},
    )
    layout = ("t" if trans_a else "n") + ("t" if trans_b else "n")
    return Case(f"linear_{dtype}_{layout}{'_narrow' if narrow else ''}", b.plan(), sizes)


def batched(dtype: str) -> Case:
    """A permuted batched A against one weight (rows fold) and then a batched product of two tensors, no epilogue."""
    b = Builder()
    x, w, other = b.input(dtype, "b", "s", "k"), b.input(dtype, "k", "n"), b.input(dtype, "b", "s", "h", "n")
    hidden_dims = b.op("matmul", b.dims(x), b.dims(w))
    hidden = b.temp(dtype, ("b", "s", "n"), hidden_dims)
    p = Program()
    acc = p("Relu", p("acc", dtype=dtype))
    b.stages.append(Linear((Operand(x), Operand(w)), p.done(), (Store(hidden, acc),), hidden_dims))
    lifted = b.alias(hidden, ("b", 1, "s", "n"), b.op("unsqueeze", hidden_dims, ints=(1,)))
    turned = b.op("permute", b.dims(other), ints=(0, 2, 3, 1))
    dims = b.op("matmul", b.dims(lifted), turned)
    out = b.output(dtype, ("b", "h", "s", "s"), dims)
    operands = Operand(lifted), Operand(other, (0, 2, 3, 1))
    b.stages.append(Linear(operands, (Instr("acc", (), dtype),), (Store(out, 0),), dims))
    sizes = (
        {"b": 2, "s": 33, "k": 40, "h": 3, "n": 24},
        {"b": 3, "s": 150, "k": 129, "h": 2, "n": 160},
        {"b": 2, "s": 1, "k": 8, "h": 1, "n": 8},
    )
    return Case(f"batched_{dtype}", b.plan(), sizes)


def attention(dtype: str, depth: int, value_depth: int | None = None, prob: str = "", transposed: bool = False) -> Case:
    """Heads split and merged by permutations, an additive mask, a bool mask; `prob`: "guard", "general", "empty"."""
    b = Builder()
    dv = value_depth or depth
    q, v = b.input(dtype, "b", "q", "h", depth), b.input(dtype, "b", "k", "h", dv)
    k = b.input(dtype, "b", "h", depth, "k") if transposed else b.input(dtype, "b", "k", "h", depth)
    bias, mask = b.input("float32", "h", 1, "k"), b.input("bool", "b", 1, "q", "k")
    heads = b.op("permute", b.dims(q), ints=(0, 2, 1, 3))
    values = b.op("permute", b.dims(v), ints=(0, 2, 1, 3))
    dims = b.op("concat", b.op("slice", heads, ints=(0, 3, 1)), b.op("slice", values, ints=(3, 4, 1)))
    p = Program()
    score = p("Add", p("acc"), p.load(3))
    score = p("Where", p.load(4, "bool"), score, p.const(float("-inf")))
    r = Program()
    root = 0
    if prob == "guard":
        acc = r("acc")
        root = r("Where", r("IsNaN", acc, dtype="bool"), r.const(0.0), acc)
    elif prob == "general":
        acc = r("acc")
        guarded = r("Where", r("IsNaN", acc, dtype="bool"), r.const(0.0), acc)
        root = r("Mul", guarded, r("Cast", r.load(4, "bool"), dtype="float32"))
        root = r("Sqrt", root)
    merged = b.op("permute", dims, ints=(0, 2, 1, 3))
    out = b.output(dtype, ("b", "q", "h", dv), merged)
    b.stages.append(
        Attention(
            (
                Operand(q, (0, 2, 1, 3)),
                Operand(k, None if transposed else (0, 2, 1, 3)),
                Operand(v, (0, 2, 1, 3)),
                Operand(bias),
                Operand(mask),
            ),
            p.done(),
            (Store(out, 0),),
            dims,
            ("/attn/Softmax",),
            k_transposed=transposed,
            scale=depth**-0.5,
            score=score,
            prob_program=r.done(),
            prob=root,
            zero_empty=prob == "empty",
            out_perm=(0, 2, 1, 3),
        )
    )
    sizes = (
        {"b": 2, "h": 3, "q": 67, "k": 131},
        {"b": 1, "h": 2, "q": 128, "k": 128},
        {"b": 2, "h": 1, "q": 1, "k": 3},
        {"b": 1, "h": 1, "q": 0, "k": 3},
        {"b": 1, "h": 2, "q": 5, "k": 1030},  # keys shared by several blocks
    )
    name = f"attention_{dtype}_{depth}_{dv}{'_' + prob if prob else ''}{'_kt' if transposed else ''}"
    return Case(name, b.plan(), sizes, {4: ((0, 0, 0), 0)})


def causal(dtype: str, depth: int = 64) -> Case:
    """Positions instead of a mask tensor; contiguous heads."""
    p = Program()
    later = p("Greater", p("index", dtype="int64", value=-1), p("index", dtype="int64", value=-2), dtype="bool")
    score = p("Where", later, p.const(float("-inf")), p("acc"))
    return _heads(f"causal_{dtype}_{depth}", dtype, depth, p.done(), score)


def bare(dtype: str, depth: int = 64) -> Case:
    """No mask at all, the probabilities as they are."""
    return _heads(f"bare_{dtype}_{depth}", dtype, depth, (Instr("acc", (), "float32"),), 0)


def _heads(name: str, dtype: str, depth: int, program: tuple[Instr, ...], score: int) -> Case:
    b = Builder()
    q, k, v = (b.input(dtype, "b", "h", "s", depth) for _ in range(3))
    dims = b.dims(q)
    out = b.output(dtype, ("b", "h", "s", depth), dims)
    operands = (Operand(q), Operand(k), Operand(v))
    b.stages.append(Attention(operands, program, (Store(out, 0),), dims, scale=depth**-0.5, score=score))
    return Case(name, b.plan(), ({"b": 2, "h": 2, "s": 200}, {"b": 1, "h": 1, "s": 1}, {"b": 1, "h": 2, "s": 389}))


def conv(dtype: str) -> Case:
    """Convolution with bias, then ReLU and a residual."""
    b = Builder()
    x, w, bias, residual = (
        b.input(dtype, "n", 3, "h", "w"),
        b.input(dtype, 8, 3, 3, 3),
        b.input(dtype, 8),
        b.input(dtype, "n", 8, "oh", "ow"),
    )
    dims = b.op("conv", b.dims(x), b.dims(w), ints=(2, 2, 2, 1, 1, 1, 1, 1, 1, 0))
    p = Program()
    value = p("Relu", p("Add", p("acc", dtype=dtype), p.load(3, dtype)))
    out = b.output(dtype, ("n", 8, "oh", "ow"), dims)
    b.stages.append(
        Conv(tuple(map(Operand, (x, w, bias, residual))), p.done(), (Store(out, value),), dims, ("/conv",), bias=2,
             strides=(2, 2), pads=(1, 1, 1, 1), dilations=(1, 1))
    )  # fmt: skip
    return Case(
        f"conv_{dtype}",
        b.plan(),
        ({"n": 2, "h": 17, "w": 23, "oh": 9, "ow": 12}, {"n": 1, "h": 1, "w": 1, "oh": 1, "ow": 1}),
    )


def chain(dtype: str) -> Case:
    """Norm, product with bias and GELU, product with residual: three kernels that pass on their results."""
    b = Builder()
    x, gamma = b.input(dtype, "b", "s", "d"), b.input(dtype, "d")
    w1, b1, w2 = b.input(dtype, "d", "f"), b.input(dtype, "f"), b.input(dtype, "f", "d")
    dims = b.dims(x)
    normed = b.temp(dtype, ("b", "s", "d"), dims)
    p = Program()
    square = p("reduce_mean", p("Mul", p.load(0, dtype), p.load(0, dtype)))
    scale = p("Reciprocal", p("Sqrt", p("Add", square, p.const(1e-6))))
    result = p("Mul", p("Mul", p.load(0, dtype), scale), p.load(1, dtype))
    b.stages.append(Rowwise((Operand(x), Operand(gamma)), p.done(), (Store(normed, result),), dims, ("/norm",)))
    hidden_dims = b.op("matmul", dims, b.dims(w1))
    hidden = b.temp(dtype, ("b", "s", "f"), hidden_dims)
    p = Program()
    z = p("Add", p("acc", dtype=dtype), p.load(2, dtype))
    erf = p("Erf", p("Mul", z, p.const(0.70710678)))
    gelu = p("Mul", p("Mul", z, p.const(0.5)), p("Add", erf, p.const(1.0)))
    b.stages.append(Linear((Operand(normed), Operand(w1), Operand(b1)), p.done(), (Store(hidden, gelu),), hidden_dims))
    p = Program()
    value = p("Add", p("acc", dtype=dtype), p.load(2, dtype))
    out = b.output(dtype, ("b", "s", "d"), dims)
    b.stages.append(Linear((Operand(hidden), Operand(w2), Operand(x)), p.done(), (Store(out, value),), dims, ("/fc2",)))
    return Case(
        f"chain_{dtype}", b.plan(), ({"b": 2, "s": 19, "d": 96, "f": 200}, {"b": 1, "s": 64, "d": 512, "f": 2048})
    )


def compiled(graph: Graph, dtype: str) -> Case:
    """A graph with slices and joins, planned by the region compiler."""
    region = whole(graph.model({"float32": "float"}.get(dtype, dtype)))
    plan = plan_region(region)
    sizes = []
    for chosen in graph.sizes:
        named: dict[str, int] = {}
        for value, index in zip(region.inputs, plan.inputs, strict=True):
            known = plan.tensors[index].shape if index >= 0 else ()
            named |= {
                d: chosen[str(own)] for d, own in zip(known, value.shape or (), strict=False) if isinstance(d, str)
            }
        sizes.append(named)
    return Case(f"{graph.name}_{dtype}", plan, tuple(sizes), {0: ((0, 0, 0), float("nan"))})


def all_cases() -> list[Case]:
    cases = [pointwise(d) for d in ("float32", "float16", "bfloat16")]
    cases += [
        integers(),
        layer_norm("float32"),
        layer_norm("float16"),
        layer_norm("bfloat16", 4096),
        softmax("float16"),
        softmax("float32"),
    ]
    cases += [linear(d) for d in ("float32", "float16", "bfloat16")]
    cases += [
        linear("float16", trans_a=True, trans_b=True, narrow=True),
        linear("float16", trans_b=True),
        linear("float32", trans_b=True),
    ]
    cases += [batched("float16"), batched("float32"), chain("float16"), chain("float32")]
    cases += [
        attention("float16", 64),
        attention("bfloat16", 128, prob="guard"),
        attention("float16", 128, prob="empty"),
        attention("float16", 80, 40, prob="general", transposed=True),
    ]
    cases += [
        attention("float32", 64, prob="guard"),
        attention("float32", 48, prob="empty"),
        attention("float32", 33, 70, prob="general"),
        attention("float16", 256),
    ]
    cases += [
        causal("float16"),
        causal("float32"),
        bare("float16", 128),
        bare("bfloat16"),
        conv("float32"),
        conv("float16"),
    ]
    # One type each, in turn: a kernel is the same for all but for what it reads and writes.
    types = itertools.cycle(("float16", "float32", "bfloat16"))
    cases += [compiled(graph, dtype) for graph, dtype in zip(GRAPHS, types, strict=False)]
    return cases


def fused_op(case: Case) -> FusedOp:
    """The operator that a case's plan implements."""
    return plan_builder.fused_op(f"Case_{case.name}", case.plan)


def merged(name: str, cases: Sequence[Case]) -> Case:
    """One operator that does everything the cases do, one after the other."""
    plans = [c.plan for c in cases]
    tensors: list[Tensor] = []
    host: list[HostOp] = []
    stages: list[Stage] = []
    inputs: list[int] = []
    outputs: list[int] = []
    buffers = 0
    for plan in plans:
        t, h = len(tensors), len(host)
        first = {"input": len(inputs), "output": len(outputs), "temp": buffers, "alias": t, "view": t}
        for tensor in plan.tensors:
            moved = {name: getattr(tensor, name) + h for name in ("dims", "starts", "steps")}
            tensors.append(replace(tensor, slot=tensor.slot + first[tensor.role], **moved))
        for op in plan.host:
            ints = (op.ints[0] + len(inputs),) if op.kind in ("dims", "read") else op.ints
            host.append(HostOp(op.kind, tuple(a + h for a in op.args), ints))
        for stage in plan.stages:
            operands = tuple(replace(o, tensor=o.tensor + t) for o in stage.operands)
            stores = tuple(replace(s, tensor=s.tensor + t) for s in stage.stores)
            stages.append(replace(stage, operands=operands, stores=stores, dims=stage.dims + h))
        inputs += [i + t for i in plan.inputs]
        outputs += [i + t for i in plan.outputs]
        buffers += plan.buffers
    plan = Plan(tuple(tensors), tuple(host), tuple(stages), tuple(inputs), tuple(outputs), buffers)
    sizes: dict[str, int] = {}
    for case in cases:
        sizes |= case.sizes[0]
    return Case(name, plan, (sizes,))


def everything(dtype: str) -> Case:
    """All kinds of stage in one operator."""
    cases = [pointwise(dtype), softmax(dtype), linear(dtype, narrow=dtype != "float32")]
    cases.append(attention(dtype, 64, prob="general"))
    if dtype != "bfloat16":
        cases.append(conv(dtype))
    return merged(f"everything_{dtype}", cases)


def sliced(dtype: str) -> Case:
    """Views read and written by every kind of stage that can, in one operator."""
    graphs = (ROPE_HALVES, ROPE_PAIRS, PACKED_ATTENTION, CACHE, NORM_OF_PARTS, REVERSED)
    return merged(f"sliced_{dtype}", [_apart(compiled(g, dtype), g.name) for g in graphs])


def _apart(case: Case, prefix: str) -> Case:
    """The case with symbols of its own."""
    tensors = tuple(
        replace(t, shape=tuple(d if isinstance(d, int) else f"{prefix}_{d}" for d in t.shape))
        for t in case.plan.tensors
    )
    sizes = tuple({f"{prefix}_{d}": n for d, n in chosen.items()} for chosen in case.sizes)
    return replace(case, plan=replace(case.plan, tensors=tensors), sizes=sizes)
