"""Random graphs of unknown sizes: slices, reshapes, expansions and joins, and the arithmetic of shapes that exporters
write for them. What is drawn runs at each of a few sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from random import Random

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

import fusion_cli

OPSET = 18
STEPS = 14
"""Operators that are drawn for a graph, each with what computes its shapes."""
ENDS = (0, 1, 2, 3, 5, 100, 10**9, 2**31 - 1, 2**63 - 1, -1, -2, -100, -(2**31) - 1, -(2**63))
_MOST_ELEMENTS = 4000
Arrays = tuple[np.ndarray, ...]
"""A value at each of the sizes."""


@dataclass
class Drawn:
    """A graph being drawn: its values at each of the sizes, and its nodes."""

    rng: Random
    sizes: Sequence[Mapping[str, int]]
    values: dict[str, Arrays] = field(default_factory=dict)
    inputs: dict[str, list[int | str]] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def give(self, dims: list[int | str]) -> None:
        name = f"x{len(self.inputs)}"
        shapes = ([sizes[d] if isinstance(d, str) else d for d in dims] for sizes in self.sizes)
        dtype = self.given_type()
        self.inputs[name] = dims
        self.values[name] = tuple(self.elements(int(np.prod(s)), dtype).astype(dtype).reshape(s) for s in shapes)

    def given_type(self) -> np.dtype:
        """Of the next input."""
        return np.dtype(np.float32)

    def elements(self, count: int, dtype: np.dtype) -> np.ndarray:
        """Of an input."""
        return np.array([self.rng.uniform(-2, 2) for _ in range(count)])

    def ints(self, *elements: int) -> str:
        return self.constant(np.array(elements, np.int64))

    def constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        self.values[name] = (array,) * len(self.sizes)
        return name

    def add(self, op: str, *inputs: str, outputs: int = 1, outer: Sequence[str] = (), **attributes: object) -> str:
        """The first result of a node whose bodies read `outer`; raises ValueError for what does not run at each of the
        sizes."""
        names = [f"v{len(self.values)}_{i}" for i in range(outputs)]
        node = helper.make_node(op, inputs, names, **attributes)
        read = dict.fromkeys(n for n in (*inputs, *outer) if n)
        # Of equal nodes one is opened, which goes by names that have nothing to do with the graph.
        alike = {n: n if outer else f"i{k}" for k, n in enumerate(read)}
        made = [f"o{k}" for k in range(outputs)]
        one = helper.make_node(op, [alike.get(n, "") for n in inputs], made, **attributes)
        try:
            session = _session(_as_model(one, {alike[n]: self.values[n][0] for n in read}).SerializeToString())
            runs = range(len(self.sizes))
            found = [tuple(session.run(None, {alike[n]: self.values[n][i] for n in read})) for i in runs]
        except Exception as e:
            raise ValueError(op) from e
        if any(a.size > _MOST_ELEMENTS for arrays in found for a in arrays):
            raise ValueError(op)
        self.nodes.append(node)
        self.values.update(zip(names, zip(*found, strict=True), strict=True))
        return names[0]

    def pick(self, least: int = 0, kind: type = np.floating) -> str:
        """A value of at least so many axes."""
        fit = [
            n for n, v in self.values.items() if v[0].ndim >= least and np.issubdtype(v[0].dtype, kind) and n[0] != "c"
        ]
        if not fit:
            raise ValueError(least)
        return self.rng.choice(fit[-8:] if self.rng.random() < 0.6 else fit)

    def rank(self, value: str) -> int:
        return self.values[value][0].ndim

    def axis(self, value: str) -> int:
        rank = self.rank(value)
        return self.rng.randrange(-rank, rank)

    # ---- one operator each

    def unary(self) -> None:
        self.add(self.rng.choice(("Relu", "Neg", "Sin")), self.pick())

    def binary(self) -> None:
        self.add(self.rng.choice(("Add", "Mul", "Sub", "Max")), self.pick(), self.pick())

    def where(self) -> None:
        a, b = self.pick(), self.pick()
        self.add("Where", self.add("Less", a, b), self.pick(), b)

    def matmul(self) -> None:
        a, b = self.pick(2), self.pick(2)
        b = b if self.rng.random() < 0.5 else self.swapped(b)
        if any(v.shape[-1] == 0 for v in self.values[a]):
            raise ValueError("ONNX Runtime leaves sums of nothing uninitialised")
        self.add("MatMul", a, b)

    def swapped(self, value: str) -> str:
        rank = self.rank(value)
        return self.add("Transpose", value, perm=[*range(rank - 2), rank - 1, rank - 2])

    def transpose(self) -> None:
        x = self.pick(2)
        self.add("Transpose", x, perm=self.rng.sample(range(self.rank(x)), self.rank(x)))

    def slice(self) -> None:
        x = self.pick(1)
        axes = self.rng.sample(range(self.rank(x)), self.rng.choice((1, 1, min(2, self.rank(x)))))
        steps = [self.rng.choice((1, 1, 1, 2, 3, -1, -2)) for _ in axes]
        # Backwards from before the first element ONNX Runtime takes it, its shape inference nothing.
        starts = [self.rng.choice((0, 0, 0, 1, 2, 5, -1, *((-2, -50) if s > 0 else ()))) for s in steps]
        ends = [self.rng.choice(ENDS) for _ in axes]
        bounds = [self.ints(*starts), self.ints(*ends)]
        if self.rng.random() < 0.3:
            bounds[1] = self.add("Concat", *(self.length() for _ in axes), axis=0)
        if all(s == 1 for s in steps) and axes == sorted(axes) == list(range(len(axes))) and self.rng.random() < 0.5:
            self.add("Slice", x, *bounds)
        else:
            self.add("Slice", x, *bounds, self.ints(*axes), self.ints(*steps))

    def squeeze(self) -> None:
        x = self.pick(1)
        axes = [a for a in range(self.rank(x)) if all(v.shape[a] == 1 for v in self.values[x])]
        if self.rng.random() < 0.3 or not axes:
            shapes = {len(v.squeeze().shape) for v in self.values[x]}
            self.add("Squeeze", x) if len(shapes) == 1 else self.add("Unsqueeze", x, self.ints(self.axis(x)))
        else:
            self.add("Squeeze", x, self.ints(self.rng.choice(axes)))

    def reduce(self) -> None:
        x = self.pick(1)
        axis = self.axis(x)
        if any(v.size == 0 for v in self.values[x]):
            raise ValueError("ONNX Runtime leaves empty tensors as they are")
        self.add("ReduceMean", x, self.ints(axis), keepdims=self.rng.randrange(2))

    def concat(self) -> None:
        x, y = self.pick(1), self.pick(1)
        axis = self.axis(x)
        for a, b in zip(self.values[x], self.values[y], strict=True):
            if a.ndim != b.ndim or np.delete(a.shape, axis).tolist() != np.delete(b.shape, axis).tolist():
                raise ValueError("ONNX Runtime lets empty tensors be of any shape")
        self.add("Concat", x, y, *([x] if self.rng.random() < 0.3 else []), axis=axis)

    def split(self) -> None:
        x = self.pick(1)
        axis = self.axis(x)
        sizes = {v.shape[axis] for v in self.values[x]}
        if self.rng.random() < 0.4:
            part = self.length()
            whole = self.add("Shape", x, start=axis % self.rank(x), end=axis % self.rank(x) + 1)
            parts = self.add("Concat", part, self.add("Sub", whole, part), axis=0)
            self.add("Split", x, parts, outputs=2, axis=axis)
        elif len(sizes) == 1 and self.rng.random() < 0.5:
            first = self.rng.randrange(min(sizes) + 1)
            self.add("Split", x, self.ints(first, min(sizes) - first), outputs=2, axis=axis)
        else:
            count = self.rng.choice((2, 2, 3))
            self.add("Split", x, outputs=count, axis=axis, num_outputs=count)

    def pad(self) -> None:
        x = self.pick(1)
        pads = [self.rng.choice((0, 0, 1, 2, -1)) for _ in range(2 * self.rank(x))]
        self.add("Pad", x, self.ints(*pads))

    def gather(self) -> None:
        x = self.pick(1)
        index = self.ints(0) if self.rng.random() < 0.5 else self.constant(np.array(0, np.int64))
        self.add("Gather", x, index, axis=self.axis(x))

    def flatten(self) -> None:
        x = self.pick(1)
        self.add("Flatten", x, axis=self.rng.randrange(self.rank(x) + 1))

    # ---- shapes as values

    def length(self) -> str:
        """A size in a list of one, and what may be computed of it."""
        x = self.pick(1)
        shape, axis = self.add("Shape", x), self.axis(x)
        match self.rng.randrange(4):
            case 0:
                number = self.add("Gather", shape, self.ints(axis), axis=0)
            case 1:
                scalar = self.add("Gather", shape, self.constant(np.array(axis, np.int64)), axis=0)
                number = self.add("Unsqueeze", scalar, self.ints(0))
            case 2:
                at = axis % self.rank(x)
                number = self.add("Slice", shape, self.ints(at), self.ints(at + 1), self.ints(0))
            case _:
                number = self.add("Shape", x, start=axis % self.rank(x), end=axis % self.rank(x) + 1)
        return self.changed(number)

    def changed(self, number: str) -> str:
        match self.rng.randrange(9):
            case 0:
                return self.add(self.rng.choice(("Add", "Sub")), number, self.ints(1))
            case 1:
                return self.add("Mul", number, self.ints(2))
            case 2:
                return self.add("Div", number, self.ints(2))
            case 3:
                return self.add(self.rng.choice(("Min", "Max")), number, self.ints(self.rng.choice((1, 3, 100))))
            case 4:
                other = self.rng.choice((1, -1))  # 1 for -1, as exporters write it for an Expand
                is_asked = self.add("Equal", number, self.ints(-1 if other == 1 else 3))
                return self.add("Where", is_asked, self.ints(other), number)
            case 5:
                real = self.add("Cast", number, to=TensorProto.FLOAT)
                if self.rng.random() < 0.5:
                    half = self.add("Div", real, self.add("Cast", self.ints(2), to=TensorProto.FLOAT))
                else:
                    half = self.add("Mul", real, self.constant(np.array([0.5], np.float32)))
                return self.add("Cast", self.add("Ceil", half), to=TensorProto.INT64)
        return number

    def numbers(self) -> str:
        parts = [self.length() if self.rng.random() < 0.7 else self.ints(self.rng.choice((1, 2, 4)))]
        for _ in range(self.rng.randrange(3)):
            parts.append(self.length() if self.rng.random() < 0.6 else self.ints(self.rng.choice((1, 1, 2, 4))))
        return self.add("Concat", *parts, axis=0) if len(parts) > 1 else parts[0]

    def filled(self) -> None:
        value = numpy_helper.from_array(np.array([0.5], np.float32))
        self.add("ConstantOfShape", self.numbers(), value=value)

    def counted(self) -> None:
        zero, step = (self.constant(np.array(n, np.int64)) for n in (0, self.rng.choice((1, 1, 2))))
        limit = self.add("Squeeze", self.length(), self.ints(0))
        self.add("Cast", self.add("Range", zero, limit, step), to=TensorProto.FLOAT)

    def expand(self) -> None:
        x = self.pick()
        target = self.add("Shape", self.pick()) if self.rng.random() < 0.6 else self.numbers()
        if any(0 in v for v in self.values[target]):
            raise ValueError("ONNX Runtime drops an Expand to a constant 0")
        self.add("Expand", x, target)

    def tile(self) -> None:
        x = self.pick(1)
        self.add("Tile", x, self.ints(*(self.rng.choice((1, 2)) for _ in range(self.rank(x)))))

    def reshape(self) -> None:
        x = self.pick(1)
        target = self.target(x)
        if target[0] != "c" and any(0 in v for v in self.values[target]):
            raise ValueError("a 0 that is no size of the operand becomes one")
        self.add("Reshape", x, target)

    def target(self, x: str) -> str:
        match self.rng.randrange(4):
            case 0:
                return self.add("Shape", self.pick())
            case 1:
                return self.ints(0, -1) if self.rank(x) > 1 else self.ints(-1, 1)
            case 2:
                return self.numbers()
            case _:
                shape = self.add("Shape", x)
                axes = self.rng.sample(range(self.rank(x)), self.rng.randrange(self.rank(x)))
                kept = [self.add("Gather", shape, self.ints(a), axis=0) for a in axes]
                kept.insert(self.rng.randrange(len(kept) + 1), self.ints(-1))
                if self.rng.random() < 0.4:
                    kept.insert(self.rng.randrange(len(kept) + 1), self.ints(2))
                return self.add("Concat", *kept, axis=0) if len(kept) > 1 else kept[0]


OPERATORS = (
    *(Drawn.slice,) * 5,
    *(Drawn.reshape, Drawn.expand, Drawn.binary, Drawn.filled) * 3,
    *(Drawn.concat, Drawn.split, Drawn.pad, Drawn.where, Drawn.squeeze, Drawn.matmul, Drawn.counted, Drawn.gather) * 2,
    *(Drawn.unary, Drawn.transpose, Drawn.reduce, Drawn.flatten, Drawn.tile),
)


def draw(
    rng: Random, least: int = 1, kind: type[Drawn] = Drawn, operators: Sequence[Callable[..., None]] = OPERATORS
) -> tuple[onnx.ModelProto, list[dict[str, np.ndarray]]]:
    """A graph, and inputs for it of a few sizes, of which each is at least `least`."""
    names = "abcd"
    sizes = [{n: max(least, rng.choice((0, 1, 1, 2, 3, 4, 6, 7, 12))) for n in names} for _ in range(3)]
    drawn = kind(rng, sizes)
    for _ in range(rng.randrange(2, 4)):
        drawn.give([rng.choice((*names, *names, 1, 2, 4)) for _ in range(rng.randrange(1, 4))])
    for _ in range(STEPS):
        kept = len(drawn.nodes), dict(drawn.values)
        try:
            rng.choice(operators)(drawn)
        except ValueError:
            del drawn.nodes[kept[0] :]
            drawn.values = kept[1]
    feeds = [{n: drawn.values[n][i] for n in drawn.inputs} for i in range(len(sizes))]
    return _model(drawn), feeds


def read_by(node: onnx.NodeProto) -> Iterator[str]:
    """What a node and its bodies read."""
    yield from node.input
    for body in (a.g for a in node.attribute if a.HasField("g")):
        for inner in body.node:
            yield from read_by(inner)


def _model(drawn: Drawn) -> onnx.ModelProto:
    read = {name for node in drawn.nodes for name in read_by(node)}
    made = {n: drawn.values[n][0] for node in drawn.nodes for n in node.output}
    claims = [
        _info(n, v, [drawn.rng.choice("abcde") for _ in range(v.ndim)])
        for n, v in made.items()
        if drawn.rng.random() < 0.3
    ]
    graph = helper.make_graph(
        drawn.nodes,
        "drawn",
        [_info(n, drawn.values[n][0], dims) for n, dims in drawn.inputs.items()],
        [_info(n, v, None) for n, v in made.items() if n not in read],
        [numpy_helper.from_array(a, n) for n, a in drawn.constants.items() if n in read],
        value_info=[c for c in claims if c.name in read],
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", OPSET)])


def _info(name: str, array: np.ndarray, dims: Sequence[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), dims)


def _as_model(node: onnx.NodeProto, inputs: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    given = [_info(name, array, None) for name, array in inputs.items()]
    made = [helper.make_empty_tensor_value_info(n) for n in node.output]
    graph = helper.make_graph([node], "one", given, made)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", OPSET)])


def opened(model: onnx.ModelProto) -> ort.InferenceSession:
    return _session.__wrapped__(model.SerializeToString())


@lru_cache(maxsize=4096)
def _session(model: bytes) -> ort.InferenceSession:
    quiet = ort.SessionOptions()
    quiet.log_severity_level = 4
    quiet.intra_op_num_threads = 1
    return ort.InferenceSession(model, quiet, providers=["CPUExecutionProvider"])


def run_each(model: onnx.ModelProto, feeds: Sequence[Mapping[str, np.ndarray]]) -> list[list[np.ndarray]] | None:
    """What a model gives for each of these inputs; None if ONNX Runtime does not run it."""
    try:
        session = opened(model)
        return [session.run(None, feed) for feed in feeds]
    except Exception:
        return None


def assert_optimized_agrees(
    source: Path, feeds: Sequence[Mapping[str, np.ndarray]], expected: Sequence[Sequence[np.ndarray]]
) -> None:
    """What is written for the model at `source`, beside it, gives what is expected for each of these inputs."""
    output = source.with_name("f.onnx")
    fusion_cli.optimize(source, output, targets=["portable"], verify=False)
    optimized = opened(onnx.load(output))
    for feed, wanted in zip(feeds, expected, strict=True):
        for a, b in zip(optimized.run(None, feed), wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
