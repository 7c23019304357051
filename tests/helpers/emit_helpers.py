"""Operators as one-node models: emitted, built, run by ONNX Runtime."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from fusion_cli.build import build
from fusion_cli.codegen.expr import onnx_type
from fusion_cli.emit import emit, emit_registration
from fusion_cli.types import FusedOp, Library, Target

CPU = Target("cpu", "cpu")


@cache
def cache_dir() -> Path:
    return Path(tempfile.mkdtemp(prefix="fusion-test-cache-"))


def library(ops: Sequence[FusedOp], out_dir: Path, template_paths: Sequence[Path] = ()) -> Library:
    sources = [emit(op, CPU, template_paths=template_paths) for op in ops]
    return build([*sources, emit_registration(CPU, ops)], CPU, out_dir, cache_dir=cache_dir())


def one_node_model(op: FusedOp) -> onnx.ModelProto:
    """A graph of one call of `op`; the operator exists only in a library."""
    ins = [helper.make_tensor_value_info(f"i{k}", onnx_type(s.dtype), None) for k, s in enumerate(op.inputs)]
    outs = [helper.make_tensor_value_info(f"o{k}", onnx_type(s.dtype), None) for k, s in enumerate(op.outputs)]
    node = helper.make_node(op.name, [i.name for i in ins], [o.name for o in outs], "the node", domain="fusion")
    graph = helper.make_graph([node], "g", ins, outs)
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("fusion", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def open_session(op: FusedOp, path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 2
    options.register_custom_ops_library(str(path))
    return ort.InferenceSession(one_node_model(op).SerializeToString(), options, providers=["CPUExecutionProvider"])


def run(session: ort.InferenceSession, *arrays: np.ndarray) -> list[np.ndarray]:
    """One run; bfloat16 arrays (ml_dtypes) go in and come out through OrtValues, as numpy has no such type."""
    feeds = {f"i{k}": ort_value(a) for k, a in enumerate(arrays)}
    results = session.run_with_ort_values([o.name for o in session.get_outputs()], feeds)
    return [_array(r) for r in results]


def ort_value(array: np.ndarray) -> ort.OrtValue:
    """An array, of bfloat16 too, as ONNX Runtime's own."""
    if array.dtype == ml_dtypes.bfloat16:
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), TensorProto.BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(array)


def _array(value: ort.OrtValue) -> np.ndarray:
    if value.element_type() != TensorProto.BFLOAT16:
        return value.numpy()
    size = int(np.prod(value.shape()))
    if not size:
        return np.zeros(value.shape(), ml_dtypes.bfloat16)
    words = (ctypes.c_uint16 * size).from_address(value.data_ptr())
    return np.frombuffer(words, np.uint16).copy().view(ml_dtypes.bfloat16).reshape(value.shape())
