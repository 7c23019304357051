"""More of what models are made of: inputs of all element types, broadcasting, integers, pooling and other norms,
products of quantized values, bodies in bodies; and graphs whose inputs hold numbers that are none."""

from __future__ import annotations

from random import Random

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.fuzz.graphs import LAYERS, UNARY, Layered
from tests.helpers.dynamic_graphs import draw

_FLOAT32 = np.dtype(np.float32)
_GIVEN = (*[np.float32] * 6, np.float16, np.float64, np.int64, np.int32, np.uint8, np.int8, np.bool_)
_ODD = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-40, 6e-8, 1e4, -1e4, 50.0, -50.0)
_OTHERWISE = frozenset(
    "ArgMax ArgMin Clip DynamicQuantizeLinear GlobalMaxPool HardSigmoid HardSwish Max MaxPool Min QuantizeLinear "
    "ReduceMax ReduceMin Relu Sign TopK".split()
)
"""Of NaN these make what ONNX Runtime makes of it here and there (docs/security.md), or nobody says what."""
_GATES = (("Sigmoid", "Mul"), ("Tanh", "Add"), ("Softplus", "Mul"), ("Abs", "Sub"))
_INTEGERS = ("Abs", "Add", "Div", "Equal", "Greater", "Less", "Max", "Min", "Mod", "Mul", "Neg", "Sub")
_MEETING = ("Add", "Div", "Max", "Min", "Mul", "Pow", "PRelu", "Sub", "Where")


class Varied(Layered):
    """A graph being drawn, of finite numbers."""

    def given_type(self) -> np.dtype:
        return _FLOAT32 if not self.inputs else np.dtype(self.rng.choice(_GIVEN))

    def elements(self, count: int, dtype: np.dtype) -> np.ndarray:
        if dtype.kind == "f":
            return super().elements(count, dtype)
        return np.array([self.rng.randrange(-3 if dtype.kind == "i" else 0, 4) for _ in range(count)])

    def broadcast(self) -> None:
        """A value and another with axes of one element, or of fewer axes, or of more."""
        a = self.pick(1)
        rank = self.rank(a)
        match self.rng.randrange(3):
            case 0:
                sizes = [self.rng.choice((1, *{v.shape[i] for v in self.values[a]})) for i in range(rank)]
                b = self.weights(a, *[1] * self.rng.randrange(2), *sizes[self.rng.randrange(rank) :])
            case 1:
                axis = self.axis(a)
                b = self.add("Slice", self.like(a), self.ints(0), self.ints(1), self.ints(axis))
            case _:
                b = self.add("Unsqueeze", self.like(a), self.ints(self.rng.choice((0, -1))))
        op = self.rng.choice(_MEETING)
        if op in ("Div", "Pow"):
            b = self.add("Add", self.add("Abs", b), self.weights(b, scale=0.1))
            a = self.add("Abs", a) if op == "Pow" else a
        if op == "Where":
            self.add("Where", self.add("Less", b, a), a, b)
            return
        found = self.add(op, *((a, b) if op == "PRelu" or self.rng.random() < 0.7 else (b, a)))
        if op == "PRelu" and any(x.shape != y.shape for x, y in zip(self.values[a], self.values[found], strict=True)):
            raise ValueError("ONNX Runtime lets a slope be larger than what it is for")

    def integers(self) -> None:
        a = self.pick(kind=np.integer)
        op = self.rng.choice(_INTEGERS)
        few = self.constant(np.array(self.rng.choice((1, 2, 3, 5)), self.values[a][0].dtype))
        inputs = [a] if op in ("Abs", "Neg") else [a, few if op in ("Div", "Mod") else self.rng.choice((few, a))]
        self.shown(self.add(op, *inputs))

    def shown(self, value: str) -> None:
        self.add("Cast", value, to=self.rng.choice((TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT32)))

    def truth(self) -> None:
        a = self.pick(kind=np.bool_)
        x = self.pick()
        self.add("Where", self.add("Not", a) if self.rng.random() < 0.5 else a, x, self.like(x))

    def looked_up(self) -> None:
        """Rows of a table at integers that are made to be positions in it."""
        at = self.add("Mod", self.pick(kind=np.signedinteger), self.constant(np.array(5, np.int64)))
        table = self.constant(np.random.default_rng(self.rng.randrange(1 << 30)).standard_normal((5, 4), np.float32))
        match self.rng.randrange(3):
            case 0:
                self.add("Gather", table, at, axis=0)
            case 1:
                self.add("OneHot", at, self.ints(5), self.constant(np.array([0, 1], np.float32)), axis=-1)
            case _:
                onehot = self.add("OneHot", at, self.ints(5), self.constant(np.array([0, 1], np.float32)), axis=-1)
                self.add("MatMul", onehot, table)

    def ordered(self) -> None:
        """Of inputs only: of results that are rounded otherwise another may be the largest."""
        x = self.given()
        if any(v.size == 0 for v in self.values[x]):
            raise ValueError("ONNX Runtime leaves empty tensors as they are")
        match self.rng.randrange(3):
            case 0:
                self.shown(self.add(self.rng.choice(("ArgMax", "ArgMin")), x, axis=self.axis(x)))
            case 1:
                self.add("TopK", x, self.ints(1), outputs=2, axis=self.axis(x))
            case _:
                self.shown(self.add("NonZero", x))

    def along(self) -> None:
        x = self.pick(2)
        match self.rng.randrange(4):
            case 0:
                self.add("CumSum", x, self.ints(self.axis(x)), exclusive=self.rng.randrange(2))
            case 1:
                self.add("Trilu", x, upper=self.rng.randrange(2))
            case 2:
                self.add("Softmax", x, axis=self.axis(x))
            case _:
                y, equation = self.like(x), self.rng.choice(("ij,ij->ij", "ij,kj->ik", "bij,bkj->bik"))
                ranks = tuple(map(len, equation.partition("->")[0].split(",")))
                if (self.rank(x), self.rank(y)) != ranks or any(
                    v.size == 0 for v in (*self.values[x], *self.values[y])
                ):
                    raise ValueError("ends ONNX Runtime's process")
                self.add("Einsum", x, y, equation=equation)

    def product(self) -> None:
        x = self.pick(2)
        size, made = self.length_of(x, -1), self.rng.choice((1, 3, 8))
        turned = self.rng.randrange(2)
        w = self.weights(x, *((made, size) if turned else (size, made)))
        alpha = self.rng.choice((1.0, 0.5))
        self.add(self.rng.choice(UNARY), self.add("Gemm", x, w, self.weights(x, made), transB=turned, alpha=alpha))

    def image(self) -> None:
        x = self.pick(3)
        if any(v.size == 0 for v in self.values[x]):
            raise ValueError("a mean of nothing")
        channels, axes = self.length_of(x, 1), self.rank(x) - 2
        numbers = [self.weights(x, channels) for _ in range(3)]
        match self.rng.randrange(6):
            case 0:
                variance = self.constant(np.abs(self.constants[numbers[2]]) + np.array(0.5, self.values[x][0].dtype))
                y = self.add("BatchNormalization", x, *numbers, variance)
            case 1:
                y = self.add("InstanceNormalization", x, *numbers[:2], epsilon=1e-2)
            case 2:
                y = self.add(self.rng.choice(("MaxPool", "AveragePool")), x, kernel_shape=[2] * axes, ceil_mode=1)
            case 3:
                y = self.add(self.rng.choice(("GlobalAveragePool", "GlobalMaxPool")), x)
            case 4:
                w = self.weights(x, channels, 2, *[2] * axes)
                y = self.add("ConvTranspose", x, w, strides=[self.rng.choice((1, 2))] * axes)
            case _:
                y = self.add("Conv", x, self.weights(x, channels, 1, *[3] * axes), group=channels, pads=[1] * 2 * axes)
        if self.rng.random() < 0.6:
            self.add(self.rng.choice(UNARY), y)

    def quantized_product(self) -> None:
        """Of an input by a constant, in one of the ways that quantizers write it."""
        x = self.given()
        size, made = self.length_of(x, -1), self.rng.choice((1, 4, 8))
        drawn = np.random.default_rng(self.rng.randrange(1 << 30)).integers(-90, 90, (size, made))
        w, scale, zero = self.constant(drawn.astype(np.int8)), self.constant(np.array(0.02, np.float32)), None
        match self.rng.randrange(4):
            case 0:
                per_column = self.constant(np.linspace(0.01, 0.03, made, dtype=np.float32))
                zero = self.constant(np.zeros(made, np.int8))
                self.add("MatMul", x, self.add("DequantizeLinear", w, per_column, zero, axis=1))
            case 1:
                zero = self.constant(np.array(self.rng.choice((0, 128)), np.uint8))
                step = self.add("QuantizeLinear", x, scale, zero)
                y = self.add("MatMul", self.add("DequantizeLinear", step, scale, zero), self._weight(w, scale))
                again = self.add("QuantizeLinear", y, self.constant(np.array(0.1, np.float32)), zero)
                self.add("DequantizeLinear", again, self.constant(np.array(0.1, np.float32)), zero)
            case 2:
                step = self.add("DynamicQuantizeLinear", x, outputs=3)
                number, scales, zeros = (step[:-1] + end for end in "012")
                product = self.add("MatMulInteger", number, w, zeros)
                both = self.add("Mul", scales, scale)
                self.add("Mul", self.add("Cast", product, to=TensorProto.FLOAT), both)
            case _:
                zero = self.constant(np.array(128, np.uint8))
                step = self.add("QuantizeLinear", x, scale, zero)
                of_w = self.constant(np.array(0, np.int8))
                y_scale = self.constant(np.array(0.1, np.float32))
                y = self.add("QLinearMatMul", step, scale, zero, w, scale, of_w, y_scale, zero)
                self.add("DequantizeLinear", y, y_scale, zero)

    def _weight(self, w: str, scale: str) -> str:
        return self.add("DequantizeLinear", w, scale, self.constant(np.array(0, np.int8)))

    def branched(self) -> None:
        """An If whose branches hold something to fuse, and one of them another If."""
        x = self.pick()
        condition = self.add(
            "Less", self.add("Size", self.pick(1)), self.constant(np.array(self.rng.choice((2, 9, 99))))
        )
        inner = self._branch(x, "inner_then"), self._branch(x, "inner_else")
        other = self._branch(x, "other")
        if self.rng.random() < 0.5:
            node = helper.make_node("If", [condition], [f"deep_{x}"], then_branch=inner[0], else_branch=inner[1])
            other = helper.make_graph([node], "other", [], [helper.make_empty_tensor_value_info(f"deep_{x}")])
        self.add("If", condition, outer=[x, condition], then_branch=self._branch(x, "then"), else_branch=other)

    def _branch(self, x: str, name: str) -> onnx.GraphProto:
        """x -> f(x) op x -> ..., with values named after the branch."""
        nodes, last = [], x
        for i in range(self.rng.randrange(1, 4)):
            unary, binary = self.rng.choice(_GATES)
            nodes.append(helper.make_node(unary, [last], [f"{name}_{x}_a{i}"]))
            nodes.append(helper.make_node(binary, [last, f"{name}_{x}_a{i}"], [f"{name}_{x}_b{i}"]))
            last = f"{name}_{x}_b{i}"
        return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(last)])

    def scanned(self) -> None:
        """A Scan over the first axis, or a Loop over its length, which keep what each step makes."""
        x = self.pick(2)
        dtype, rank = helper.np_dtype_to_tensor_dtype(self.values[x][0].dtype), self.rank(x)
        if any(v.shape[0] == 0 for v in self.values[x]):
            raise ValueError("what comes of no iteration is as large as ONNX Runtime makes out")
        longer = self.add("Pad", x, self.ints(*[0] * rank, 1, *[0] * (rank - 1)))
        start = self.add("Gather", longer, self.constant(np.array(-1, np.int64)), axis=0)
        unary, binary = self.rng.choice(_GATES)
        work = [helper.make_node(unary, ["part"], ["half"]), helper.make_node(binary, ["part", "half"], ["made"])]
        state = [
            helper.make_tensor_value_info(n, dtype, [None] * (rank - 1)) for n in ("state", "part", "next", "made")
        ]
        if self.rng.random() < 0.5:
            body = [*work, helper.make_node("Max", ["state", "made"], ["next"])]
            graph = helper.make_graph(body, "steps", state[:2], state[2:])
            self.add("Scan", start, x, outputs=2, body=graph, num_scan_inputs=1)
            return
        trips = self.add("Squeeze", self.add("Shape", x, start=0, end=1))
        counted = [
            helper.make_tensor_value_info(n, t, []) for n, t in (("i", TensorProto.INT64), ("go", TensorProto.BOOL))
        ]
        goes = helper.make_tensor_value_info("goes", TensorProto.BOOL, [])
        body = [
            helper.make_node("Identity", ["go"], ["goes"]),
            helper.make_node("Gather", [x, "i"], ["part"], axis=0),
            *work,
            helper.make_node("Max", ["state", "made"], ["next"]),
        ]
        graph = helper.make_graph(body, "steps", [*counted, state[0]], [goes, *state[2:]])
        self.add("Loop", trips, self.constant(np.array(True)), start, outer=[x], outputs=2, body=graph)


_VARIED = (
    *LAYERS,
    *(Varied.broadcast, Varied.product, Varied.image) * 3,
    *(Varied.integers, Varied.truth, Varied.looked_up, Varied.ordered, Varied.along) * 2,
    *(Varied.quantized_product, Varied.branched, Varied.scanned) * 2,
)


class Odd(Varied):
    """A graph being drawn, of numbers that may be none, infinite or next to zero."""

    def given_type(self) -> np.dtype:
        return _FLOAT32 if not self.inputs or self.rng.random() < 0.8 else np.dtype(np.float64)

    def elements(self, count: int, dtype: np.dtype) -> np.ndarray:
        return np.array(
            [self.rng.choice(_ODD) if self.rng.random() < 0.1 else self.rng.gauss(0, 1) for _ in range(count)]
        )

    def add(self, op: str, *inputs: str, **more: object) -> str:
        if op in _OTHERWISE or (op == "Cast" and more["to"] == TensorProto.INT32):
            raise ValueError(op)
        return super().add(op, *inputs, **more)

    def is_fit(self, array: np.ndarray) -> bool:
        return array.dtype != np.float16  # of which kernels keep intermediate results in float32


def draw_graph(rng: Random) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """A graph, and inputs for it of three sizes, of which one in four may be nothing; one in ten is of odd numbers."""
    kind = Odd if rng.random() < 0.1 else Varied
    return draw(rng, 0 if rng.random() < 0.25 else 1, kind, _VARIED)
