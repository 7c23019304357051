"""Time an export with open sizes at some of them, fused and in ONNX Runtime; one JSON line per size.

Run by `benchmarks.gpu_dynamic` in a process of its own, which opens each model once: all sizes share its sessions.

    python -m benchmarks.gpu_dynamic_case FOLDER/ID.onnx TOLERANCE "fused|quick BATCHxSEQ" ...
"""

from __future__ import annotations

import copy
import json
import statistics
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import onnxruntime as ort
import torch
from torch import nn

from benchmarks import gpu_clock
from benchmarks.contenders import Setting, bound, device, flat, has_gpu, open_session
from benchmarks.gpu_case import machine
from benchmarks.gpu_specs import spec_of
from benchmarks.gpu_write import made_path
from benchmarks.gpu_zoo import DTYPES, build
from benchmarks.runs import TOLERANCE
from fusion_cli.files import file_sha256
from fusion_cli.verify import largest_error

_WORDS = 1000
"""Fewer than any of the models has."""
_ROUNDS, _RUNS = 3, 20


class Sessions:
    """The original and what was made of it, each opened once."""

    def __init__(self, path: Path, made: str) -> None:
        self.spec, self.path, self.made = spec_of(path.stem), path, made_path(path, made)
        self.device = device()
        self.stream = torch.cuda.Stream() if has_gpu() else None
        self.setting = Setting(made)

    @cached_property
    def pair(self) -> tuple[ort.InferenceSession, ort.InferenceSession]:
        return open_session(self.path, Setting(), self.stream), open_session(self.made, self.setting, self.stream)

    @cached_property
    def module(self) -> nn.Module:
        """In double precision."""
        return copy.deepcopy(build(self.spec).module).double().to(self.device)

    def libraries(self) -> dict[str, str]:
        """The hash of every library that there is now."""
        folder = self.made.with_suffix(".fusion") / "lib"
        return {p.name: file_sha256(p) for p in sorted(folder.glob("*.so"))}


def main(path: Path, modes: Sequence[str]) -> None:
    sessions = Sessions(path, modes[0].partition(" ")[0])
    with torch.no_grad():
        for mode in modes:
            batch, seq = map(int, mode.partition(" ")[2].split("x"))
            print(json.dumps(measure(sessions, batch, seq) | {"mode": mode}), flush=True)


def measure(sessions: Sessions, batch: int, seq: int) -> dict[str, Any]:
    """One size's outcome: `status` ok, wrong or error, why, milliseconds of both, errors, and the libraries."""
    try:
        torch.manual_seed(batch * seq)
        ids = torch.randint(0, _WORDS, (batch, seq), device=sessions.device)
        exact = flat(sessions.module(ids))
        like = [t.to(DTYPES[sessions.spec.dtype]) for t in exact]
        both = [bound(session, {"x": ids}, like, sessions.stream) for session in sessions.pair]
        samples: list[list[float]] = [[], []]
        for _ in range(_ROUNDS):
            for own, contender in zip(samples, both, strict=True):
                own += gpu_clock.milliseconds(contender, runs=_RUNS, warm=0.05)
        errors = [
            max(largest_error(a.cpu().numpy(), b.cpu().numpy()) for a, b in zip(exact, gpu_clock.fresh(c), strict=True))
            for c in both
        ]
    except Exception as problem:  # at one size
        return {"status": "error", "detail": f"{type(problem).__name__}: {problem}".splitlines()[0][:300]}
    stock, fused = map(statistics.median, samples)
    status = "ok" if errors[1] <= TOLERANCE["f16"] else "wrong"
    found: dict[str, Any] = {"ort_ms": stock, "fused_ms": fused, "ort_error": errors[0], "error": errors[1]}
    return {
        "status": status,
        "detail": "",
        **found,
        "libraries": sessions.libraries(),
        "machine": machine(sessions.device),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[3:])
