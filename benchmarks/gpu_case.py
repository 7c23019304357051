"""Time a model of gpu_models.toml in the ways given, in turn, beside which nothing else should run; of the
JSON lines the last of each way holds.

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
from benchmarks.contenders import COMPILED, SESSIONS, Contender, device, flat, of_session, of_torch
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
        self.device = device()

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


class Race:
    """Ways to run a case, timed in turn: a line tells what one takes alone, and one more after every run of them."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.entered: dict[str, tuple[Contender, dict[str, Any]]] = {}
        """With what does not change from one run of them to the next."""

    def enter(self, way: str) -> None:
        try:
            tell(way, self.alone(way))
        except Exception as problem:  # one way of running that fails must not hide the others
            detail = f"{type(problem).__name__}: {problem}".splitlines()[0][:300]
            tell(way, {"status": "error", "detail": detail})

    def alone(self, way: str) -> dict[str, Any]:
        if self.case.device == "cpu" and any(of_gpus in way for of_gpus in ("graph", "captured", "NHWC")):
            return {"status": "skipped", "detail": "there is no GPU"}
        contender = self.case.contender(way)
        samples = gpu_clock.milliseconds(contender)
        error = self.case.error(contender)
        # Products of float32 may be as exact as those of float16.
        status = "ok" if error <= TOLERANCE["f16"] else "wrong"
        facts = {"status": status, "detail": "", "error": error, "alone": statistics.median(samples)}
        found = facts | {"machine": machine(self.case.device)}
        self.entered[way] = contender, found
        return found | spread(samples)

    def run(self) -> None:
        times = gpu_clock.in_turn([contender for contender, _ in self.entered.values()])
        for (way, (_, found)), samples in zip(self.entered.items(), times, strict=True):
            tell(way, found | spread(samples))


def spread(samples: Sequence[float]) -> dict[str, float]:
    low, high = np.percentile(samples, [10, 90]).tolist()
    return {"ms": statistics.median(samples), "p10": low, "p90": high}


def main(path: Path, ways: Sequence[str]) -> None:
    # As ONNX Runtime multiplies float32 matrices unless told otherwise.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    race = Race(Case(path))
    compiled = [way for way in ways if way == COMPILED]
    with torch.no_grad():
        # Compiling may take longer than there is time: what the others take is told before.
        for some in filter(None, ([way for way in ways if way not in compiled], compiled)):
            for way in some:
                race.enter(way)
                gc.collect()
            race.run()


def tell(way: str, found: dict[str, Any]) -> None:
    print(json.dumps(found | {"mode": way}), flush=True)


def machine(device: str) -> dict[str, str]:
    """What the times are of: the device, and the versions of what ran."""
    import onnxruntime

    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    versions = {p: sys.modules[p].__version__ for p in PACKAGES if p in sys.modules}
    return {"device": name, "onnxruntime": onnxruntime.__version__, **versions}


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[3:])
