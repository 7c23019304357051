"""Time a model of gpu_models.toml in the ways given, beside which nothing else should run; one JSON line per way.

Run by `benchmarks.gpu_models` in a process of its own: a fault on the GPU ends that process and no other.

    python -m benchmarks.gpu_case FOLDER/ID.onnx TOLERANCE WAY [WAY ...]
"""

from __future__ import annotations

import copy
import gc
import json
import statistics
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks import gpu_clock
from benchmarks.contenders import SESSIONS, Contender, flat, has_gpu, of_session, of_torch
from benchmarks.gpu_specs import spec_of
from benchmarks.gpu_write import made_path
from benchmarks.gpu_zoo import Example, build
from benchmarks.runs import TOLERANCE
from fusion_cli.verify import largest_error

PACKAGES = ("torch", "torchvision", "transformers")
"""Those of them that a model needs are told with its times."""


class Case:
    """A model at its inputs, on the GPU if there is one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.device = "cuda" if has_gpu() else "cpu"

    @cached_property
    def example(self) -> Example:
        made = build(spec_of(self.path.stem))
        inputs = {name: x.to(self.device) for name, x in made.inputs.items()}
        return Example(made.module.to(self.device), inputs)

    @cached_property
    def exact(self) -> list[np.ndarray[Any, Any]]:
        """The results in double precision, of the same weights."""
        module = copy.deepcopy(self.example.module).double()
        given = (x.double() if x.is_floating_point() else x for x in self.example.inputs.values())
        return [t.cpu().numpy() for t in flat(module(*given))]

    @cached_property
    def like(self) -> tuple[Tensor, ...]:
        return flat(self.example.module(*self.example.inputs.values()))

    def contender(self, way: str) -> Contender:
        setting = SESSIONS.get(way)
        if setting is None:
            return of_torch(way, self.example.module, self.example.inputs)
        path = made_path(self.path, setting.made) if setting.made else self.path
        return of_session(path, setting, self.example.inputs, self.like)

    def error(self, contender: Contender) -> float:
        """The largest of any output; infinite where NaN are others."""
        found = gpu_clock.fresh(contender)
        pairs = zip(self.exact, found, strict=True)
        return max(largest_error(want, got.detach().cpu().numpy()) for want, got in pairs)


def main(path: Path, ways: Sequence[str]) -> None:
    # As ONNX Runtime multiplies float32 matrices unless told otherwise.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    case = Case(path)
    with torch.no_grad():
        for way in ways:
            print(json.dumps(measure(case, way) | {"mode": way}), flush=True)
            gc.collect()


def measure(case: Case, way: str) -> dict[str, Any]:
    """One way's outcome: `status` ok, wrong, error or skipped, why, milliseconds and the error."""
    if case.device == "cpu" and any(of_gpus in way for of_gpus in ("graph", "captured", "NHWC")):
        return {"status": "skipped", "detail": "there is no GPU"}
    try:
        contender = case.contender(way)
        samples = gpu_clock.milliseconds(contender)
        error = case.error(contender)
    except Exception as problem:  # one way of running that fails must not hide the others
        return {"status": "error", "detail": f"{type(problem).__name__}: {problem}".splitlines()[0][:300]}
    # Products of float32 may be as exact as those of float16.
    status = "ok" if error <= TOLERANCE["f16"] else "wrong"
    low, high = np.percentile(samples, [10, 90]).tolist()
    found = {"ms": statistics.median(samples), "p10": low, "p90": high, "error": error}
    return {"status": status, "detail": "", **found, "machine": machine(case.device)}


def machine(device: str) -> dict[str, str]:
    """What the times are of: the device, and the versions of what ran."""
    import onnxruntime

    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    versions = {p: sys.modules[p].__version__ for p in PACKAGES if p in sys.modules}
    return {"device": name, "onnxruntime": onnxruntime.__version__, **versions}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[3:])
