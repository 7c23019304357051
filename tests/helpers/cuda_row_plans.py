"""Plans of pointwise and rowwise CUDA stages, built by hand."""

from __future__ import annotations

from fusion_cli.planir.stages import Operand, Pointwise, Rowwise, Store
from tests.helpers.cuda_case import Case
from tests.helpers.plan_builder import Builder, Program, Shape, operands


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


def transpose(dtype: str) -> Case:
    """Copies whose rows become columns: an image turned over, and its axes in another order."""
    b = Builder()
    x = b.input(dtype, "n", "c", "h", "w")
    for perm in ((0, 2, 3, 1), (3, 1, 0, 2), (1, 0, 2, 3)):
        dims = b.op("permute", b.dims(x), ints=perm)
        out = b.output(dtype, tuple("nchw"[p] for p in perm), dims)
        p = Program(dtype)
        value = p.load(0)
        b.stages.append(Pointwise((Operand(x, perm),), p.done(), (Store(out, value),), dims, ("/turn",)))
    sizes = [dict(zip("nchw", s, strict=True)) for s in ((2, 3, 11, 13), (3, 70, 9, 15), (1, 130, 1, 67), (2, 5, 0, 3))]
    return Case(f"transpose_{dtype}", b.plan(), tuple(sizes), {0: ((0, 1, 0, 1), float("nan"))})


def scaled(dtype: str) -> Case:
    """Columns with a bias, rows with a factor; the last sizes are enough that threads have two vectors each."""
    b = Builder()
    x, bias, factor = b.input(dtype, "b", "d"), b.input(dtype, "d"), b.input(dtype, "b", 1)
    p = Program(dtype)
    value = p("Mul", p("Add", p.load(0), p.load(1)), p.load(2))
    dims = b.dims(x)
    out = b.output(dtype, ("b", "d"), dims)
    b.stages.append(Pointwise(operands(x, bias, factor), p.done(), (Store(out, value),), dims))
    sizes = ({"b": 3, "d": 72}, {"b": 5, "d": 7}, {"b": 1, "d": 24}, {"b": 260, "d": 1032})
    return Case(f"scaled_{dtype}", b.plan(), sizes, {2: ((1, 0), float("nan"))})


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
    return Case("integers", b.plan(), ({"n": 1001}, {"n": 0}, {"n": 1}, {"n": 65538}))


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
    lengths = (768, 77, 1, 64, 301, 8200, 20003) if isinstance(length, str) else (length,)
    sizes = [{"b": 2, "s": 9, "d": d} for d in lengths] + [{"b": 0, "s": 2, "d": 16}]
    sizes += [{"b": 2, "s": 3, "d": d} for d in lengths if d > 256]  # fewer rows than multiprocessors
    sizes += [{"b": 15, "s": 9, "d": d} for d in lengths if 256 < d < 8000]  # more of them than a GPU has
    return Case(f"layer_norm_{dtype}_{length}", b.plan(), tuple(sizes), {0: ((0, 1, 3), float("nan"))})


def far_norm(dtype: str, length: int | str = "d") -> Case:
    """LayerNorm alone, of rows far from zero: the first element of one lies far from its others, another has one
    that is infinite, and of a third the first 300 lie beside the rest."""
    b = Builder()
    inputs = [b.input(dtype, "b", length) for _ in range(3)]
    p = Program()
    value = p("Add", p("Add", p.load(0, dtype), p.load(1, dtype)), p("Add", p.load(2, dtype), p.const(1000.0)))
    centred = p("Sub", value, p("reduce_mean", value))
    variance = p("reduce_mean", p("Mul", centred, centred))
    result = p("Div", centred, p("Sqrt", p("Add", variance, p.const(1e-5))))
    dims = b.dims(inputs[0])
    out = b.output(dtype, ("b", length), dims)
    b.stages.append(Rowwise(operands(*inputs), p.done(), (Store(out, result),), dims))
    lengths = (1, 64, 77, 301, 768, 2056, 2057) if isinstance(length, str) else (length,)
    sizes = [{"b": rows, "d": d} for d in lengths for rows in (3, 150)]  # 150: more than there are multiprocessors
    planted = {0: ((0, 0), 3e4), 1: ((1, 5), float("inf")), 2: ((2, slice(300)), 20.0)}
    return Case(f"layer_norm_far_{dtype}_{length}", b.plan(), tuple(sizes), planted)


def ranges(dtype: str) -> Case:
    """Extremes of rows and what lies between; an operand may have one element for a whole row."""
    b = Builder()
    x, y, turned = b.input(dtype, "b", "k"), b.input(dtype, "b", "j"), b.input(dtype, "k", "b")
    p = Program(dtype)
    value = p("Mul", p("Add", p.load(0), p.load(1)), p("Add", p.load(2), p.const(3.0)))
    least, most = p("reduce_min", value), p("reduce_max", value)
    dims = b.dims(x)
    out = b.output(dtype, ("b", "k"), dims)
    share = p("Div", p("Sub", value, least), p("Sub", most, least))
    b.stages.append(Rowwise(operands(x, y, (turned, (1, 0))), p.done(), (Store(out, share),), dims))
    sizes = ({"b": 3, "k": 96, "j": 1}, {"b": 2, "k": 96, "j": 96}, {"b": 5, "k": 1030, "j": 1})
    return Case(f"ranges_{dtype}", b.plan(), sizes)


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
    few = {"b": 2, "h": 2, "q": 1, "k": 768}  # rows, of a space that has two axes
    sizes = (
        {"b": 2, "h": 3, "q": 5, "k": 128},
        {"b": 1, "h": 2, "q": 3, "k": 37},
        {"b": 2, "h": 1, "q": 1, "k": 9001},
        few,
    )
    return Case(f"softmax_{dtype}", b.plan(), sizes, {1: ((0, 0, 1), 0)})


def looked_up(dtype: str) -> Case:
    """Rows of two tables, by numbers of which some count from the end and some are of no row, and what is left of their
    sum without its mean."""
    b = Builder()
    words, kinds = b.input(dtype, 4, "d"), b.input(dtype, 2, "d")
    numbers, kind = b.input("int64", "b", "s", 1), b.input("int32", "s", 1)
    p = Program(dtype)
    total = p("Add", p.load(0), p.load(1))
    rest = p("Sub", total, p("reduce_mean", total))
    dims = b.op("concat", b.op("take", b.dims(numbers), ints=(0, 1)), b.op("take", b.dims(words), ints=(1,)))
    outs = b.output(dtype, ("b", "s", "d"), dims), b.output(dtype, ("b", "s", "d"), dims)
    tables = Operand(words, rows=2), Operand(kinds, rows=3)
    stores = Store(outs[0], total), Store(outs[1], rest)
    b.stages.append(Rowwise((*tables, *operands(numbers, kind)), p.done(), stores, dims, ("/embed",)))
    sizes = ({"b": 2, "s": 3, "d": 64}, {"b": 3, "s": 5, "d": 7}, {"b": 1, "s": 1, "d": 1}, {"b": 1, "s": 9, "d": 5000})
    return Case(f"looked_up_{dtype}", b.plan(), sizes, {0: ((1, 0), float("nan"))})


def columns(dtype: str, op: str, perm: tuple[int, int, int] = (0, 2, 1)) -> Case:
    """One number of what lies in each column, with a factor for each."""
    b = Builder()
    x, factor = b.input(dtype, "b", "p", "c"), b.input(dtype, "c", 1)
    p = Program(dtype)
    total = p(f"reduce_{op}", p("Add", p("Abs", p.load(0)), p.const(1.0)))
    result = p("Sigmoid", p("Mul", total, p.load(1)))
    dims = b.op("permute", b.dims(x), ints=perm)
    made = b.op("reduce", dims, ints=(1, -1))
    outs = b.output(dtype, ("b", "c", 1), made), b.output(dtype, ("b", "c", 1), made)
    stores = Store(outs[0], result), Store(outs[1], total)
    b.stages.append(Rowwise(operands((x, perm), factor), p.done(), stores, dims, ("/pool",)))
    sizes = ({"b": 2, "p": 35, "c": 72}, {"b": 3, "p": 300, "c": 5}, {"b": 1, "p": 1, "c": 1}, {"b": 0, "p": 3, "c": 2})
    return Case(f"columns_{op}_{dtype}", b.plan(), sizes, {0: ((0, 3, 1), float("nan"))} if op == "mean" else {})
