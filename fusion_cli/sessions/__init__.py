"""Models opened in ONNX Runtime: in this process, or in one of their own that may crash without taking the run along.

Nothing here imports more than numpy and ONNX Runtime: the other process is to be small.
"""

from fusion_cli.sessions.local import (
    CPU,
    CUDA,
    CUDA_FLOAT32,
    Array,
    CannotRun,
    LocalRunner,
    Providers,
    Use,
    check_providers,
    onnx_runtime,
    open_model,
    reason,
)
from fusion_cli.sessions.process import Opener, Process, Runner
from fusion_cli.sessions.timing import Timing, alternate

__all__ = [
    "CPU",
    "CUDA",
    "CUDA_FLOAT32",
    "Array",
    "CannotRun",
    "LocalRunner",
    "Opener",
    "Process",
    "Providers",
    "Runner",
    "Timing",
    "Use",
    "alternate",
    "check_providers",
    "onnx_runtime",
    "open_model",
    "reason",
]
