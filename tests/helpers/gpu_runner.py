"""Running operators on a GPU through ONNX Runtime's CUDA provider, on device memory held by torch."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import torch
from onnx import TensorProto, helper, numpy_helper

from benchmarks.contenders import Contender, captured, enqueuing
from fusion_cli.build import build
from fusion_cli.emit import emit, emit_registration
from fusion_cli.types import FusedOp, Library, Target

Array = np.ndarray
_OWN = "#define FUSION_VENDOR_FROM 1e300\n#define FUSION_PHASES_FROM 0\n#define FUSION_CUDNN false"
"""The library's own products of whatever size, of few rows those that are for large ones, and own convolutions."""


def gpu_target() -> Target:
    """The target that fits this machine's GPU."""
    major, minor = torch.cuda.get_device_capability()
    arch = f"sm_{major}{minor}{'a' if (major, minor) == (9, 0) else ''}"
    return Target(arch, "cuda", arch)


def build_library(ops: Sequence[FusedOp], folder: Path, *, vendor: bool = True) -> Library:
    """`vendor` False: products and convolutions by the library's own kernels, as where cuBLAS and cuDNN are missing."""
    target = gpu_target()
    sources = [emit(op, target) for op in ops]
    if not vendor:
        sources = [replace(s, text=f"{_OWN}\n{s.text}") for s in sources]
    sources.append(emit_registration(target, ops))
    cache = Path(os.environ["FUSION_CLI_CACHE"]) if "FUSION_CLI_CACHE" in os.environ else folder / "cache"
    return build(sources, target, folder, cache_dir=cache)


def onnx_element(dtype: str) -> int:
    return int(getattr(TensorProto, {"float32": "FLOAT", "float64": "DOUBLE"}.get(dtype, dtype.upper())))


def model_of(op: FusedOp, constants: Mapping[str, Array] | None = None) -> onnx.ModelProto:
    """A model of one node, the operator; `constants` are inputs of it that are none of the model's."""
    constants = constants or {}
    values = [
        [helper.make_tensor_value_info(s.name, onnx_element(s.dtype), list(s.shape)) for s in specs]
        for specs in ([s for s in op.inputs if s.name not in constants], op.outputs)
    ]
    node = helper.make_node(
        op.name, [s.name for s in op.inputs], [s.name for s in op.outputs], "the_node", domain="fusion"
    )
    graph = helper.make_graph([node], "g", *values, [numpy_helper.from_array(a, n) for n, a in constants.items()])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("fusion", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def to_device(array: Array) -> torch.Tensor:
    plain = array.view(np.int16) if array.dtype == ml_dtypes.bfloat16 else array
    return torch.from_numpy(np.ascontiguousarray(plain)).cuda()


class Runner:
    """One operator in a session of the CUDA provider, bound to fixed device buffers."""

    def __init__(
        self,
        op: FusedOp,
        library: Path,
        inputs: Sequence[Array],
        out_shapes: Sequence[Sequence[int]],
        *,
        graph: bool = False,
        tf32: bool = False,
        constants: Collection[int] = (),
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        """`constants`: inputs, by their position, that are constants of the model; `stream`: to run on, if not one of
        the session's."""
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.register_custom_ops_library(str(library))
        cuda = {"enable_cuda_graph": "1" if graph else "0", "use_tf32": "1" if tf32 else "0"}
        if stream is not None:
            cuda["user_compute_stream"] = str(stream.cuda_stream)
        self.stream = stream
        kept = {op.inputs[i].name: inputs[i] for i in constants}
        self.session = ort.InferenceSession(
            model_of(op, kept).SerializeToString(), options, providers=[("CUDAExecutionProvider", cuda)]
        )
        self.binding = self.session.io_binding()
        self.op = op
        self.inputs = [to_device(a) for a in inputs]
        for spec, array, tensor in zip(op.inputs, inputs, self.inputs, strict=True):
            if spec.name in kept:
                continue
            self._bind(self.binding.bind_input, spec.name, spec.dtype, array.shape, tensor)
        self.outputs = []
        for spec, shape in zip(op.outputs, out_shapes, strict=True):
            tensor = to_device(np.zeros(shape, ml_dtypes.bfloat16 if spec.dtype == "bfloat16" else spec.dtype))
            self.outputs.append(tensor)
            self._bind(self.binding.bind_output, spec.name, spec.dtype, shape, tensor)

    def _bind(self, bind, name: str, dtype: str, shape: Sequence[int], tensor: torch.Tensor) -> None:  # type: ignore[no-untyped-def]
        pointer = tensor.data_ptr() or torch.empty(16, device="cuda").data_ptr()
        bind(name, "cuda", 0, onnx_element(dtype), list(shape), pointer)

    def run(self) -> list[Array]:
        torch.cuda.synchronize()
        self.session.run_with_iobinding(self.binding)
        self.binding.synchronize_outputs()
        return self.results()

    def captured(self) -> Contender:
        """A graph that the caller makes of a run on its stream."""
        options = enqueuing()

        def enqueue() -> Sequence[torch.Tensor]:
            self.session.run_with_iobinding(self.binding, options)
            return self.outputs

        return captured(Contender(enqueue, self.stream))

    def give(self, inputs: Sequence[Array]) -> None:
        """Other numbers in the same memory, and nothing in that of the results."""
        for tensor, array in zip(self.inputs, inputs, strict=True):
            tensor.copy_(to_device(array))
        for tensor in self.outputs:
            tensor.zero_()

    def results(self) -> list[Array]:
        """What lies in the outputs once the GPU is done."""
        torch.cuda.synchronize()
        found = []
        for spec, tensor in zip(self.op.outputs, self.outputs, strict=True):
            array = tensor.cpu().numpy()
            found.append(array.view(ml_dtypes.bfloat16) if spec.dtype == "bfloat16" else array)
        return found

    def milliseconds(self, repeats: int = 50) -> float:
        """Time per call when many are enqueued back to back."""
        run_options = enqueuing()
        for _ in range(5):
            self.session.run_with_iobinding(self.binding, run_options)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(repeats):
            self.session.run_with_iobinding(self.binding, run_options)
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) / repeats * 1e3
