"""Plans of CUDA attention stages, built by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fusion_cli.plan.attention_kind import kind_of
from fusion_cli.planir.stages import Attention, Instr, Operand, Store
from tests.helpers.cuda_case import Case
from tests.helpers.plan_builder import Builder, Program


def attention(
    dtype: str, depth: int, value_depth: int | None = None, prob: str = "", transposed: bool = False, sink: bool = False
) -> Case:
    """Heads split and merged by permutations, an additive mask, a bool mask; `prob`: "guard", "general", "empty"; with
    `sink` one score more per row, a number per head."""
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
    sinks = [Operand(b.input(dtype, "h", 1, 1))] if sink else []
    more = p.load(5, dtype) if sink else -1
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
                Operand(k, (0, 1, 3, 2) if transposed else (0, 2, 1, 3)),
                Operand(v, (0, 2, 1, 3)),
                Operand(bias),
                Operand(mask),
                *sinks,
            ),
            p.done(),
            (Store(out, 0),),
            dims,
            ("/attn/Softmax",),
            scale=depth**-0.5,
            score=score,
            sink=more,
            prob_program=r.done(),
            prob=root,
            kind=kind_of(p.done(), score, r.done(), root, prob == "empty", False),
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
    forms = (prob, "kt" * transposed, "sink" * sink)
    name = "_".join(("attention", dtype, str(depth), str(dv), *filter(None, forms)))
    return Case(name, b.plan(), sizes, {4: ((0, 0, 0), 0)})


HIDDEN = {
    "right": slice(70, None),
    "left": slice(0, 200),
    "middle": slice(100, 390),
    "every_other": slice(0, None, 2),
    "all": slice(None),
    "none": slice(None),
}
"""Keys of the first batch that a mask hides from all queries; with "none" it shows them all."""


def masked(
    dtype: str,
    depth: int,
    form: str,
    hidden: str,
    *,
    by_query: bool = False,
    by_head: bool = False,
    later: bool = False,
) -> Case:
    """Grouped heads with one mask: "bool" puts -inf and "lowest" the least number in the place of hidden scores,
    "added" adds -inf to them and "added_lowest" the least number of the type; with `later`, keys later than the query
    are hidden besides."""
    b = Builder()
    q = b.input(dtype, "b", "h", "g", "q", depth)
    k, v = (b.input(dtype, "b", "h", 1, "k", depth) for _ in range(2))
    adds, least = form.startswith("added"), float(np.finfo(np.float16 if dtype == "float16" else np.float32).min)
    mask_type = dtype if adds else "bool"
    mask = b.input(mask_type, "b", 1, "g" if by_head else 1, "q" if by_query else 1, "k")
    p = Program()
    if adds:
        score = p("Add", p("acc"), p.load(3, dtype))
    else:
        score = p("Where", p.load(3, "bool"), p("acc"), p.const(-math.inf if form == "bool" else least))
    if later:
        test = p("Greater", p("index", dtype="int64", value=-1), p("index", dtype="int64", value=-2), dtype="bool")
        score = p("Where", test, p.const(-math.inf), score)
    _attend(b, dtype, ("b", "h", "g", "q", depth), (q, k, v, mask), p.done(), score, grouped=True)
    sizes = (
        {"b": 2, "h": 1, "g": 2, "q": 70, "k": 264},
        {"b": 1, "h": 2, "g": 4, "q": 5, "k": 333},
        {"b": 2, "h": 1, "g": 1, "q": 140, "k": 75},
        {"b": 1, "h": 1, "g": 2, "q": 33, "k": 520},
        {"b": 1, "h": 1, "g": 4, "q": 1, "k": 1100},
    )
    value = 0.0 if not adds else -math.inf if form == "added" else least
    if hidden == "none":
        value = 0.0 if adds else 1.0
    name = "_".join(
        (
            "masked",
            dtype,
            str(depth),
            form,
            hidden,
            *["by_query"] * by_query,
            *["by_head"] * by_head,
            *["later"] * later,
        )
    )
    return Case(name, b.plan(), sizes, {3: ((0, 0, 0, slice(None), HIDDEN[hidden]), value)})


def alibi(dtype: str, depth: int) -> Case:
    """Grouped heads split and merged by permutations, scores that fall with the distance by a slope of the head's."""
    b = Builder()
    q = b.input(dtype, "b", "q", "h", "g", depth)
    k, v = (b.input(dtype, "b", "k", "h", 1, depth) for _ in range(2))
    p = Program()
    key, head, group = (p("Cast", p("index", dtype="int64", value=i)) for i in (-1, -4, -3))
    slope = p("Mul", p("Add", head, p("Mul", group, p.const(0.5))), p.const(0.01))
    score = p("Add", p("acc"), p("Mul", slope, key))
    turned = (0, 2, 3, 1, 4)
    dims = b.op("permute", b.dims(q), ints=turned)
    out = b.output(dtype, ("b", "q", "h", "g", depth), b.dims(q))
    kind = kind_of(p.done(), score, (), 0, False, True)
    operands = tuple(Operand(t, turned) for t in (q, k, v))
    b.stages.append(
        Attention(
            operands,
            p.done(),
            (Store(out, 0),),
            dims,
            scale=depth**-0.5,
            score=score,
            kind=kind,
            out_perm=(0, 3, 1, 2, 4),
        )
    )
    sizes = (
        {"b": 2, "h": 2, "g": 4, "q": 5, "k": 300},
        {"b": 1, "h": 3, "g": 3, "q": 1, "k": 1},
        {"b": 1, "h": 2, "g": 7, "q": 1, "k": 700},
        {"b": 1, "h": 2, "g": 2, "q": 20, "k": 40},
    )
    return Case(f"alibi_{dtype}_{depth}", b.plan(), sizes)


def grouped() -> list[Case]:
    return [
        alibi("float16", 128),
        alibi("bfloat16", 40),
        alibi("float16", 20),  # rows that cannot be copied in whole pieces
        masked("float16", 64, "bool", "right"),
        masked("float16", 64, "bool", "all"),
        masked("float16", 32, "lowest", "left"),
        masked("bfloat16", 96, "lowest", "all"),
        masked("bfloat16", 128, "added", "left"),
        masked("float16", 32, "added", "left", by_head=True),
        masked("float16", 64, "added_lowest", "left"),
        masked("float16", 64, "added_lowest", "all"),
        masked("float16", 64, "added_lowest", "middle"),
        masked("float16", 64, "added", "every_other"),
        masked("bfloat16", 128, "added_lowest", "right"),
        masked("float16", 64, "added", "right", by_query=True),
        masked("bfloat16", 64, "lowest", "left", by_query=True),
        masked("float16", 64, "bool", "none", by_query=True),
        masked("bfloat16", 128, "added", "none"),
        masked("float16", 64, "lowest", "left", later=True),
        windows("float16", 32),
        windows("bfloat16", 64),
        windows("float32", 32),
        shown("bool", "middle"),
        shown("added_lowest", "right"),
        overcome("left"),
        overcome("middle"),
        padded("float16", 64, "added_lowest", "right"),
        padded("float16", 128, "added", "left"),
        padded("bfloat16", 64, "bool", "all"),
        padded("float16", 64, "bool", "right", later=True),
        padded("float16", 64, "lowest", "right"),
        padded_with_nan(),
        masked("float32", 64, "lowest", "left"),
        masked("float32", 32, "added", "all", by_head=True),
        masked("float32", 128, "added", "right", by_query=True),
        alibi("float32", 64),
    ]


def padded(dtype: str, depth: int, form: str, hidden: str, *, later: bool = False) -> Case:
    """A mask that has a row for each query, all of them the same."""
    case = masked(dtype, depth, form, hidden, by_query=True, later=later)
    return replace(case, name=case.name.replace("by_query", "padded"), repeated=frozenset({3}))


def padded_with_nan() -> Case:
    """One key's score is no number in the first batch, and none of its results are."""
    case = padded("float16", 64, "added", "right")
    return replace(case, name="masked_padded_nan", planted={3: ((0, 0, 0, slice(None), 3), math.nan)})


def causal(dtype: str, depth: int = 64) -> Case:
    """Positions instead of a mask tensor; contiguous heads."""
    p = Program()
    later = p("Greater", p("index", dtype="int64", value=-1), p("index", dtype="int64", value=-2), dtype="bool")
    score = p("Where", later, p.const(float("-inf")), p("acc"))
    return _heads(f"causal_{dtype}_{depth}", dtype, depth, p.done(), score)


LOWEST = -65504.0


def lowered(dtype: str, depth: int = 64, low: float = LOWEST, *, put: bool = False, flipped: bool = False) -> Case:
    """Grouped heads; a number is added to the scores of later keys, or `put` in their place, told by either comparison.
    Queries and keys need not be equally many."""
    b = Builder()
    q = b.input(dtype, "b", "h", "g", "q", depth)
    k, v = (b.input(dtype, "b", "h", 1, "k", depth) for _ in range(2))
    p = Program()
    key, query = (p("index", dtype="int64", value=i) for i in (-1, -2))
    acc, number = p("acc"), p.const(low)
    if flipped:
        later = p("Not", p("GreaterOrEqual", query, key, dtype="bool"), dtype="bool")
        score = p("Where", later, number, acc) if put else p("Add", acc, p("Where", later, number, p.const(0.0)))
    else:
        seen = p("LessOrEqual", key, query, dtype="bool")
        score = p("Where", seen, acc, number) if put else p("Add", p("Where", seen, p.const(0.0), number), acc)
    _attend(b, dtype, ("b", "h", "g", "q", depth), (q, k, v), p.done(), score, grouped=True)
    sizes = (
        {"b": 2, "h": 1, "g": 2, "q": 70, "k": 264},
        {"b": 1, "h": 2, "g": 1, "q": 257, "k": 257},
        {"b": 1, "h": 1, "g": 7, "q": 1000, "k": 1000},
        {"b": 1, "h": 2, "g": 4, "q": 5, "k": 333},
        {"b": 1, "h": 1, "g": 2, "q": 300, "k": 75},
    )
    return Case("_".join(("lowered", dtype, str(depth), *["put"] * put, *["flipped"] * flipped)), b.plan(), sizes)


def lowered_and_counted(value: float, *, put: bool = False) -> Case:
    """Later keys count all the same: some are `value`, and queries so large that their scores are above the others'; or
    a number that earlier keys' scores are below is in the place of theirs."""
    case, every = lowered("float16", put=put), slice(None)
    queries = {0: ((every,) * 5, 60.0)}
    keys = (every, every, every, slice(0, None) if put else slice(200, 203))
    name = "lowered_counted" + "_put" * put + f"_{value:g}".replace("-", "minus")
    return replace(case, name=name, planted=queries | {1: (keys, value)})


def lowering() -> list[Case]:
    return [
        lowered("float16"),
        lowered("float16", 128, flipped=True),
        lowered("bfloat16", 128, float(np.finfo(np.float32).min)),
        lowered("float16", put=True),
        lowered("bfloat16", 40, put=True, flipped=True),
        lowered("float16", 96),
        lowered("float32"),
        lowered("float32", 128, -1e9, put=True),
        lowered_and_counted(200.0),
        lowered_and_counted(math.inf),
        lowered_and_counted(-200.0, put=True),
    ]


def window(dtype: str, depth: int = 64) -> Case:
    """Keys more than 150 before the query are hidden by positions, and those after it, by the least number."""
    p = Program()
    key, query = (p("index", dtype="int64", value=i) for i in (-1, -2))
    passed = p("Sub", p("Cast", query), p("Cast", key))
    score = p("Where", p("Greater", key, query, dtype="bool"), p.const(float(np.finfo(np.float16).min)), p("acc"))
    score = p("Where", p("Greater", passed, p.const(150.0), dtype="bool"), p.const(-math.inf), score)
    return _heads(f"window_{dtype}_{depth}", dtype, depth, p.done(), score)


def windows(dtype: str, depth: int) -> Case:
    """Attention in windows: scores with a bias for each head and another for each window, whose rows lie unaligned."""
    b = Builder()
    q, k, v = (b.input(dtype, "b", "g", "h", n, depth) for n in ("q", "k", "k"))
    by_head, by_window = b.input(dtype, "h", "q", "k"), b.input(dtype, "g", 1, "q", "k")
    p = Program()
    score = p("Add", p("Add", p("acc"), p.load(3, dtype)), p.load(4, dtype))
    _attend(b, dtype, ("b", "g", "h", "q", depth), (q, k, v, by_head, by_window), p.done(), score, grouped=False)
    sizes = (
        {"b": 2, "g": 3, "h": 3, "q": 49, "k": 49},
        {"b": 1, "g": 2, "h": 2, "q": 64, "k": 64},
        {"b": 1, "g": 2, "h": 1, "q": 65, "k": 66},
        {"b": 1, "g": 2, "h": 1, "q": 17, "k": 7},
        {"b": 1, "g": 1, "h": 2, "q": 50, "k": 1021},
    )
    return Case(f"masked_windows_{dtype}_{depth}", b.plan(), sizes)


def shown(form: str, hidden: str) -> Case:
    """A mask by key that leaves all other scores as they are: of tiles of keys it hides all, some or none."""
    case = masked("float16", 64, form, hidden)
    return replace(case, name=f"{case.name}_shown", shown=frozenset({3}))


def overcome(hidden: str) -> Case:
    """The least number is added to the scores of some keys of the first batch, the highest all the same."""
    case = masked("float16", 64, "added_lowest", hidden)
    every = slice(None)
    large = {0: ((every,) * 5, 60.0), 1: ((0, every, every, HIDDEN[hidden]), 200.0)}
    return replace(case, name=f"masked_overcome_{hidden}", planted=case.planted | large)


def bare(dtype: str, depth: int = 64) -> Case:
    """No mask at all, the probabilities as they are."""
    return _heads(f"bare_{dtype}_{depth}", dtype, depth, (Instr("acc", (), "float32"),), 0)


def _heads(name: str, dtype: str, depth: int, program: tuple[Instr, ...], score: int) -> Case:
    b = Builder()
    q, k, v = (b.input(dtype, "b", "h", "s", depth) for _ in range(3))
    _attend(b, dtype, ("b", "h", "s", depth), (q, k, v), program, score, grouped=False)
    return Case(name, b.plan(), ({"b": 2, "h": 2, "s": 200}, {"b": 1, "h": 1, "s": 1}, {"b": 1, "h": 2, "s": 389}))


def _attend(
    b: Builder,
    dtype: str,
    axes: tuple[str | int, ...],
    tensors: Sequence[int],
    program: tuple[Instr, ...],
    score: int,
    *,
    grouped: bool,
) -> None:
    """The stage, of queries, keys, values and what the program reads, as they lie; its result has these axes, the
    depth of heads the last."""
    dims, depth = b.dims(tensors[0]), axes[-1]
    assert isinstance(depth, int)
    out = b.output(dtype, axes, dims)
    kind, operands = kind_of(program, score, (), 0, False, grouped), tuple(map(Operand, tensors))
    b.stages.append(Attention(operands, program, (Store(out, 0),), dims, scale=depth**-0.5, score=score, kind=kind))
