"""What the built-in patterns take in, and what a set of nodes has to be to count as one of them.

Pointwise   elementwise operators, any arrangement, operands broadcast to one shape
Rowwise     those, and reductions, softmax and norms over the last axis
Move        reshapes, transposes and their like: data moves, no number changes; casts between them count as none
Convolutions  convolutions with constant filters, and elementwise operators on images, of any sizes

Pointwise <reshapes = 1> goes through reshapes too that keep the last axis, and through writes into a part of a value;
<closed = 1> reads nothing but its source and constants, <factors = 1> multiplies it and puts zeros in places, nothing
else; Move <scalars = 1> goes through products and quotients with one number; Convolutions <mixers = 1> takes in norms
of channels, products over them, pools, joins and parts (see match/mixers.py, match/rearranging.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx_ir as ir

from fusion_cli.graph.index import GraphIndex
from fusion_cli.graph.value_shapes import Shapes
from fusion_cli.language.pattern import Call
from fusion_cli.match.mixers import group_norms, mixers, mixes
from fusion_cli.match.rearranging import arranges, rearranged
from fusion_cli.operators.dtypes import DTYPES, ONNX_FLOATS
from fusion_cli.operators.enlarging import is_unfolding
from fusion_cli.operators.image_axes import IMAGE
from fusion_cli.operators.registry import MOVES, RESHAPES, ROW_OPERATORS, having, is_elementwise
from fusion_cli.sizes.algebra import ONE, Shape, product
from fusion_cli.sizes.dims import shape_of

_DATA = ONNX_FLOATS | {ir.DataType.BOOL}
_OVERWRITING = having("overwriting")
ROWWISE = {"axis": -1, "axes": [-1], "keepdims": 1}
"""What Rowwise asks of the attributes of operators that are not elementwise."""
_LARGEST = DTYPES["float16"].largest
"""The largest number of the narrowest float type."""


class Members:
    """What may be part of a grown region of one graph."""

    def __init__(self, index: GraphIndex) -> None:
        self.index = index
        self.shapes = Shapes(index)
        self._convolves = any(map(_is_convolution, index.nodes))
        self._mixers = self._find_mixers() if self._convolves else frozenset()

    def _find_mixers(self) -> frozenset[ir.Node]:
        index = self.index
        return mixers(index, self._is_rowwise) | group_norms(index) | rearranged(index)

    def allows(self, call: Call, node: ir.Node) -> bool:
        """Whether the call takes in such an operator, with such attributes."""
        if call.op == "Convolutions":
            mixed = bool(call.attributes.get("mixers")) and self._mixes(node)
            return self._convolves and (mixed or self._is_of_images(node))
        if call.op != "Move" and is_elementwise(node):
            return True
        if node.domain:
            return False
        if call.op == "Move":
            moves = node.op_type in MOVES or self.index.is_transparent(node)
            return moves or bool(call.attributes.get("scalars") and self._is_scaling(node))
        if call.attributes.get("reshapes") and (node.op_type in RESHAPES or self.index.is_transparent(node)):
            return self._keeps_rows(node)
        if call.attributes.get("reshapes") and node.op_type in _OVERWRITING:
            return True
        return call.op == "Rowwise" and self._is_rowwise(node)

    def _is_rowwise(self, node: ir.Node) -> bool:
        """Whether the node is elementwise, or of the rows along the last axis."""
        if is_elementwise(node):
            return True
        if node.domain or node.op_type not in ROW_OPERATORS:
            return False
        attributes = self.index.attributes(node)
        return len(node.outputs) == 1 and all(attributes.get(n, asked) == asked for n, asked in ROWWISE.items())

    def _mixes(self, node: ir.Node) -> bool:
        return node in self._mixers or mixes(self.index, node) or arranges(self.index, node)

    def _is_of_images(self, node: ir.Node) -> bool:
        """Whether the node is a convolution with a constant filter, or makes an image element by element."""
        if _is_convolution(node):
            return all(v is None or self.index.is_constant(v) for v in node.inputs[1:])
        shape = node.outputs[0].shape
        return is_elementwise(node) and shape is not None and len(shape) >= IMAGE

    @staticmethod
    def are_of_kind(call: Call, group: Collection[ir.Node]) -> bool:
        """Whether a group is of the pattern's own kind: without a reduction it is Pointwise's to find."""
        if call.op == "Convolutions":
            # One by itself, turned over at both ends, is no better off than with ONNX Runtime; but for groups, of which
            # that runs one after the other, and where the model itself turns it over.
            turned = any(n.op_type == "Transpose" for n in group)
            return sum(map(_is_convolution, group)) > (0 if turned else 1) or any(map(_is_grouped, group))
        return call.op != "Rowwise" or any(n.op_type in ROW_OPERATORS for n in group)

    def _keeps_rows(self, node: ir.Node) -> bool:
        """Whether a reshape provably leaves the last axis as it is: a softmax over queries and keys is no softmax over
        keys."""
        if self.index.is_transparent(node):
            return True
        before, after = self._around(node)
        if not before or not after:
            return False
        return before[-1] == after[-1] or product(before[:-1]) == product(after[:-1])

    def may_keep_rows(self, call: Call, node: ir.Node) -> bool:
        """Whether all that keeps the call from taking the node is that it is a reshape of sizes not known."""
        if node.domain or node.op_type not in RESHAPES or not call.attributes.get("reshapes"):
            return False
        ends = [shape[-1].known for shape in self._around(node) if shape]
        return not self._keeps_rows(node) and (len(ends) < 2 or None in ends)

    def _around(self, node: ir.Node) -> tuple[Shape | None, Shape | None]:
        """The shapes before and after a reshape."""
        source = node.inputs[0]
        named = self.shapes.with_one_name
        return None if source is None else named(source), named(node.outputs[0])

    def _is_scaling(self, node: ir.Node) -> bool:
        """Whether the node multiplies or divides by one number."""
        if node.op_type not in ("Mul", "Div"):
            return False
        numbers = [_is_number(v) for v in node.inputs]
        return any(numbers[1:]) or (node.op_type == "Mul" and numbers[0])

    def operands(self, call: Call, node: ir.Node) -> list[ir.Value]:
        """What the node reads of which a region can grow on: nothing known beforehand, no shape to move data to."""
        values = node.inputs[:1] if node.op_type in MOVES or node.op_type in _OVERWRITING else node.inputs
        if call.op == "Move" and len(values) > 1:
            values = [v for v in values if not _is_number(v)]
        return [v for v in values if v is not None and not self.index.is_constant(v)]

    def is_data(self, node: ir.Node) -> bool:
        """Whether the node handles data rather than shapes."""
        output = node.outputs[0]
        return output.dtype in _DATA and output.shape is not None

    def keeps_shape(self, call: Call, node: ir.Node, source: ir.Value) -> bool:
        """Whether the node makes a value of the source's shape; Rowwise may reduce the last axis."""
        if call.op == "Move":
            return True
        wanted = self.shapes.of(source)
        if node.outputs[0].shape is None or wanted is None:
            return False
        shape = self.shapes.of_result(node)
        return shape == wanted or (call.op == "Rowwise" and shape == (*wanted[:-1], ONE))

    def have_one_shape(self, call: Call, nodes: Iterable[ir.Node]) -> bool:
        """Whether the nodes' results are of one shape, where the call asks for that; those of Rowwise may have the last
        axis reduced."""
        if call.op == "Convolutions":
            return True
        shapes = set(map(self.shapes.of_result, nodes))
        if call.op == "Pointwise":
            return len(shapes) == 1
        rows = {s[:-1] for s in shapes}
        widths = {s[-1] for s in shapes if s} - {ONE}
        return len(rows) == 1 and len(widths) <= 1 and all(shapes)

    def are_closed(self, call: Call, source: ir.Value, nodes: frozenset[ir.Node]) -> bool:
        """Whether the nodes read nothing but the source, each other and constants."""
        operands = (v for n in nodes for v in self.operands(call, n) if v is not source)
        return all(self.index.producer(v) in nodes for v in operands)

    def are_factors(self, source: ir.Value, nodes: frozenset[ir.Node]) -> bool:
        """Whether all that the nodes do to the source is to multiply it and to put zeros in places."""
        inside = {source, *(v for n in nodes for v in n.outputs)}

        def scales(node: ir.Node) -> bool:
            inner = [i for i, v in enumerate(node.inputs) if v in inside]
            if node.op_type == "Where":
                return any(self._is_guard(v, tested=0 in inner) for v in node.inputs[1:]) and inner[-1] > 0
            if node.op_type in ("Mul", "Div"):
                return inner == [0] or (node.op_type == "Mul" and inner == [1])
            if node.op_type == "Cast":
                return self.index.is_transparent(node)
            return node.op_type in MOVES or node.outputs[0].dtype == ir.DataType.BOOL

        return all(map(scales, nodes))

    def _is_guard(self, value: ir.Value | None, tested: bool) -> bool:
        """Whether a value is zero or, where the weights themselves are `tested`, a number as large as what infinities
        are replaced with: weights are never so."""
        number = self.index.scalar(value)
        return number is not None and (number == 0 or (tested and abs(number) >= _LARGEST))


def _is_convolution(node: ir.Node) -> bool:
    return (node.op_type == "Conv" and not node.domain) or is_unfolding(node)


def _is_grouped(node: ir.Node) -> bool:
    """Whether a convolution has several groups of several channels each."""
    groups = node.attributes.get_int("group", 1) if _is_convolution(node) else 1
    shape = node.inputs[1].shape if len(node.inputs) > 1 and node.inputs[1] is not None else None
    return groups is not None and groups > 1 and shape is not None and shape[1] != 1


def _is_number(value: ir.Value | None) -> bool:
    """Whether the value has a single element, whatever its rank."""
    shape = shape_of(value) if value is not None else None
    return shape is not None and all(size == ONE for size in shape)
