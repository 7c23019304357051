"""What a plan must not do although it would save a kernel or a copy: the smallest graphs that tell."""

from __future__ import annotations

import numpy as np
import pytest

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.plan import plan_region
from tests.helpers.region_tools import check_model, parsed, whole

SQUARES = "float[B, S, S] x, float[S, S] w"


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def squares(outputs: str, body: str) -> int:
    """The number of kernels of a graph over x [B, S, S] and w [S, S], once its numbers are right."""
    plan = check_model(f"g ({SQUARES}) => ({outputs}) {{ {body} }}", {"x": normal(2, 4, 4), "w": normal(4, 4)})
    return len(plan.stages)


Y, YU = "float[B, S, S] y", "float[B, S, S] y, float[B, S, S] u"


# A kernel cannot need its own result, also by way of another kernel.


def test_an_epilogue_does_not_wait_for_what_needs_the_product() -> None:
    assert squares(Y, "h = MatMul (x, w) r = Softmax <axis = -1> (h) y = Add (h, r)") == 2


def test_a_producer_stays_apart_where_its_reader_needs_it_through_another_kernel() -> None:
    body = "a = Tanh (x) m = MatMul (a, w) t = Transpose <perm = [0, 2, 1]> (m) y = Add (a, t)"
    assert squares(Y, body) == 3


@pytest.mark.parametrize("later_first", [False, True])
def test_kernels_that_read_the_same_stay_apart_where_one_needs_the_other(later_first: bool) -> None:
    body = "a = Tanh (x) m = MatMul (a, w) t = Transpose <perm = [0, 2, 1]> (m) u = Sub (x, t) y = Sin (a)"
    outputs = "float[B, S, S] u, float[B, S, S] y" if later_first else YU
    assert squares(outputs, body) == 3


def test_what_is_read_in_another_order_is_in_memory_before() -> None:
    assert squares(Y, "a = Tanh (x) t = Transpose <perm = [0, 2, 1]> (a) y = Add (a, t)") == 2
    body = "a = Tanh (x) t = Transpose <perm = [0, 2, 1]> (a) u = Sin (a) y = Add (u, t)"
    assert squares(YU, body) == 2


# Slices


@pytest.mark.parametrize(
    ("first", "second"),
    [((3, 21, 2), (1, 8, 3)), ((2, 24, 1), (5, 100, 4)), ((20, 1, -3), (1, 6, 2)), ((1, 23, 4), (5, 0, -2))],
)
def test_a_slice_of_a_slice(first: tuple[int, int, int], second: tuple[int, int, int]) -> None:
    names = [f"c{i}" for i in range(6)]
    constants = " ".join(
        f"{n} = Constant <value_ints = [{v}]> ()" for n, v in zip(names, (*first, *second), strict=True)
    )
    count = len(range(24)[slice(*first)][slice(*second)])
    text = f"""g (float[B, 24, 2] x) => (float[B, {count}, 2] y) {{
        axis = Constant <value_ints = [1]> () {constants}
        s = Slice (x, c0, c1, axis, c2) t = Slice (s, c3, c4, axis, c5) y = Tanh (t)
    }}"""
    assert len(check_model(text, {"x": normal(3, 24, 2)}).stages) == 1


def gathered(*indices: int) -> str:
    return f"""g (float[5, 4] x) => (float[{len(indices)}, 4] y) {{
        i = Constant <value_ints = [{", ".join(map(str, indices))}]> () a = Gather (x, i) y = Tanh (a)
    }}"""


@pytest.mark.parametrize(
    "indices", [(0, 1, 2), (4, 3), (2, 1, 0), (-3, -2, -1), (-1, -3, -5), (-5, -3), (3,), (-2,), (0, 2, 4)]
)
def test_gather_of_evenly_spaced_indices_is_a_slice(indices: tuple[int, ...]) -> None:
    assert len(check_model(gathered(*indices), {"x": normal(5, 4)}).stages) == 1


@pytest.mark.parametrize("indices", [(-1, 0), (0, -1), (-2, -1, 0, 1), (1, 0, -1)])
def test_gather_of_mixed_signs_is_no_slice(indices: tuple[int, ...]) -> None:
    with pytest.raises(Unsupported) as refused:
        plan_region(whole(parsed(gathered(*indices))))
    assert refused.value.code == codes.ATTRIBUTE


def test_parts_of_an_axis_that_does_not_divide() -> None:
    text = """g (float[B, 7] x) => (float[B, 3] p, float[B, 3] q, float[B, 1] r) {
        a, b, c = Split <axis = 1, num_outputs = 3> (x) p = Tanh (a) q = Tanh (b) r = Tanh (c)
    }"""
    check_model(text, {"x": normal(2, 7)})


def test_every_other_one_of_joined_values() -> None:
    """As many as the first of them has, from where it begins."""
    text = """g (float[B, 2] a, float[B, 2] b) => (float[B, 2] y) {
        zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
        two = Constant <value_ints = [2]> () four = Constant <value_ints = [4]> ()
        c = Concat <axis = 1> (a, b) t = Slice (c, zero, four, one, two) y = Tanh (t)
    }"""
    check_model(text, {"a": normal(2, 2), "b": normal(2, 2) + 1})


def test_every_other_one_of_an_axis_of_any_size_is_another_size() -> None:
    text = """g (float[N, 3] x) => (float[N, 3] u, float[M, 3] y) {
        zero = Constant <value_ints = [0]> () two = Constant <value_ints = [2]> ()
        end = Constant <value_ints = [9223372036854775807]> () u = Tanh (x) s = Slice (x, zero, end, zero, two)
        y = Sin (s)
    }"""
    assert len(check_model(text, {"x": normal(5, 3)}).stages) == 2


def test_joined_values_whose_axis_is_split_across_them() -> None:
    text = """g (float[B, 3] a, float[B, 5] b) => (float[B, 2, 4] y) {
        shape = Constant <value_ints = [0, 2, 4]> () c = Concat <axis = 1> (a, b) r = Reshape (c, shape) y = Tanh (r)
    }"""
    check_model(text, {"a": normal(2, 3), "b": normal(2, 5)})


# Sizes that may be 1: what is broadcast has no parts.


@pytest.mark.parametrize("size", [8, 1])
def test_joined_values_and_an_operand_that_may_be_broadcast(size: int) -> None:
    text = """g (float[B, 4] a, float[B, 4] b, float[B, N] z) => (float[B, 8] y) {
        c = Concat <axis = 1> (a, b) d = Add (c, z) y = Tanh (d)
    }"""
    check_model(text, {"a": normal(2, 4), "b": normal(2, 4), "z": normal(2, size)})


@pytest.mark.parametrize("size", [12, 1])
def test_merged_axes_of_joined_values_and_an_operand_that_may_be_broadcast(size: int) -> None:
    text = """g (float[B, 2, 3] a, float[B, 2, 3] b, float[B, N] z) => (float[B, 12] y) {
        shape = Constant <value_ints = [0, 12]> ()
        c = Concat <axis = 2> (a, b) r = Reshape (c, shape) d = Add (r, z) y = Tanh (d)
    }"""
    check_model(text, {"a": normal(2, 2, 3), "b": normal(2, 2, 3), "z": normal(2, size)})


@pytest.mark.parametrize("size", [8, 1])
def test_a_slice_of_a_sum_with_an_operand_that_may_be_broadcast(size: int) -> None:
    text = """g (float[B, 8] x, float[B, N] z) => (float[B, 4] y) {
        one = Constant <value_ints = [1]> () from = Constant <value_ints = [4]> () to = Constant <value_ints = [8]> ()
        d = Add (x, z) s = Slice (d, from, to, one) y = Tanh (s)
    }"""
    check_model(text, {"x": normal(2, 8), "z": normal(2, size)})


@pytest.mark.parametrize("size", [1, 3])
def test_a_slice_of_an_axis_that_may_have_one_element(size: int) -> None:
    text = """g (float[N, 4] x, float[N, 4] z) => (float[M, 4] y) {
        zero = Constant <value_ints = [0]> () one = Constant <value_ints = [1]> ()
        d = Add (x, z) s = Slice (d, zero, one, zero) y = Tanh (s)
    }"""
    check_model(text, {"x": normal(size, 4), "z": normal(size, 4)})


# Attributes that change what an operator means


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax"])
def test_a_reduction_over_no_axes_may_be_none(op: str) -> None:
    text = f"g (float[2, 3] x) => (float[2, 3] y) {{ a = {op} <noop_with_empty_axes = 1> (x) y = Tanh (a) }}"
    check_model(text, {"x": normal(2, 3)})
    text = f"g (float[2, 3] x) => (float[1, 1] y) {{ a = {op} (x) y = Tanh (a) }}"
    check_model(text, {"x": normal(2, 3)})


def test_a_sum_over_an_axis_of_one_is_none() -> None:
    text = """g (float[N, 1, M] x) => (float[N, M] y) {
        a = Constant <value_ints = [1]> () s = ReduceSum <keepdims = 0> (x, a) y = Tanh (s)
    }"""
    check_model(text, {"x": normal(2, 1, 3)})


def test_a_size_of_zero_may_be_meant() -> None:
    text = """g (float[2, 0] x) => (float[0, 5] y) {
        shape = Constant <value_ints = [0, 5]> () a = Tanh (x) y = Reshape <allowzero = 1> (a, shape)
    }"""
    check_model(text, {"x": normal(2, 0)})
    text = """g (float[2, 3] x) => (float[2, 3] y) {
        shape = Constant <value_ints = [0, 3]> () a = Tanh (x) y = Reshape (a, shape)
    }"""
    check_model(text, {"x": normal(2, 3)})


def test_a_sum_of_exponentials_of_large_numbers() -> None:
    text = "g (float[B, 4] x) => (float[B, 1] y) { a = Constant <value_ints = [-1]> () y = ReduceLogSumExp (x, a) }"
    check_model(text, {"x": normal(2, 4) + 2000})


def test_group_normalization_of_weights_by_group_is_turned_down() -> None:
    text = """g (float[N, 4, 6] x, float[2] s, float[2] b) => (float[N, 4, 6] y) {
        y = GroupNormalization <num_groups = 2> (x, s, b)
    }"""
    with pytest.raises(Unsupported) as refused:
        plan_region(whole(parsed(text, opset=18)))
    assert refused.value.code == codes.OPSET
