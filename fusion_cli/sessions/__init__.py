"""Models opened in ONNX Runtime: in this process, or in one of their own (`process`) that may crash without taking the
run along. With and without libraries; bfloat16 in and out, which ONNX Runtime's arrays do not know.

Nothing here imports more than numpy and ONNX Runtime: the other process is to be small.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from fusion_cli.sessions.timing import Timing, interleave
from fusion_cli.version import install

if TYPE_CHECKING:
    import onnxruntime as ort

Array = npt.NDArray[np.generic]
Providers = Sequence[str | tuple[str, dict[str, str]]]
CPU: Providers = ("CPUExecutionProvider",)
CUDA: Providers = ("CUDAExecutionProvider", "CPUExecutionProvider")
CUDA_GRAPH: Providers = (("CUDAExecutionProvider", {"enable_cuda_graph": "1"}), "CPUExecutionProvider")
CUDA_FLOAT32: Providers = (("CUDAExecutionProvider", {"use_tf32": "0"}), "CPUExecutionProvider")
"""Without the shortened products (10 bits of mantissa) that are the provider's default for float32."""
Use = Literal["reference", "check", "timing"]
"""What a session is for. As a reference it computes what the model says, operator by operator; to be timed it is opened
as applications do; to be checked as applications do, but with one copy of the weights only and in time that grows no
faster than the model: finding tensors that can share memory takes ONNX Runtime time quadratic in the nodes."""
_OF_THIS_MACHINE = ("NotImplemented", "EPFail")
"""ONNX Runtime's errors that do not mean the model: another provider may have the kernel."""
_BFLOAT16 = 16
"""Of onnx.TensorProto.DataType."""


class CannotRun(Exception):
    """ONNX Runtime does not load or run a model; the text is its reason on one line."""


class Refused(CannotRun):
    """ONNX Runtime takes the file for no model that it could run, here or elsewhere."""


class OverBudget(CannotRun):
    """It took more time or memory than it was to take; the text names the budget."""


class LocalRunner:
    """A session that takes and gives numpy arrays (bfloat16 as `ml_dtypes.bfloat16`)."""

    def __init__(self, session: ort.InferenceSession, constants: Mapping[str, ort.OrtValue] | None = None) -> None:
        self.session = session
        self._constants = constants  # which the session refers to
        self.output_names = tuple(o.name for o in session.get_outputs())
        self._only_tensors = all(o.type.startswith("tensor") for o in session.get_outputs())

    def _values(self, feeds: Mapping[str, Array], device: str = "cpu") -> dict[str, ort.OrtValue]:
        """The inputs that the model has among `feeds`, as ONNX Runtime's own values."""
        return {i.name: _to_ort(feeds[i.name], device) for i in self.session.get_inputs()}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Every output by name; of a sequence its length, and its elements as `name[0]`, `name[1]`...

        Raises CannotRun.
        """
        names = list(self.output_names)
        try:
            if self._only_tensors:
                values = self.session.run_with_ort_values(names, self._values(feeds))
                return {name: _to_numpy(value) for name, value in zip(names, values, strict=True)}
            given = {i.name: feeds[i.name] for i in self.session.get_inputs()}
            found = zip(names, self.session.run(names, given), strict=True)
            return {part: array for name, value in found for part, array in _parts(name, value)}
        except Exception as error:  # ONNX Runtime raises a class of its own per status code, all without a base
            raise CannotRun(reason(error)) from error

    def prepared(self, feeds: Mapping[str, Array]) -> Callable[[], object]:
        """What is timed: a run whose inputs were made before, and whose outputs are dropped; on a GPU both stay where
        they are."""
        if "CUDAExecutionProvider" not in self.session.get_providers():
            return partial(self.session.run_with_ort_values, list(self.output_names), self._values(feeds))
        binding = self.session.io_binding()
        for name, value in self._values(feeds, "cuda").items():
            binding.bind_ortvalue_input(name, value)
        for name in self.output_names:
            binding.bind_output(name, "cuda")
        return partial(self.session.run_with_iobinding, binding)

    def time_against(
        self, others: Sequence[LocalRunner], feeds: Mapping[str, Array], *, seconds: float, most: int
    ) -> Timing:
        """This model, the first, and others on the same inputs, in turn (see `interleave`). Raises CannotRun."""
        try:
            return interleave([r.prepared(feeds) for r in (self, *others)], seconds=seconds, most=most)
        except Exception as error:  # as above
            raise CannotRun(reason(error)) from error


def open_model(
    model: Path | bytes,
    *,
    libraries: Sequence[Path] = (),
    providers: Providers = CPU,
    folder: Path | None = None,
    use: Use = "check",
    threads: int = 0,
    constants: Mapping[str, Array] | None = None,
) -> LocalRunner:
    """Load a model; `folder` is where the external data of a model given as bytes lies, of `threads` 0 lets ONNX
    Runtime choose, and `constants` go in the place of the model's own of these names. Raises CannotRun."""
    ort = onnx_runtime()
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = threads
    if use == "reference":
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if use != "timing":
        options.enable_mem_reuse = False
        options.add_session_config_entry("session.disable_prepacking", "1")
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    given = {name: _to_ort(array, "cpu") for name, array in (constants or {}).items()}
    try:
        for name, value in given.items():
            options.add_initializer(name, value)
        for library in libraries:
            options.register_custom_ops_library(str(library))
        source = model if isinstance(model, bytes) else str(model)
        # The fallback would only print to the terminal and try the same again.
        session = ort.InferenceSession(source, options, providers=list(providers), enable_fallback=0)
    except Exception as error:  # as above
        kind = CannotRun if libraries or type(error).__name__ in _OF_THIS_MACHINE else Refused
        raise kind(reason(error)) from error
    check_providers(session, providers)
    return LocalRunner(session, given)


def check_providers(session: ort.InferenceSession, providers: Providers) -> None:
    """ONNX Runtime goes on without a provider that it does not have. Raises CannotRun where it did."""
    wanted = [p if isinstance(p, str) else p[0] for p in providers]
    missing = [p for p in wanted if p not in session.get_providers()]
    if missing:
        raise CannotRun(f"no {', '.join(missing)} here: it needs a GPU, its driver, and {install('gpu')}")


def onnx_runtime() -> ModuleType:
    """The module; it comes with an extra, so it may be missing. Raises CannotRun, saying how to get it."""
    try:
        import onnxruntime
    except ImportError as error:
        raise CannotRun(f"onnxruntime is not installed: {install('cpu')} (or [gpu])") from error
    module: ModuleType = onnxruntime
    return module


_SOURCE_PLACE = re.compile(r"/\S+:\d+ \w[^\n]*?\)(?: const)? (?=[A-Z\[])")


def reason(error: BaseException) -> str:
    """An error's message on one line of at most 300 characters, without the place in ONNX Runtime's own source."""
    text = " ".join(_SOURCE_PLACE.sub("", str(error)).split())
    return text if len(text) <= 300 else text[:297] + "..."


def _parts(name: str, value: object) -> Iterator[tuple[str, Array]]:
    """A value that may be a sequence, or absent, as arrays."""
    if isinstance(value, list):
        yield name, np.array(len(value))
        for i, element in enumerate(value):
            yield from _parts(f"{name}[{i}]", element)
    else:
        yield name, np.zeros(0) if value is None else np.asarray(value)


def _to_ort(array: Array, device: str) -> ort.OrtValue:
    ort = onnx_runtime()
    if array.dtype == ml_dtypes.bfloat16:  # which goes to a GPU with every run
        bits = np.asarray(array, order="C").view(np.uint16)
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"), device)


def _to_numpy(value: ort.OrtValue) -> Array:
    if value.data_type() != "tensor(bfloat16)":
        array: Array = value.numpy()
        return array
    shape = tuple(value.shape())
    size = 2 * int(np.prod(shape))
    raw = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(raw, dtype=ml_dtypes.bfloat16).reshape(shape)
