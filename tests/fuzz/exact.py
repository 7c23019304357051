"""Whether results that differ from ONNX Runtime's are as near to exact ones: of the same graph in double precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.ops import op_loop

from fusion_cli.verify.whole_model import Case

_FURTHER = 4.0
"""How many times as far as ONNX Runtime's results may be: both have errors of chance."""
_FLOAT, _DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE


def is_as_exact(data: bytes, cases: Sequence[Case], fused: Sequence[Mapping[str, np.ndarray]]) -> bool:
    """`fused`: its results in each of the cases, which have ONNX Runtime's. False where ONNX's reference does not run
    the graph in double precision, or gives another shape, or where there are NaN or infinities."""
    proto = onnx.ModelProto.FromString(data)
    _widen(proto.graph)
    try:
        names, runner = [y.name for y in proto.graph.output], ReferenceEvaluator(proto, new_ops=[Loop])
        with np.errstate(all="ignore"):
            exact = [dict(zip(names, runner.run(None, _wide(case.feeds)), strict=True)) for case in cases]
    except Exception:  # whatever the reference does not know
        return False
    theirs = [case.outputs for case in cases]
    if any(one[n].shape != run[n].shape for one, run in zip(theirs, exact, strict=True) for n in run):
        return False  # the reference squeezes what GlobalMaxPool gives
    return all(_error(name, fused, exact) <= _FURTHER * _error(name, theirs, exact) for name in exact[0])


class Loop(op_loop.Loop):
    """ONNX's, which puts what iterations give one behind the other along their first axis, and not along a new one."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        run, carried = self._run_body, 1 + self.N

        def run_body(*given: Any, **named: Any) -> list[np.ndarray]:
            outputs = run(*given, **named)
            return [*outputs[:carried], *(each[np.newaxis] for each in outputs[carried:])]

        self._run_body = run_body


def _error(name: str, found: Sequence[Mapping[str, np.ndarray]], exact: Sequence[Mapping[str, np.ndarray]]) -> float:
    """The largest in all cases; NaN, of which no comparison holds, where one is not finite."""
    off = [one[name].astype(np.float64) - other[name] for one, other in zip(found, exact, strict=True)]
    return float(np.max([np.abs(each).max(initial=0.0) for each in off]))


def _wide(feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: x.astype(np.float64) if x.dtype == np.float32 else x for name, x in feeds.items()}


def _widen(graph: onnx.GraphProto) -> None:
    """Every float32 becomes float64, in place."""
    for tensor in graph.initializer:
        _widen_tensor(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == _FLOAT:
            value.type.tensor_type.elem_type = _DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype") and attribute.i == _FLOAT:
                attribute.i = _DOUBLE
            if attribute.HasField("t"):
                _widen_tensor(attribute.t)
            if attribute.HasField("g"):
                _widen(attribute.g)


def _widen_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == _FLOAT:
        wide = onnx.numpy_helper.to_array(tensor).astype(np.float64)
        tensor.CopyFrom(onnx.numpy_helper.from_array(wide, tensor.name))
