"""Every operator that anything here has to know of, once: whatever treats operators differently asks this table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from fusion_cli.operators.elementwise import ELEMENTWISE, Array
from fusion_cli.operators.operator import Operator, Trait

_ROWS = (
    Operator("LayerNormalization", "row layer", work=(6, 0)),
    Operator("LogSoftmax", "row", work=(3, 1)),
    Operator("RMSNormalization", "row layer", work=(4, 0)),
    Operator("ReduceProd", "row counting"),
    Operator("SimplifiedLayerNormalization", "row", work=(4, 0)),
    Operator("Softmax", "row layer", work=(3, 1)),
    *(
        Operator(f"Reduce{kind}", "row")
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Sum", "SumSquare")
    ),
)
_MOVES = (
    Operator("Expand", "move arranging transparent cheap"),
    Operator("Flatten", "move reshape arranging"),
    Operator("Reshape", "move reshape arranging counting"),
    Operator("Squeeze", "move reshape arranging counting"),
    Operator("Transpose", "move arranging"),
    Operator("Unsqueeze", "move reshape arranging counting"),
)
_OTHERS = (
    Operator("Attention", "layer"),
    Operator("BatchNormalization", work=(2, 0)),
    Operator("Concat", "arranging counting"),
    Operator("ConstantOfShape", "counting"),
    Operator("Conv", "layer"),
    Operator("ConvTranspose", "layer"),
    Operator("DepthToSpace", "arranging"),
    Operator("Dropout", "transparent linear", np.asarray),
    Operator("FusedMatMul", "product", domain="com.microsoft"),
    Operator("Gather", "arranging counting picking"),
    Operator("Gemm", "product layer"),
    Operator("GroupNormalization", work=(6, 0)),
    Operator("InstanceNormalization", work=(6, 0)),
    Operator("MatMul", "product layer"),
    Operator("ScatterND", "overwriting"),
    Operator("Shape", "arranging counting"),
    Operator("Size", "counting"),
    Operator("SkipLayerNormalization", domain="com.microsoft", work=(7, 0)),
    Operator("SkipSimplifiedLayerNormalization", domain="com.microsoft", work=(5, 0)),
    Operator("Slice", "arranging counting picking"),
    Operator("Split", "picking"),
)
OPERATORS: Mapping[tuple[str, str], Operator] = {
    (o.domain, o.name): o for o in (*ELEMENTWISE, *_ROWS, *_MOVES, *_OTHERS)
}
_WORK = {o.name: o.work or ((0, 1) if o.is_special else (1, 0)) for o in OPERATORS.values()}


def having(trait: Trait, domain: str = "") -> frozenset[str]:
    """The names of a domain's operators that have a trait. To be asked once, not by node."""
    return frozenset(o.name for o in OPERATORS.values() if o.domain == domain and o.has(trait))


ELEMENTWISE_NAMES = having("elementwise")
ROW_OPERATORS = having("row")
MOVES = having("move")
RESHAPES = having("reshape")
ARRANGING = having("arranging")
COUNTING = having("counting")
COMMUTATIVE = having("commutative")
GLOBAL_POOLS = frozenset({"GlobalAveragePool", "GlobalMaxPool"})
"""What makes one number of all positions of each channel."""
POOLS = frozenset({"AveragePool", "MaxPool"})
"""What makes one number of the positions in a window that moves over them."""
CONTRIBUTED = frozenset({"SimplifiedLayerNormalization"})
"""Operators that ONNX Runtime adds to ONNX's own domain."""
_ELEMENTWISE = frozenset((o.domain, o.name) for o in ELEMENTWISE)


def is_elementwise(node: ir.Node) -> bool:
    """Whether each element of the node's result is made of the elements that lie there in its operands."""
    return (node.domain, node.op_type) in _ELEMENTWISE


def is_known(domain: str, op: str) -> bool:
    """Whether `evaluate` can compute an operator."""
    found = OPERATORS.get((domain, op))
    return found is not None and (found.meaning or found.made_of) is not None


def work_of(op: str) -> tuple[int, int]:
    """Simple and special operations per element of an operator as ONNX Runtime runs it in one node."""
    return _WORK.get(op, (1, 0))


def evaluate(domain: str, op: str, arguments: Sequence[Any], attributes: Mapping[str, Any]) -> Array:
    """What a known operator makes of its arguments. An omitted argument is None."""
    operator = OPERATORS[domain, op]
    given = {name: attributes[name] for name in operator.parameters if name in attributes}
    function = partial(operator.made_of, _apply) if operator.made_of else operator.meaning
    assert function is not None
    return np.asarray(function(*arguments[: operator.arity], **given))


def _apply(op: str, *operands: Any) -> Any:
    meaning = OPERATORS["", op].meaning
    assert meaning is not None
    return meaning(*operands)
