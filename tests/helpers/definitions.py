"""What idioms mean, in numpy, and whether nodes that were recognised as one compute it when they run by themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import helper, numpy_helper

from fusion_cli.match.found import Match

Array = npt.NDArray[np.float64]
Run = Callable[[str, Array], Array]
_erf = np.vectorize(math.erf, otypes=[np.float64])


def sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


FUNCTIONS: Mapping[str, Callable[[Array], Array]] = {
    "GeluErf": lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))),
    "GeluTanh": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "QuickGelu": lambda x: x * sigmoid(1.702 * x),
    "Silu": lambda x: x * sigmoid(x),
    "Mish": lambda x: x * np.tanh(softplus(x)),
    "HardSwish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "Softplus": softplus,
    "Softcap": lambda x: 30.0 * np.tanh(x / 30.0),
}


class Instance:
    """The nodes of one match as a model of their own, with the values at its border from a run of the whole model."""

    def __init__(self, model: ir.Model, match: Match, feeds: Mapping[str, npt.NDArray]) -> None:
        self.match = match
        proto = ir.to_proto(model)
        makers = {name: node for node in proto.graph.node for name in node.output}
        constants = {t.name: t for t in proto.graph.initializer}
        inside = {v.name for n in match.nodes for v in n.outputs}
        nodes = [n for n in proto.graph.node if n.output[0] in inside]
        read = dict.fromkeys(name for n in nodes for name in n.input if name and name not in constants)
        border = [name for name in read if name not in inside]
        self.values = {name: feeds[name] for name in border if name in feeds}
        computed = [name for name in border if name in makers]
        if computed:
            whole = onnx.ModelProto.FromString(proto.SerializeToString())
            del whole.graph.output[:]
            whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in computed)
            self.values |= dict(zip(computed, _session(whole).run(None, dict(feeds)), strict=True))
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), [None] * v.ndim)
            for n, v in self.values.items()
        ]
        outputs = [onnx.ValueInfoProto(name=v.name) for v in match.outputs]
        used = [t for name, t in constants.items() if any(name in n.input for n in nodes)]
        numbers = (numpy_helper.to_array(t) for t in used if math.prod(t.dims) == 1)
        self.epsilons = {0.0, 1e-5, *(float(a.ravel()[0]) for a in numbers if 0 < a.ravel()[0] < 0.1)}
        graph = helper.make_graph(nodes, "instance", inputs, outputs, used)
        self.session = _session(helper.make_model(graph, opset_imports=proto.opset_import, ir_version=proto.ir_version))

    def shape(self, value: ir.Value | None) -> tuple[int, ...]:
        assert value is not None
        return self.values[str(value.name)].shape

    def __call__(self, changed: Mapping[str, Array] | None = None) -> Array:
        feeds = {n: (changed or {}).get(n, v).astype(v.dtype) for n, v in self.values.items()}
        return np.asarray(self.session.run(None, feeds)[0], np.float64)


def _session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def complaint(instance: Instance, rng: np.random.Generator) -> str:
    """What is wrong with the name of the instance; "" if it computes what it is called."""
    name = instance.match.pattern.rule
    return CHECKS[name](instance, rng) if name in CHECKS else ""


def _function(instance: Instance, rng: np.random.Generator) -> str:
    x = instance.match.inputs[0]
    values = rng.normal(size=instance.shape(x)).astype(np.float32) * 6
    expected = FUNCTIONS[instance.match.pattern.rule](values.astype(np.float64))
    return _differs(instance({str(x.name): values}), expected, 3e-5)


def _norm(
    axes: Callable[[int], Sequence[int]], kept: Callable[[int], Sequence[int]], centred: bool = True
) -> Callable[[Instance, np.random.Generator], str]:
    """A check that y = g n + b, where n is x brought to mean 0 (if `centred`) and size 1 over `axes` and g and b depend
    on the axes `kept` only."""

    def check(instance: Instance, rng: np.random.Generator) -> str:
        x = instance.match.inputs[0]
        shape = instance.shape(x)
        scales = rng.choice([0.02, 1.0, 4.0], size=(6, *[1] * len(shape)))
        samples = (rng.normal(size=(6, *shape)) * scales).astype(np.float32)
        results = np.stack([instance({str(x.name): s}) for s in samples])
        if results.shape != samples.shape:
            return f"{results.shape[1:]} of {shape}"
        over = tuple(1 + a % len(shape) for a in axes(len(shape)))
        own = {0, *range(1, 1 + len(shape))} - {1 + a % len(shape) for a in kept(len(shape))}
        centre = samples - samples.mean(over, keepdims=True) if centred else samples.astype(np.float64)
        sizes = [centre / np.sqrt((centre**2).mean(over, keepdims=True) + e) for e in instance.epsilons]
        return min((_affine(n, results, tuple(sorted(own)), centred) for n in sizes), key=len)

    return check


def _either(*checks: Callable[[Instance, np.random.Generator], str]) -> Callable[[Instance, np.random.Generator], str]:
    return lambda instance, rng: min((check(instance, rng) for check in checks), key=len)


def _affine(n: Array, y: Array, axes: tuple[int, ...], shifted: bool) -> str:
    """Whether y is a multiple of n, and a shift, that do not change along the axes."""
    means = (n.mean(axes, keepdims=True), y.mean(axes, keepdims=True)) if shifted else (0.0, 0.0)
    a, b = n - means[0], y - means[1]
    gain = (a * b).sum(axes, keepdims=True) / np.maximum((a * a).sum(axes, keepdims=True), 1e-12)
    return _differs(gain * a, b, 5e-4)


def _linear(axis: int) -> Callable[[Instance, np.random.Generator], str]:
    """A check that all vectors along the other of the last two axes are mapped in the same way, and in proportion."""

    def check(instance: Instance, rng: np.random.Generator) -> str:
        x = instance.match.inputs[0]
        shape = instance.shape(x)
        a, b = (rng.normal(size=shape) for _ in range(2))
        zero, first, second, both = (instance({str(x.name): v}) for v in (0 * a, a, b, a + b))
        order = rng.permutation(shape[axis])
        moved = instance({str(x.name): a.take(order, axis)})
        expected = first.take(order, axis) if first.shape[axis] == shape[axis] else first
        return _differs(both - zero, first + second - 2 * zero, 1e-3) or _differs(moved, expected, 1e-3)

    return check


def _rotary(instance: Instance, rng: np.random.Generator) -> str:
    """Each place turns pairs of coordinates, by the angles that the model has."""
    x = instance.match.inputs[0]
    shape = instance.shape(x)
    width = shape[-1]
    columns = [instance({str(x.name): np.broadcast_to(row, shape)}) for row in np.eye(width)]
    maps = np.stack(columns, -1).reshape(-1, width, width)
    square = np.einsum("nij,nkj->nik", maps, maps)
    sizes = np.einsum("nii->ni", square)
    same = _differs(square, sizes[:, :, None] * np.eye(width), 1e-3)
    partners = (np.abs(maps).max(0) > 1e-4).sum(0)
    return same or ("" if partners.max() <= 2 else "more than pairs turn together")


def _attention(instance: Instance, rng: np.random.Generator) -> str:
    """Means of the values: weights of sum 1, of which a key changes its own and the rest only in proportion."""
    _, k, v = instance.match.inputs[:3]
    shape = instance.shape(v)
    keys = shape[-2]
    if shape[-1] < keys:
        return ""
    unit = np.broadcast_to(np.eye(keys, shape[-1]), shape)
    weights = instance({str(v.name): unit})[..., :keys]
    changed = instance.values[str(k.name)].astype(np.float64).copy()
    moved = rng.integers(keys)
    changed[..., moved] += rng.normal(size=changed.shape[:-1])
    others = np.delete(instance({str(v.name): unit, str(k.name): changed})[..., :keys], moved, -1)
    before = np.delete(weights, moved, -1)
    ratio = others.sum(-1, keepdims=True) / np.maximum(before.sum(-1, keepdims=True), 1e-12)
    return _differs(weights.sum(-1), np.ones(weights.shape[:-1]), 1e-4) or _differs(others, before * ratio, 1e-4)


def _differs(found: Array, expected: Array, tolerance: float) -> str:
    if found.shape != expected.shape:
        return f"{found.shape}, not {expected.shape}"
    error = float(np.abs(found - expected).max(initial=0.0))
    return "" if error <= tolerance * max(1.0, float(np.abs(expected).max(initial=0.0))) else f"off by {error:.2g}"


CHECKS: Mapping[str, Callable[[Instance, np.random.Generator], str]] = {
    **dict.fromkeys(FUNCTIONS, _function),
    "LayerNorm": _either(_norm(lambda rank: [-1], lambda rank: [-1]), _norm(lambda rank: [1], lambda rank: [1])),
    "RMSNorm": _norm(lambda rank: [-1], lambda rank: [-1], centred=False),
    "ChannelNorm": _norm(lambda rank: [1], lambda rank: [1]),
    "InstanceNorm": _norm(lambda rank: range(2, rank), lambda rank: [1]),
    "Linear": _either(_linear(-2), _linear(-1)),
    "RotaryEmbedding": _rotary,
    "Attention": _attention,
}
