"""A region while it is lowered: what each ONNX value became, as a tensor and as a shape value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from graphlib import TopologicalSorter

import numpy as np
import onnx_ir as ir

from fusion_cli.codes import plan as codes
from fusion_cli.errors import Unsupported
from fusion_cli.operators.operands import operand
from fusion_cli.operators.versions import integers
from fusion_cli.plan.graph import Val
from fusion_cli.plan.lowering import Builder, dtype_name
from fusion_cli.simplify.algebra.positions import counted_from
from fusion_cli.sizes.algebra import Shape, unknown
from fusion_cli.sizes.dims import shape_of
from fusion_cli.types import Region

HostRule = Callable[["Context", ir.Node], int]


class Context:
    """Access to the region's values for lowering rules; `b` builds the tensor program."""

    def __init__(self, region: Region, host_rules: dict[str, HostRule]) -> None:
        self.b = Builder()
        self.region = region
        self.nodes = _sorted((*region.remade, *region.nodes))
        self.tensors: dict[ir.Value, Val] = {}
        self._shape_values: dict[ir.Value, int] = {}
        self._host_rules = host_rules
        self._constants = set(region.constants)
        self._slots = {v: i for i, v in enumerate(region.inputs)}
        self._counted = {v: axis for v, axis, _ in region.positions}
        self._producers = {v: n for n in (*region.nodes, *region.shape_nodes) for v in n.outputs}

    # Operands of a node

    def optional(self, node: ir.Node, index: int) -> Val | None:
        """Input `index` as a tensor, if it is there."""
        value = operand(node, index)
        return None if value is None else self.tensor(value)

    def operand(self, node: ir.Node, index: int) -> Val:
        found = self.optional(node, index)
        if found is None:
            raise Unsupported(codes.ATTRIBUTE, f"input {index} of {node.op_type}", "none")
        return found

    def operands(self, node: ir.Node) -> list[Val]:
        return [self.tensor(v) for v in node.inputs if v is not None]

    def literal(self, value: ir.Value | None) -> np.ndarray | None:
        """The elements of a constant of the region."""
        if value is None:
            return None
        producer = value.producer()
        if producer is not None and producer.op_type == "Constant" and value.const_value is None:
            tensor = producer.attributes.get_tensor("value")
            return None if tensor is None else np.asarray(tensor.numpy())
        if value in self._constants and value.const_value is not None:
            return np.asarray(value.const_value.numpy())
        return None

    def vector(self, node: ir.Node, name: str) -> int | None:
        """Integers that are an attribute in some operator sets and an input in others, as a shape value."""
        found = integers(node, name)
        return (
            self.b.shapes.const(found)
            if isinstance(found, tuple)
            else None
            if found is None
            else self.shape_value(found)
        )

    def ints(self, node: ir.Node, name: str) -> tuple[int, ...] | None:
        """The same where they are constant."""
        found = self.vector(node, name)
        return None if found is None else self.known(found, f"{name} of {node.op_type}")

    def known(self, host: int, what: str) -> tuple[int, ...]:
        """The elements of a shape value that has to be constant."""
        found = self.b.literals(host)
        if None in found:
            raise Unsupported(codes.CONSTANT, f"constant {what}", "a computed input")
        return tuple(k for k in found if k is not None)

    # Values

    def tensor(self, value: ir.Value) -> Val:
        """The value as a tensor."""
        if value not in self.tensors:
            self.tensors[value] = self._leaf(value)
        return self.tensors[value]

    def _leaf(self, value: ir.Value) -> Val:
        array = self.literal(value)
        if array is not None:
            counted = counted_from(array)
            if counted is not None:
                return self._positions(self.b.shapes.const(array.shape), *counted, dtype_name(value.dtype))
            return self.b.array(array, dtype_name(value.dtype), str(value.name))
        if value in self._counted:
            sizes = self.b.shapes.source("dims", self._slots[value], self.annotation(value))
            return self._positions(sizes, self._counted[value], 0, dtype_name(value.dtype))
        if value in self._slots:
            return self.b.input(self._slots[value], dtype_name(value.dtype), self.annotation(value), str(value.name))
        if value in self._producers:
            return self._host_tensor(value)
        raise Unsupported(codes.DANGLING, "a value of the region", f"{value.name}")

    def _positions(self, dims: int, axis: int, first: int, dtype: str) -> Val:
        """The numbers from `first` on along an axis, which is counted from the end."""
        found = self.b.cast(self.b.positions(axis, dims), dtype)
        return self.b.apply("Add", found, first) if first else found

    def _host_tensor(self, value: ir.Value) -> Val:
        """Shape arithmetic read as data: possible where its outcome is one known number."""
        elements = self.b.literals(self.shape_value(value))
        if len(elements) != 1 or elements[0] is None:
            raise Unsupported(
                codes.SHAPE_PROGRAM, "shape arithmetic used for shapes only", f"{value.name} used as data"
            )
        rank = 0 if value.shape is None else len(value.shape)
        return self.b.const(elements[0], dtype_name(value.dtype), (1,) * rank)

    def shape_value(self, value: ir.Value) -> int:
        """The value as an integer vector of the shape program (a scalar is a vector of one)."""
        if value not in self._shape_values:
            self._shape_values[value] = self._find_shape_value(value)
        return self._shape_values[value]

    def _find_shape_value(self, value: ir.Value) -> int:
        array = self.literal(value)
        if array is not None:
            if array.dtype.kind not in "ibu":
                raise Unsupported(codes.SHAPE_PROGRAM, "integers", f"{value.name} of type {array.dtype}")
            return self.b.shapes.const([int(i) for i in array.reshape(-1)])
        if value in self._slots:
            return self._read(value)
        node = self._producers.get(value)
        if node is None:
            raise Unsupported(codes.DANGLING, "a value of the region", f"{value.name}")
        rule = self._host_rules.get(node.op_type)
        if rule is None or node.domain not in ("", "ai.onnx"):
            raise Unsupported(codes.SHAPE_PROGRAM, "shape arithmetic", f"{node.op_type} computing {value.name}")
        return rule(self, node)

    def _read(self, value: ir.Value) -> int:
        shape = self.annotation(value)
        if len(shape) > 1 or dtype_name(value.dtype) not in ("int64", "int32"):
            raise Unsupported(codes.SHAPE_PROGRAM, "an integer vector", f"{value.name} of type {value.dtype}")
        count = self.b.fixed(shape[0], f"{value.name}, a shape") if shape else 1
        elements = tuple(unknown(f"{id(value)}_{i}", signed=True) for i in range(count))
        return self.b.shapes.source("read", self._slots[value], elements)

    def annotation(self, value: ir.Value) -> Shape:
        """What shape inference said of the value."""
        shape = shape_of(value)
        if shape is None:
            raise Unsupported(codes.UNKNOWN_RANK, "a tensor of known rank", f"{value.name} of unknown rank")
        return shape

    def bind(self, value: ir.Value, val: Val) -> None:
        """Record what an output of a node became, and learn from what shape inference knew of it."""
        self.tensors[value] = val
        if value.shape is not None and len(value.shape) == len(val.shape):
            self.b.merge_shape(val, self.annotation(value))


def read_besides(node: ir.Node, made: Sequence[int] = (0,)) -> ir.Value | None:
    """An output besides those that are `made` which somebody reads."""
    others = (v for i, v in enumerate(node.outputs) if i not in made)
    return next((v for v in others if v.uses() or v.is_graph_output()), None)


def normalized_axis(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def trailing(axes: Sequence[int], rank: int) -> int:
    """The first of `axes` if they are the last axes of a tensor of this rank, in any order; else Unsupported."""
    chosen = sorted({normalized_axis(a, rank) for a in axes})
    if not chosen or chosen != list(range(chosen[0], rank)):
        raise Unsupported(codes.REDUCED_AXES, "the last axes", f"axes {list(axes)} of rank {rank}")
    return chosen[0]


def _sorted(nodes: Sequence[ir.Node]) -> list[ir.Node]:
    inside = set(nodes)
    sorter: TopologicalSorter[ir.Node] = TopologicalSorter()
    for node in nodes:
        producers = (v.producer() for v in node.inputs if v is not None)
        sorter.add(node, *(p for p in producers if p is not None and p in inside))
    return list(sorter.static_order())
