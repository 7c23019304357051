"""Optimize one model on one core and say what each stage took; one JSON line on standard output.

Run by `benchmarks.scale` in a process of its own, so that its memory is the model's alone.

    python -m benchmarks.scale_case MODEL.onnx [TARGET]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from fusion_cli.listener import Listener


class Stages(Listener):
    """CPU seconds by stage, told apart by the calls that announce a stage; what came before the first is "start"."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._current = "start"
        self._since = 0.0

    def stage(self, name: str) -> None:
        times = os.times()
        now = sum(times[:4])  # of ended children too
        self.seconds[self._current] += now - self._since
        self._current, self._since = name, now


def main(model: Path, target: str) -> dict[str, Any]:
    """What optimizing the model for `target` took: CPU seconds by stage, wall seconds, peak resident bytes."""
    one_core()
    stages = Stages()
    start = time.perf_counter()

    import fusion_cli  # its share of the time counts
    from fusion_cli import pipeline
    from fusion_cli.types import Options

    with tempfile.TemporaryDirectory(dir=model.parent) as folder:
        watch = Children()
        report = pipeline.optimize(
            model, Path(folder, "fused.onnx"), Options(targets=(target,), remeasure=True), stages
        )
        runtime_peak = watch.stop()
    stages.stage("end")
    checked = report.verification
    return {
        "version": fusion_cli.__version__,
        "nodes": report.summary.nodes_before,
        "seconds": {name: round(seconds, 3) for name, seconds in stages.seconds.items()},
        "wall": round(time.perf_counter() - start, 3),
        "peak_bytes": peak_bytes("self"),
        "runtime_peak_bytes": runtime_peak,
        "fusions": report.summary.fusions,
        "nodes_after": report.summary.nodes_after,
        "skipped": checked.skipped if checked is not None else "not verified",
    }


def one_core() -> None:
    """Keep this process and its threads to one core, where the system knows how."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])


class Children(threading.Thread):
    """Looks now and then at the processes that this one has started: their largest resident set."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._peak = 0
        self._done = threading.Event()
        self.start()

    def run(self) -> None:
        """Look until told to stop."""
        listed = Path(f"/proc/self/task/{os.getpid()}/children")
        while not self._done.wait(0.05) and listed.exists():
            self._peak = max([self._peak, *map(peak_bytes, listed.read_text().split())])

    def stop(self) -> int:
        """Bytes."""
        self._done.set()
        self.join()
        return self._peak


def peak_bytes(process: str) -> int:
    """The largest resident set a process has had: interpreter, libraries, and mapped files included.

    Linux only (0 elsewhere); what `getrusage` says is no use, since a process inherits it from the one that made it.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), *(sys.argv[2:] or ["portable"]))))
