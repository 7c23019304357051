"""Heads of queries that share keys and values: nothing is repeated in memory, and new ones go straight into a cache."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fusion_cli.planir.stages import Attention, Plan, Pointwise
from tests.helpers.region_tools import check_model

RNG = np.random.default_rng(5)
CACHED, TOKENS = 6, 7
HEADS = {"q": (2, 6, 1, 8), "pk": (2, 3, CACHED, 8), "nk": (2, 3, 1, 8), "pv": (2, 3, CACHED, 8), "nv": (2, 3, 1, 8)}
CONSTANTS = """two = Constant <value = int64[1] {2}> () c = Constant <value = float {0.6}> ()
    five = Constant <value = int64[5] {2, 3, 2, 7, 8}> () four = Constant <value = int64[4] {2, 6, 7, 8}> ()
    three = Constant <value = int64[3] {12, 7, 8}> () turned = Constant <value = int64[4] {2, 6, 8, 7}> ()"""
JOINED = "k = Concat <axis = -2> (pk, nk) v = Concat <axis = 2> (pv, nv)"
KEYS = {
    "straight": "kf = Reshape (ke, four) kt = Transpose <perm = [0, 1, 3, 2]> (kf) s = MatMul (qs, kt)",
    "scaled": "kf = Reshape (ke, four) kt = Transpose <perm = [0, 1, 3, 2]> (kf) ks = Mul (kt, c) s = MatMul (qs, ks)",
    # As PyTorch's exporter does.
    "by way of three axes": "kf = Reshape (ke, three) kt = Transpose <perm = [0, 2, 1]> (kf) kr = Reshape (kt, turned) "
    "ks = Mul (kr, c) s = MatMul (qs, ks)",
}
RESULTS = "float[2, 6, 1, 8] y, float[2, 3, 7, 8] k, float[2, 3, 7, 8] v"


def graph(keys: str, shapes: dict[str, tuple[int, ...]] = HEADS, results: str = RESULTS, joined: str = JOINED) -> str:
    inputs = ", ".join(f"float[{', '.join(map(str, shape))}] {name}" for name, shape in shapes.items())
    return f"""g ({inputs}) => ({results}) {{ {CONSTANTS} {joined}
        ku = Unsqueeze (k, two) ke = Expand (ku, five) vu = Unsqueeze (v, two) ve = Expand (vu, five)
        vf = Reshape (ve, four) qs = Mul (q, c) {keys} p = Softmax <axis = -1> (s) y = MatMul (p, vf) }}"""


def arrays(shapes: dict[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    return {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def attention_of(plan: Plan) -> Attention:
    (attention,) = (s for s in plan.stages if isinstance(s, Attention))
    return attention


def largest_temporary(plan: Plan) -> int:
    return max((math.prod(map(int, t.shape)) for t in plan.tensors if t.role == "temp"), default=0)


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_nothing_is_repeated_in_memory(keys: str) -> None:
    plan = check_model(graph(keys), arrays(HEADS))
    assert attention_of(plan).kind.grouped
    assert {type(s) for s in plan.stages} == {Attention, Pointwise}, "the caches are copied, and nothing else"
    assert largest_temporary(plan) == 0


def one_head(shapes: dict[str, tuple[int, ...]]) -> Plan:
    """Keys and values repeated for every head, and no axes merged."""
    inputs = ", ".join(f"float[{', '.join(map(str, shape))}] {name}" for name, shape in shapes.items())
    text = f"""g ({inputs}) => (float[2, 6, 1, 8] y) {{ {CONSTANTS}
        ke = Expand (k, four) kt = Transpose <perm = [0, 1, 3, 2]> (ke) s = MatMul (q, kt) p = Softmax <axis = -1> (s)
        ve = Expand (v, four) y = MatMul (p, ve) }}"""
    return check_model(text, arrays(shapes))


def test_one_head_of_keys_for_all_queries() -> None:
    plan = one_head({"q": (2, 6, 1, 8), "k": (2, 1, 7, 8), "v": (2, 1, 7, 8)})
    assert [type(s) for s in plan.stages] == [Attention]
    assert attention_of(plan).kind.grouped


def test_what_the_queries_do_not_have_is_repeated() -> None:
    """One batch of queries for two of keys: without them the result would be of one."""
    shapes = {"q": (1, 6, 1, 8), "k": (1, 3, 7, 8), "v": (1, 3, 7, 8)}
    merged = check_model(graph(KEYS["straight"], shapes, "float[2, 6, 1, 8] y", ""), arrays(shapes))
    for plan in (merged, one_head(shapes | {"k": (1, 1, 7, 8), "v": (1, 1, 7, 8)})):
        attention = attention_of(plan)
        assert plan.viewed(attention.operands[attention.k])[0] == 2


def test_a_rotary_embedding_goes_into_the_queries_of_a_group() -> None:
    """Halves that are joined for an attention are stored where it reads them, and moved no more."""
    turn = """one = Constant <value = int64[1] {0}> () half = Constant <value = int64[1] {4}> ()
        all = Constant <value = int64[1] {9}> () last = Constant <value = int64[1] {-1}> ()
        u = Slice (q0, one, half, last) w = Slice (q0, half, all, last) n = Neg (w)
        t = Concat <axis = -1> (n, u) a = Mul (q0, cos) b = Mul (t, sin) q = Add (a, b)"""
    shapes = {"q0": (2, 6, 1, 8), "cos": (1, 1, 1, 8), "sin": (1, 1, 1, 8), "k": (2, 3, 7, 8), "v": (2, 3, 7, 8)}
    plan = check_model(graph(KEYS["straight"], shapes, "float[2, 6, 1, 8] y", turn), arrays(shapes))
    assert [type(s) for s in plan.stages] == [Pointwise, Attention]


SINGLE = """one = Constant <value = int64[1] {2}> () c = Constant <value = float {0.6}> ()
    five = Constant <value = int64[5] {2, 3, 2, 1, 8}> () four = Constant <value = int64[4] {2, 6, 1, 8}> ()"""


def test_a_single_key_of_halves_is_not_repeated_in_memory() -> None:
    """Its transpose is a reshape."""
    text = f"""g (float[2, 6, 1, 8] q, float[2, 3, 1, 4] a, float[2, 3, 1, 4] b, float[2, 3, 1, 8] v)
        => (float[2, 6, 1, 8] y) {{ {SINGLE} h = Mul (a, c) n = Neg (b) k = Concat <axis = -1> (n, h)
        ku = Unsqueeze (k, one) ke = Expand (ku, five) kf = Reshape (ke, four) kt = Transpose <perm = [0, 1, 3, 2]> (kf)
        vu = Unsqueeze (v, one) ve = Expand (vu, five) vf = Reshape (ve, four)
        s = MatMul (q, kt) p = Softmax <axis = -1> (s) y = MatMul (p, vf) }}"""
    shapes = {"q": (2, 6, 1, 8), "a": (2, 3, 1, 4), "b": (2, 3, 1, 4), "v": (2, 3, 1, 8)}
    plan = check_model(text, arrays(shapes))
    assert [type(s) for s in plan.stages] == [Pointwise, Attention]
    assert attention_of(plan).kind.grouped
    assert largest_temporary(plan) == 2 * 3 * 8


def test_neighbours_that_do_not_need_one_another_are_a_group() -> None:
    """Queries and keys of their own sizes; and not what is made of them."""
    text = """g (float[2, 6, 1, 8] q0, float[2, 3, 1, 8] k0, float[2, 3, 7, 8] v, float[2, 3, 6, 8] old, float[8] w)
        => (float[2, 6, 1, 8] q, float[2, 3, 7, 8] k, float[2, 3, 7, 8] n) {
        q = Mul (q0, w) new = Mul (k0, w) k = Concat <axis = -2> (old, new) n = Add (k, v) }"""
    shapes = {"q0": (2, 6, 1, 8), "k0": (2, 3, 1, 8), "v": (2, 3, 7, 8), "old": (2, 3, 6, 8), "w": (8,)}
    plan = check_model(text, arrays(shapes))
    assert [g for g in plan.groups if g.kind == "elements"]
    for group in plan.groups:
        written = [{s.tensor for s in plan.stages[i].stores} for i in group.stages]
        read = [{o.tensor for o in plan.stages[i].operands} for i in group.stages]
        for n, mine in enumerate(written):
            assert all(mine.isdisjoint(theirs) for m, theirs in enumerate(read) if m != n)
