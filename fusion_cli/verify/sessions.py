"""Running models in ONNX Runtime, with and without libraries; bfloat16 in and out, which its arrays do not know."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx

if TYPE_CHECKING:
    import onnxruntime as ort

Array = npt.NDArray[np.generic]
Providers = Sequence[str | tuple[str, dict[str, str]]]
CPU: Providers = ("CPUExecutionProvider",)
CUDA: Providers = ("CUDAExecutionProvider", "CPUExecutionProvider")
CUDA_FLOAT32: Providers = (("CUDAExecutionProvider", {"use_tf32": "0"}), "CPUExecutionProvider")
"""Without the shortened products (10 bits of mantissa) that are the provider's default for float32."""


class CannotRun(Exception):
    """ONNX Runtime does not load or run a model; the text is its reason on one line."""


class Runner:
    """A session that takes and gives numpy arrays (bfloat16 as `ml_dtypes.bfloat16`)."""

    def __init__(self, session: ort.InferenceSession) -> None:
        self.session = session
        self.output_names = tuple(o.name for o in session.get_outputs())

    def bind(self, feeds: Mapping[str, Array]) -> dict[str, ort.OrtValue]:
        """The inputs that the model has among `feeds`, as ONNX Runtime's own values (made once, to be run often)."""
        return {i.name: _to_ort(feeds[i.name]) for i in self.session.get_inputs()}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Every output by name. Raises CannotRun."""
        try:
            values = self.session.run_with_ort_values(list(self.output_names), self.bind(feeds))
        except Exception as error:  # as above
            raise CannotRun(reason(error)) from error
        return {name: _to_numpy(value) for name, value in zip(self.output_names, values, strict=True)}

    def run_bound(self, bound: Mapping[str, ort.OrtValue]) -> None:
        """Run and drop the outputs: what is timed."""
        self.session.run_with_ort_values(list(self.output_names), bound)


def open_model(
    model: Path | bytes,
    *,
    libraries: Sequence[Path] = (),
    providers: Providers = CPU,
    folder: Path | None = None,
) -> Runner:
    """Load a model; `folder` is where the external data of a model given as bytes lies. Raises CannotRun."""
    ort = onnx_runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    try:
        for library in libraries:
            options.register_custom_ops_library(str(library))
        source = model if isinstance(model, bytes) else str(model)
        session = ort.InferenceSession(source, options, providers=list(providers))
    except Exception as error:  # ONNX Runtime raises a class of its own per status code, all without a base
        raise CannotRun(reason(error)) from error
    check_providers(session, providers)
    return Runner(session)


def check_providers(session: ort.InferenceSession, providers: Providers) -> None:
    """ONNX Runtime goes on without a provider that it does not have. Raises CannotRun where it did."""
    wanted = [p if isinstance(p, str) else p[0] for p in providers]
    missing = [p for p in wanted if p not in session.get_providers()]
    if missing:
        raise CannotRun(f"no {', '.join(missing)} here: it comes with 'fusion-cli[gpu]' and needs a GPU and its driver")


def onnx_runtime() -> ModuleType:
    """The module; it comes with an extra, so it may be missing. Raises CannotRun, saying how to get it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise CannotRun("onnxruntime is not installed: pip install 'fusion-cli[cpu]' (or [gpu])") from error
    module: ModuleType = onnxruntime
    return module


def reason(error: BaseException) -> str:
    """An error's message on one line of at most 300 characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else text[:297] + "..."


def _to_ort(array: Array) -> ort.OrtValue:
    ort = onnx_runtime()
    if array.dtype == ml_dtypes.bfloat16:
        bits = np.ascontiguousarray(array).view(np.uint16)
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


def _to_numpy(value: ort.OrtValue) -> Array:
    if value.data_type() != "tensor(bfloat16)":
        array: Array = value.numpy()
        return array
    shape = tuple(value.shape())
    size = 2 * int(np.prod(shape))
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(raw, dtype=ml_dtypes.bfloat16).reshape(shape)
