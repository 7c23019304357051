"""Random graphs of what models are made of: layers, norms, attention, gates, reductions, other element types, quantized
values and control flow, between the slices, joins and arithmetic of shapes of `dynamic_graphs`."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from tests.helpers.dynamic_graphs import OPERATORS, Drawn

UNARY = (
    *("Abs", "Atan", "Cos", "Elu", "Erf", "Exp", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Neg", "Relu"),
    *("Selu", "Sigmoid", "Sin", "Softplus", "Softsign", "Sqrt", "Tanh"),
)
_STEPPED = ("Ceil", "Floor", "Round", "Sign")
"""Of inputs only: a result that is rounded otherwise would make a whole step."""
_REDUCED = ("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum")
_LARGEST = {np.float16: 1e3, np.float32: 1e5, np.float64: 1e5}
"""What overflows, or cancels, differs by how it is rounded."""


class Layered(Drawn):
    """A graph being drawn, of finite numbers."""

    def add(self, op: str, *inputs: str, **more: object) -> str:
        name = super().add(op, *inputs, **more)  # type: ignore[arg-type]
        if not all(map(self.is_fit, self.values[name])):
            raise ValueError(op)
        return name

    def is_fit(self, array: np.ndarray) -> bool:
        """Whether it is to be part of the graph."""
        largest = _LARGEST.get(array.dtype.type)
        return not (largest and array.size) or bool(np.abs(array).max() < largest)

    def like(self, value: str) -> str:
        """A value of the same element type."""
        dtype = self.values[value][0].dtype
        return self.rng.choice([n for n, v in self.values.items() if v[0].dtype == dtype and n[0] != "c"])

    def given(self) -> str:
        """An input of float32."""
        return self.rng.choice([n for n in self.inputs if self.values[n][0].dtype == np.float32])

    def weights(self, value: str, *shape: int, scale: float = 0.3) -> str:
        """A constant of a value's element type."""
        dtype, seed = self.values[value][0].dtype, self.rng.randrange(1 << 30)
        return self.constant((np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype))

    def length_of(self, value: str, axis: int) -> int:
        """A size that is the same each time; raises ValueError if it is not, or nothing."""
        sizes = {v.shape[axis] for v in self.values[value]}
        if len(sizes) > 1 or sizes == {0}:
            raise ValueError(value)
        return sizes.pop()

    # ---- one operator, or a few that belong together

    def smooth(self) -> None:
        self.add(self.rng.choice(UNARY), self.pick())

    def stepped(self) -> None:
        self.add(self.rng.choice(_STEPPED), self.given())

    def arithmetic(self) -> None:
        a = self.pick()
        self.add(self.rng.choice(("Add", "Mul", "Sub", "Max", "Min")), a, self.like(a))

    def divided(self) -> None:
        a = self.pick()
        b = self.add("Add", self.add("Abs", self.like(a)), self.weights(a, scale=0.1))
        self.add("Div", a, b)

    def scaled(self) -> None:
        a = self.pick()
        self.add(self.rng.choice(("Add", "Mul", "Sub")), a, self.weights(a))

    def typed(self) -> None:
        to = self.rng.choice((TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE))
        self.add("Cast", self.pick(), to=to)

    def counted_in_integers(self) -> None:
        a = self.add("Cast", self.add("Mul", self.given(), self.constant(np.float32(10))), to=TensorProto.INT32)
        b = self.add(self.rng.choice(("Add", "Mul", "Sub", "Max", "Min")), a, self.constant(np.array(3, np.int32)))
        self.add("Cast", b, to=TensorProto.FLOAT)

    def masked(self) -> None:
        a, b = self.given(), self.given()
        mask = self.add(self.rng.choice(("Less", "Greater", "Equal")), a, b)
        if self.rng.random() < 0.4:
            mask = self.add(self.rng.choice(("And", "Or", "Xor")), mask, self.add("Less", b, a))
        x = self.pick()
        self.add("Where", self.add("Not", mask) if self.rng.random() < 0.3 else mask, x, self.like(x))

    def clipped(self) -> None:
        x = self.pick()
        ends = [self.constant(np.array(n, self.values[x][0].dtype)) for n in (-0.5, self.rng.choice((0.5, 6)))]
        self.add("Clip", x, *ends)

    def reduced(self) -> None:
        x = self.pick(1)
        if any(v.size == 0 for v in self.values[x]):
            raise ValueError("ONNX Runtime leaves empty tensors as they are")
        name = self.rng.choice(_REDUCED)
        axes = [self.ints(self.axis(x))] if name in ("ReduceSum", *_REDUCED) and self.rng.random() < 0.9 else []
        small = self.add("ReduceMean" if name == "ReduceProd" and self.rank(x) > 2 else name, x, *axes)
        if self.rng.random() < 0.6:
            self.add(self.rng.choice(("Sub", "Add")), x, small)

    def softmax(self) -> None:
        self.add(self.rng.choice(("Softmax", "Softmax", "LogSoftmax")), self.pick(1), axis=self.axis_last())

    def axis_last(self) -> int:
        return -1

    def normed(self) -> None:
        x = self.pick(1)
        if any(v.size == 0 for v in self.values[x]):
            raise ValueError("a mean of nothing")
        size = self.length_of(x, -1)
        scale = self.weights(x, size)
        if self.rng.random() < 0.4:
            self.add("LayerNormalization", x, scale, self.weights(x, size), axis=-1)
            return
        if self.rng.random() < 0.5:
            x = self.add("Sub", x, self.add("ReduceMean", x, self.ints(-1)))
        square = self.add("ReduceMean", self.add("Mul", x, x), self.ints(-1))
        root = self.add("Sqrt", self.add("Add", square, self.constant(np.array(1e-3, self.values[x][0].dtype))))
        self.add("Mul", self.add("Div", x, root), scale)

    def layer(self) -> None:
        x = self.pick(2)
        size, made = self.length_of(x, -1), self.rng.choice((1, 4, 8))
        y = self.add("MatMul", x, self.weights(x, size, made))
        if self.rng.random() < 0.7:
            y = self.add("Add", y, self.weights(x, made))
        match self.rng.randrange(4):
            case 0:
                self.add(self.rng.choice(UNARY), y)
            case 1:
                self.add("Mul", y, self.add("Sigmoid", y))
            case 2:
                self.add("Add", y, self.like(y))

    def attention(self) -> None:
        q = self.pick(2)
        k, v = self.like(q), self.like(q)
        if any(0 in self.values[n][i].shape for n in (q, k, v) for i in range(len(self.sizes))):
            raise ValueError("ONNX Runtime leaves sums of nothing uninitialised")
        scores = self.add("Mul", self.add("MatMul", q, self.swapped(k)), self.weights(q))
        self.add("MatMul", self.add("Softmax", scores, axis=-1), v)

    def convolved(self) -> None:
        x = self.pick(3)
        channels, axes = self.length_of(x, 1), self.rank(x) - 2
        made = self.rng.choice((1, 2, 4))
        w = self.weights(x, made, channels, *[self.rng.choice((1, 3))] * axes)
        pads = [self.rng.choice((0, 1))] * (2 * axes)
        y = self.add("Conv", x, w, self.weights(x, made), pads=pads)
        if self.rng.random() < 0.6:
            self.add("Relu", y)

    def quantized(self) -> None:
        x, scale = self.given(), self.constant(np.array(0.05, np.float32))
        zero = self.constant(np.array(self.rng.choice((0, 128)), np.uint8))
        self.add("DequantizeLinear", self.add("QuantizeLinear", x, scale, zero), scale, zero)

    def decided(self) -> None:
        x = self.pick()
        dtype = helper.np_dtype_to_tensor_dtype(self.values[x][0].dtype)
        branches = []
        for name, op in (("then_branch", self.rng.choice(UNARY)), ("else_branch", "Neg")):
            made = helper.make_tensor_value_info(f"{name}_{len(self.values)}", dtype, None)
            body = [helper.make_node(op, [x], [made.name])]
            branches.append((name, helper.make_graph(body, name, [], [made])))
        first = self.add("Shape", self.pick(1), start=0, end=1)
        condition = self.add("Less", first, self.ints(self.rng.choice((1, 3, 100))))
        self.add("If", self.add("Squeeze", condition), outer=[x], **dict(branches))

    def repeated(self) -> None:
        x = self.pick()
        dtype, rank = helper.np_dtype_to_tensor_dtype(self.values[x][0].dtype), self.rank(x)
        given = [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", dtype, [None] * rank),
        ]
        body = [
            helper.make_node("Identity", ["go"], ["goes"]),
            helper.make_node(self.rng.choice(("Sin", "Tanh", "Relu")), ["state"], ["half"]),
            helper.make_node("Add", ["half", "half"], ["next"]),
        ]
        made = [
            helper.make_tensor_value_info("goes", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", dtype, [None] * rank),
        ]
        trips, go = self.constant(np.array(self.rng.choice((0, 1, 3)), np.int64)), self.constant(np.array(True))
        self.add("Loop", trips, go, x, body=helper.make_graph(body, "body", given, made))


LAYERS = (
    *(Layered.smooth, Layered.arithmetic, Layered.layer, Layered.normed, Layered.attention) * 4,
    *(Layered.scaled, Layered.softmax, Layered.reduced, Layered.masked, Layered.divided, Layered.clipped) * 2,
    *(Layered.typed, Layered.stepped, Layered.counted_in_integers, Layered.convolved, Layered.quantized),
    *(Layered.decided, Layered.repeated),
    *(o for o in dict.fromkeys(OPERATORS) if o.__name__ not in ("unary", "binary", "where")),
)
