"""A numpy interpreter of plans: the executable specification of `fusion_cli.planir.stages`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import ml_dtypes
import numpy as np

from fusion_cli.plan.shape_program import run_shape_program
from fusion_cli.planir.stages import Attention, Conv, Instr, Linear, Moments, Plan, Pool, Stage

Array = np.ndarray

_FLOATS = ("float32", "float16", "bfloat16")


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def interpret(plan: Plan, inputs: Sequence[Array], compute: type = np.float64) -> list[Array]:
    """Run a plan; floats are computed as `compute` and rounded to a tensor's type when stored."""
    reads = {slot: [int(i) for i in inputs[slot].reshape(-1)] for slot in plan.host_inputs}
    host = run_shape_program(plan.shape_program, {i: x.shape for i, x in enumerate(inputs)}, reads)
    memory: dict[int, Array] = {}
    for slot, index in enumerate(plan.inputs):
        if index >= 0:
            memory[index] = inputs[slot]
    state = _State(plan, host, memory, compute)
    for stage in plan.stages:
        state.run(stage)
    return [memory[i].reshape(host[plan.tensors[i].dims]) for i in plan.outputs]


class _State:
    def __init__(self, plan: Plan, host: list[tuple[int, ...]], memory: dict[int, Array], compute: type) -> None:
        self.plan, self.host, self.memory, self.compute = plan, host, memory, compute
        self.buffers: dict[int, int] = {}

    def view(self, index: int) -> Array:
        """A tensor's elements where they lie in memory."""
        tensor = self.plan.tensors[index]
        if tensor.is_own:
            return self.memory[index].reshape(self.host[tensor.dims])
        found = self.view(tensor.slot)
        if tensor.role == "alias":
            return found.reshape(self.host[tensor.dims])
        for axis, count in enumerate(self.host[tensor.dims]):
            start, step = self.host[tensor.starts][axis], self.host[tensor.steps][axis]
            places = range(start, start + count * step, step)
            assert not count or (min(places) >= 0 and max(places) < found.shape[axis]), "a view outside its tensor"
            found = np.moveaxis(np.moveaxis(found, axis, 0)[start::step][:count], 0, axis)
        return found

    def read(self, stage: Stage, operand: int) -> Array:
        item = stage.operands[operand]
        tensor, root = self.plan.tensors[item.tensor], self.plan.root(item.tensor)
        if self.plan.tensors[root].role == "temp":
            assert self.buffers[self.plan.tensors[root].slot] == root, "a workspace buffer was overwritten"
        array = self.view(item.tensor)
        if tensor.dtype in _FLOATS:
            array = array.astype(self.compute)
        if item.rows is not None:
            numbers = self.read(stage, item.rows)[..., 0]
            array = array[np.clip(np.where(numbers < 0, numbers + len(array), numbers), 0, len(array) - 1)]
        return array if item.perm is None else array.transpose(item.perm)

    def write(self, index: int, value: Array, dims: tuple[int, ...]) -> None:
        tensor, root = self.plan.tensors[index], self.plan.root(index)
        shape = self.host[tensor.dims]
        if math.prod(shape) != math.prod(dims):
            dims = (*dims[:-1], 1)  # a number per row
        assert math.prod(shape) == math.prod(dims), f"stores {dims} to {shape}"
        home = self.plan.tensors[root]
        if home.role == "temp":
            self.buffers[home.slot] = root
        if root not in self.memory or self.memory[root].shape != self.host[home.dims]:
            self.memory[root] = np.zeros(self.host[home.dims], numpy_dtype(tensor.dtype))
        full = np.broadcast_to(value, dims).astype(numpy_dtype(tensor.dtype)).reshape(shape)
        place = self.view(index)
        assert np.shares_memory(place, self.memory[root]) or not place.size
        place[...] = full

    def run(self, stage: Stage) -> None:
        dims = self.host[stage.dims]
        if isinstance(stage, Attention):
            self.attention(stage, dims)
            return
        acc = None
        if isinstance(stage, Linear):
            a, b = self.read(stage, stage.a), self.read(stage, stage.b)
            a, b = a.swapaxes(-1, -2) if stage.trans_a else a, b.swapaxes(-1, -2) if stage.trans_b else b
            acc = stage.alpha * (a @ b)
        elif isinstance(stage, Conv):
            x, w = self.read(stage, stage.x), self.read(stage, stage.w)
            acc = _convolve(stage, np.moveaxis(x, -1, 1) if stage.channels_last else x, w, stage.image(dims))
            if stage.bias >= 0:
                acc = acc + self.read(stage, stage.bias).reshape((-1,) + (1,) * (len(dims) - 2))
            acc = np.moveaxis(acc, 1, -1) if stage.channels_last else acc
        elif isinstance(stage, Pool):
            acc = _pool(stage, self.read(stage, stage.x))
        elif isinstance(stage, Moments):
            acc = _moments(stage, self.read(stage, stage.x))
        if acc is not None:
            assert acc.shape == dims, f"{acc.shape} is not {dims}"
        values = self.program(stage, stage.program, dims, acc)
        for store in stage.stores:
            self.write(store.tensor, values[store.instr], dims)

    def attention(self, stage: Attention, dims: tuple[int, ...]) -> None:
        q, k, v = (self.read(stage, i) for i in (stage.q, stage.k, stage.v))
        acc = stage.scale * (q @ k.swapaxes(-1, -2))
        space = (*dims[:-1], acc.shape[-1])
        values = self.program(stage, stage.program, space, acc)
        score = np.broadcast_to(values[stage.score], space)
        sink = np.full((), -np.inf) if stage.sink < 0 else values[stage.sink]
        assert sink.ndim == 0 or sink.shape[-1] == 1, "a number per row"
        highest = np.maximum(score.max(axis=-1, keepdims=True, initial=-np.inf), sink)
        prob = np.exp(score - highest)
        prob = prob / (prob.sum(axis=-1, keepdims=True) + np.exp(sink - highest) * (stage.sink >= 0))
        if stage.kind.probabilities == "zero_empty":
            prob = np.where(np.isneginf(score).all(axis=-1, keepdims=True), 0.0, prob)
        if stage.prob_program:
            prob = self.program(stage, stage.prob_program, space, prob)[stage.prob]
        out = np.broadcast_to(np.broadcast_to(prob, space) @ v, dims)
        if stage.out_perm is not None:
            out = out.transpose(stage.out_perm)
        (store,) = stage.stores
        self.write(store.tensor, out, out.shape)

    def program(self, stage: Stage, program: Sequence[Instr], dims: tuple[int, ...], acc: Array | None) -> list[Array]:
        values: list[Array] = []
        for instr in program:
            args = [values[a] for a in instr.args]
            if instr.op == "load":
                assert isinstance(instr.value, int)
                value = self.read(stage, instr.value)
                assert np.broadcast_shapes(value.shape, dims) == dims, f"{value.shape} does not fit {dims}"
            elif instr.op == "acc":
                assert acc is not None
                value = acc
            elif instr.op == "const":
                value = np.asarray(instr.value, self.compute if instr.dtype in _FLOATS else instr.dtype)
            elif instr.op == "index":
                assert isinstance(instr.value, int)
                value = np.arange(dims[instr.value]).reshape((-1,) + (1,) * (-1 - instr.value))
            elif instr.op.startswith("reduce_"):
                value = _REDUCE[instr.op](np.broadcast_to(args[0], dims), axis=-1, keepdims=True)
            elif instr.op == "Cast":
                value = self.cast(args[0], instr.dtype)
            else:
                value = _ELEMENTWISE[instr.op](*args)
            values.append(value)
        return values

    def cast(self, value: Array, dtype: str) -> Array:
        if dtype == "bool":
            return value != 0
        if dtype in _FLOATS:
            return value.astype(numpy_dtype(dtype)).astype(self.compute)
        return np.trunc(value).astype(dtype) if value.dtype.kind == "f" else value.astype(dtype)


def _convolve(stage: Conv, x: Array, w: Array, dims: tuple[int, ...]) -> Array:
    n = x.ndim - 2
    strides, dilations = stage.strides or (1,) * n, stage.dilations or (1,) * n
    pads = list(stage.pads or (0,) * (2 * n))
    if stage.auto_pad != "NOTSET":
        for i in range(n):
            span = (dims[2 + i] - 1) * strides[i] + dilations[i] * (w.shape[2 + i] - 1) + 1
            total = max(0, span - x.shape[2 + i]) if stage.auto_pad.startswith("SAME") else 0
            pads[i] = (total + 1) // 2 if stage.auto_pad == "SAME_LOWER" else total // 2
            pads[n + i] = total - pads[i]
    windows = _windows(x, w.shape[2:], strides, pads, dilations)
    groups, per = stage.group, w.shape[1]
    parts = []
    for g in range(groups):
        filters = w[g * (w.shape[0] // groups) : (g + 1) * (w.shape[0] // groups)]
        patch = windows[:, g * per : (g + 1) * per]
        axes = (1, *range(2 + n, 2 + 2 * n)), (1, *range(2, 2 + n))
        parts.append(np.moveaxis(np.tensordot(patch, filters, axes=axes), -1, 1))
    return np.concatenate(parts, axis=1)


def _windows(
    x: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    pad: float = 0,
) -> Array:
    """[N, C, places along each axis, what a window covers along each axis]"""
    n = len(kernel)
    x = np.pad(x, [(0, 0), (0, 0), *((pads[i], pads[n + i]) for i in range(n))], constant_values=pad)
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, 2 + n)))
    windows = windows[(slice(None), slice(None), *(slice(None, None, s) for s in strides))]
    return windows[(..., *(slice(None, None, d) for d in dilations))]


def _pool(stage: Pool, x: Array) -> Array:
    image = np.moveaxis(x, -1, 1)
    form = (stage.kernel, stage.strides, stage.pads, stage.dilations)
    axes = tuple(range(-len(stage.kernel), 0))
    if not stage.mean:
        return np.moveaxis(_windows(image, *form, pad=-np.inf).max(axis=axes), 1, -1)
    inside = _windows(np.ones_like(image), *form, pad=float(stage.counts_pads))
    return np.moveaxis(_windows(image, *form).sum(axis=axes) / inside.sum(axis=axes), 1, -1)


def _moments(stage: Moments, x: Array) -> Array:
    size = x.shape[-1] // stage.groups
    grouped = x.reshape(len(x), math.prod(x.shape[1:-1]), stage.groups, size)
    mean, variance = grouped.mean(axis=(1, 3)), grouped.var(axis=(1, 3))
    return np.repeat(np.stack([mean, 1 / np.sqrt(variance + stage.epsilon)]), size, axis=-1)


def _div(a: Array, b: Array) -> Array:
    if np.result_type(a, b).kind != "f":
        return np.trunc(a / np.where(b == 0, 1, b)).astype(np.result_type(a, b))
    return a / b


_erf = np.vectorize(math.erf, otypes=[np.float64])

_REDUCE: dict[str, Callable[..., Array]] = {
    "reduce_sum": np.sum,
    "reduce_mean": np.mean,
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_prod": np.prod,
}

_ELEMENTWISE: dict[str, Callable[..., Array]] = {
    "Abs": np.abs, "Acos": np.arccos, "Acosh": np.arccosh, "Add": np.add, "And": np.logical_and, "Asin": np.arcsin,
    "Asinh": np.arcsinh, "Atan": np.arctan, "Atanh": np.arctanh, "Ceil": np.ceil, "Cos": np.cos, "Cosh": np.cosh,
    "Div": _div, "Equal": np.equal, "Erf": lambda x: _erf(x) if x.size else x, "Exp": np.exp, "Floor": np.floor,
    "Greater": np.greater, "GreaterOrEqual": np.greater_equal, "IsInf": np.isinf, "IsNaN": np.isnan, "Less": np.less,
    "LessOrEqual": np.less_equal, "Log": np.log, "Max": np.maximum, "Min": np.minimum, "Mod": np.mod,
    "Mul": np.multiply, "Neg": np.negative, "Not": np.logical_not, "Or": np.logical_or, "Pow": np.power,
    "Reciprocal": lambda x: 1 / x, "Relu": lambda x: np.maximum(x, 0), "Round": np.round,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)), "Sign": np.sign, "Sin": np.sin, "Sinh": np.sinh,
    "Softplus": lambda x: np.logaddexp(x, 0), "Softsign": lambda x: x / (1 + np.abs(x)), "Sqrt": np.sqrt,
    "Sub": np.subtract, "Tan": np.tan, "Tanh": np.tanh, "Where": np.where, "Xor": np.logical_xor,
}  # fmt: skip
