"""Have each tool optimize one model, and compare what it recognises and computes; one JSON line per tool.

Run by `benchmarks.recognition` in a process of its own (see `benchmarks/runs.py`), so that a crash takes nothing else
along.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime as ort

from benchmarks.corpus_model import Array, arrays, compare, run_mode, runnable
from benchmarks.idioms import IDIOMS
from benchmarks.peers import onnx_runtime, onnxscript_fusions, transformer_optimizer

TOOLS = ("fusion-cli", "ONNX Runtime", "transformer optimizer", "onnxscript")


class Trial:
    """One model, its inputs and reference outputs, and how far from them is still right."""

    def __init__(self, model: Path, tolerance: float) -> None:
        self.model = model
        self.tolerance = tolerance
        self.inputs, self.reference = arrays(model)

    def ours(self, output: Path) -> dict[str, Any]:
        """The portable mode: what is recognised does not depend on the target."""
        result = run_mode(self.model, "portable", output, self.inputs, self.reference, self.tolerance)
        rules = result.get("idioms", {})
        return result | {"idioms": {i: sum(rules.get(r, 0) for r in names) for i, names in IDIOMS.items()}}

    def peer(self, tool: str, output: Path) -> dict[str, Any]:
        try:
            idioms = self.optimize(tool, output)
        except Exception as error:  # whatever the tool raises is its result
            return {"status": "error", "detail": f"{type(error).__name__}: {error}"}
        return self.outcome(output) | {"idioms": dict(idioms)}

    def optimize(self, tool: str, output: Path) -> Mapping[str, int]:
        if tool == "ONNX Runtime":
            return onnx_runtime(self.model, output)
        if tool == "onnxscript":
            return onnxscript_fusions(self.model, output)
        return transformer_optimizer(self.model, output, lambda path: self.outcome(path)["status"] == "ok")

    def outcome(self, output: Path) -> dict[str, Any]:
        """What becomes of a model that a tool left: `status` ok, wrong, unsupported (an operator of ONNX Runtime that
        has no CPU kernel), invalid, error (it loads and does not run), or skipped if the original does not load."""
        session = runnable(output)
        if isinstance(session, str):
            session = session.replace(f"{output.parent}/", "")
            if isinstance(runnable(self.model), str):
                return {"status": "skipped", "detail": session}
            missing = "NOT_IMPLEMENTED" in session
            return {"status": "unsupported" if missing else "invalid", "detail": session}
        return self.numbers(session)

    def numbers(self, session: ort.InferenceSession) -> dict[str, Any]:
        inputs: dict[str, Array] = {i.name: self.inputs[i.name] for i in session.get_inputs()}
        try:
            worst = max(compare(session, inputs, self.reference).values())
        except Exception as error:  # ONNX Runtime's errors have no base class of their own
            return {"status": "error", "detail": str(error).splitlines()[0]}
        # Inverted, so that a NaN error counts as wrong.
        return {"status": "ok" if worst <= self.tolerance else "wrong", "detail": "", "worst": worst}


def main(model: Path, tolerance: float, tools: list[str]) -> None:
    warnings.simplefilter("ignore")
    trial = Trial(model, tolerance)
    for tool in tools:
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "optimized.onnx"
            result = trial.ours(output) if tool == TOOLS[0] else trial.peer(tool, output)
        result |= {"mode": tool, "seconds": round(time.perf_counter() - start, 2)}
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
