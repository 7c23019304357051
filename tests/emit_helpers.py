"""Hand-written plans as one-node models: emitted, built, run by ONNX Runtime."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
from onnx import TensorProto, helper

from fusion_cli.build import build
from fusion_cli.emit import emit, emit_registration
from fusion_cli.emit.expr import onnx_type
from fusion_cli.plan.ir import HostOp, Instr, Operand, Plan, Stage, Tensor
from fusion_cli.types import FusedOp, Library, Target, TensorSpec

CPU = Target("cpu", "cpu")
Shape = tuple[int | str, ...]


class PlanBuilder:
    """Writes down a plan: tensors and host values are numbered in the order they are added."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.host: list[HostOp] = []
        self.stages: list[Stage] = []
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.buffers = 0

    def dims(self, kind: str, args: Sequence[int] = (), ints: Sequence[int] = ()) -> int:
        self.host.append(HostOp(kind, tuple(args), tuple(ints)))
        return len(self.host) - 1

    def input(self, dtype: str, shape: Shape) -> int:
        slot = len(self.inputs)
        self.tensors.append(Tensor("input", slot, dtype, shape, self.dims("dims", ints=(slot,)), f"in{slot}"))
        self.inputs.append(len(self.tensors) - 1)
        return self.inputs[-1]

    def output(self, dtype: str, shape: Shape, dims: int) -> int:
        self.tensors.append(Tensor("output", len(self.outputs), dtype, shape, dims, f"out{len(self.outputs)}"))
        self.outputs.append(len(self.tensors) - 1)
        return self.outputs[-1]

    def temp(self, dtype: str, shape: Shape, dims: int) -> int:
        self.tensors.append(Tensor("temp", self.buffers, dtype, shape, dims))
        self.buffers += 1
        return len(self.tensors) - 1

    def alias(self, tensor: int, shape: Shape, dims: int) -> int:
        self.tensors.append(Tensor("alias", tensor, self.tensors[tensor].dtype, shape, dims))
        return len(self.tensors) - 1

    def dims_of(self, tensor: int) -> int:
        return self.tensors[tensor].dims

    def plan(self, host_inputs: tuple[int, ...] = ()) -> Plan:
        parts = (self.tensors, self.host, self.stages)
        tensors, host, stages = (tuple(p) for p in parts)
        return Plan(tensors, host, stages, tuple(self.inputs), tuple(self.outputs), self.buffers, host_inputs)


class Program:
    """Writes down instructions; every method returns the new instruction's number."""

    def __init__(self, dtype: str = "float32") -> None:
        self.dtype = dtype
        self.code: list[Instr] = []

    def load(self, operand: int, dtype: str = "") -> int:
        return self._add(Instr("load", (), dtype or self.dtype, operand))

    def const(self, value: float, dtype: str = "") -> int:
        return self._add(Instr("const", (), dtype or self.dtype, value))

    def op(self, name: str, *args: int, dtype: str = "", value: float | None = None) -> int:
        return self._add(Instr(name, args, dtype or self.dtype, value))

    def _add(self, instr: Instr) -> int:
        self.code.append(instr)
        return len(self.code) - 1

    def __iter__(self) -> Iterator[Instr]:
        return iter(self.code)


def operands(*tensors: int | tuple[int, tuple[int, ...]]) -> tuple[Operand, ...]:
    return tuple(Operand(t) if isinstance(t, int) else Operand(*t) for t in tensors)


def fused_op(
    name: str,
    plan: Plan | None,
    inputs: Sequence[TensorSpec] = (),
    outputs: Sequence[TensorSpec] = (),
    kernel: str = "auto",
    nodes: Sequence[ir.Node] = (),
) -> FusedOp:
    function = ir.Function("fusion", name, "", graph=ir.Graph([], [], nodes=nodes), attributes=[])
    if plan is not None:
        inputs = [_spec(plan, t) for t in plan.inputs]
        outputs = [_spec(plan, t) for t in plan.outputs]
    return FusedOp(name, "Test", kernel, function, plan, tuple(inputs), tuple(outputs), (), (), ("cpu",))


def _spec(plan: Plan, tensor: int) -> TensorSpec:
    if tensor < 0:
        return TensorSpec("shape", "int64", (None,))
    found = plan.tensors[tensor]
    return TensorSpec(found.name, found.dtype, found.shape)


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
    feeds = {f"i{k}": _ort_value(a) for k, a in enumerate(arrays)}
    results = session.run_with_ort_values([o.name for o in session.get_outputs()], feeds)
    return [_array(r) for r in results]


def _ort_value(array: np.ndarray) -> ort.OrtValue:
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
