"""The operators that growing patterns and regions are made of, by kind."""

from __future__ import annotations

from functools import cache

import onnx
import onnx_ir as ir

ELEMENTWISE = frozenset(
    """
    Abs Add And Cast Ceil Celu Clip Cos Div Elu Equal Erf Exp Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish
    Identity IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow Reciprocal Relu
    Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Sub Sum Swish Tanh ThresholdedRelu Where Xor
    """.split()
)
CONTRIBUTED_ELEMENTWISE = frozenset({"BiasGelu", "FastGelu", "Gelu", "QuickGelu"})
"""The same of the domain com.microsoft."""
ROW_OPERATORS = frozenset(
    """
    LayerNormalization LogSoftmax RMSNormalization ReduceL2 ReduceMax ReduceMean ReduceMin ReduceSum ReduceSumSquare
    Softmax
    """.split()
)
MOVES = frozenset("Expand Flatten Identity Reshape Squeeze Transpose Unsqueeze".split())
"""Operators that only say where numbers lie."""
RESHAPES = frozenset("Flatten Identity Reshape Squeeze Unsqueeze".split())
"""Moves that keep the order of the numbers."""
OVERWRITES = frozenset({"ScatterND"})
"""Operators that write into a part of a copy of their first input."""

ARRANGING = MOVES | {"Concat", "Gather", "Shape", "Slice"}
"""Operators that compute nothing but where numbers lie."""
CONTRIBUTED = frozenset({"SimplifiedLayerNormalization"})
"""Operators that ONNX Runtime adds to ONNX's own domain."""

SHAPE_OPERATORS = frozenset(
    """
    Add Cast Concat ConstantOfShape Div Equal Gather Identity Max Min Mod Mul ReduceProd Reshape Shape Slice Squeeze Sub
    Unsqueeze Where
    """.split()
)
"""Operators that exporters compute shapes with at run time."""
COMMUTATIVE = frozenset("Add And Equal Max Mean Min Mul Or Sum Xor".split())
"""Operators whose operands may stand in any order."""


def is_elementwise(node: ir.Node) -> bool:
    """Whether each element of the node's result is made of the elements that lie there in its operands."""
    if node.domain == "com.microsoft":
        return node.op_type in CONTRIBUTED_ELEMENTWISE
    return not node.domain and node.op_type in ELEMENTWISE


@cache
def first_opset(operator: str) -> int:
    """The opset that brought an operator of ONNX's own domain."""
    schemas = onnx.defs.get_all_schemas_with_history()
    return min(s.since_version for s in schemas if s.name == operator and not s.domain)
