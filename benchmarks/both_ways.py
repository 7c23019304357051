"""Both ways in one model, on this machine's CPU: what an If takes, and whether it is worth it.

A stack of gated products, wide as those of decoders, is timed with ONNX Runtime's own nodes, as fused for one token,
and with both under an If, at several numbers of tokens.

    python -m benchmarks.both_ways [--width 896] [--inner 4864] [--threads 1]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
from onnx import helper, numpy_helper

import fusion_cli
from fusion_cli.sessions import Array

_TOKENS = (1, 2, 8, 32, 128)
_LAYERS = 2
_MANY = 33
"""Ifs in a row: what one more takes is told by their difference to a single one."""
_SITTINGS, _ROUNDS = 4, 15
_SECONDS = 0.01
"""What a round takes at least."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=896)
    parser.add_argument("--inner", type=int, default=4864)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    with TemporaryDirectory() as name:
        _ifs(Path(name), args.threads)
        _products(Path(name), args.width, args.inner, args.threads)


def _ifs(folder: Path, threads: int) -> None:
    """What a condition takes, the first If with it, and one more."""
    models = {f"{count} {kind}": _chain(folder, count, kind) for kind in ("plain", "if") for count in (1, _MANY)}
    us = _times(list(models.values()), {"x": np.ones((1, 8), np.float32)}, threads)
    plain, plains, first, all_ = us
    print(f"the first If with its condition: {first - plain:.2f} us")
    print(f"each further one: {(all_ - plains - first + plain) / (_MANY - 1):.2f} us")


def _chain(folder: Path, count: int, kind: str) -> Path:
    """Nodes in a row; with "if" each in a branch, under one condition."""
    lines, last = [], "x"
    for i in range(count):
        branch = f"b{i} () => (float[s, 8] {{0}}{i}) {{{{ {{0}}{i} = {{1}} ({last}, x) }}}}"
        node = f"y{i} = Sub ({last}, x)"
        if kind == "if":
            both = f"then_branch = {branch.format('t', 'Add')}, else_branch = {branch.format('e', 'Sub')}"
            node = f"y{i} = If (c) <{both}>"
        lines.append(node)
        last = f"y{i}"
    condition = "n = Shape (x) at = Constant <value = int64[1] {0}> () rows = Gather (n, at) " + (
        "limit = Constant <value = int64[1] {37}> () c = Less (rows, limit)"
    )
    text = f"{condition if kind == 'if' else ''} {' '.join(lines)}"
    return _save(folder / f"{kind}{count}.onnx", f"g (float[s, 8] x) => (float[s, 8] {last}) {{ {text} }}", {})


def _products(folder: Path, width: int, inner: int, threads: int) -> None:
    path = _decoder(folder / "decoder.onnx", width, inner)
    fused, both = folder / "fused.onnx", folder / "both.onnx"
    # A size that is told is believed; one that is assumed gets both ways.
    fusion_cli.optimize(path, fused, targets=["cpu"], verify=False, dims={"sequence": (1, 1)})
    report = fusion_cli.optimize(path, both, targets=["cpu"], verify=False)
    guards = {str(score.guard) for f in report.fusions for score in f.predicted.values() if score.guard}
    print(f"{_LAYERS} x {width} by {inner}, {threads} threads; under an If: {', '.join(guards) or 'nothing'}")
    print("tokens: ONNX Runtime's nodes, fused for one token, both ways; in microseconds and over the first")
    for tokens in _TOKENS:
        x = np.random.default_rng(0).standard_normal((1, tokens, width), np.float32)
        us = _times([path, fused, both], {"x": x, "cache": np.ones((1, 1, 1), np.float32)}, threads)
        print(f"{tokens}: {', '.join(f'{t:.0f} ({t / us[0]:.2f})' for t in us)}")


def _decoder(path: Path, width: int, inner: int) -> Path:
    """Layers that gate, up to the inner width and down again, beside a cache, so that one token is likely."""
    lines, last = [], "x"
    for i in range(_LAYERS):
        lines.append(f"g{i} = MatMul ({last}, gate) s{i} = Sigmoid (g{i}) a{i} = Mul (g{i}, s{i})")
        lines.append(f"u{i} = MatMul ({last}, up) f{i} = Mul (a{i}, u{i}) d{i} = MatMul (f{i}, down)")
        lines.append(f"y{i} = Add ({last}, d{i})")
        last = f"y{i}"
    inputs = f"float[1, sequence, {width}] x, float[1, past, 1] cache"
    outputs = f"float[1, sequence, {width}] {last}, float[1, past, 1] grown"
    rng = np.random.default_rng(0)
    shapes = {"gate": (width, inner), "up": (width, inner), "down": (inner, width)}
    weights = {n: rng.standard_normal(s, np.float32) / np.float32(np.sqrt(s[0])) for n, s in shapes.items()}
    return _save(path, f"g ({inputs}) => ({outputs}) {{ {' '.join(lines)} grown = Neg (cache) }}", weights)


def _save(path: Path, text: str, weights: Mapping[str, Array]) -> Path:
    graph = onnx.parser.parse_graph(text)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def _times(models: Sequence[Path], feeds: Mapping[str, Array], threads: int) -> list[float]:
    """Microseconds of each, in turn and in several sittings: two sessions of one model differ by some percent."""
    found: list[list[float]] = [[] for _ in models]
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    for _ in range(_SITTINGS):
        sessions = [fusion_cli.session(m, options, providers=["CPUExecutionProvider"]) for m in models]
        once = [_us(session, feeds, 1) for session in sessions for _ in range(2)][1::2]
        for _ in range(_ROUNDS):
            for session, us, times in zip(sessions, once, found, strict=True):
                times.append(_us(session, feeds, max(1, int(_SECONDS * 1e6 / us))))
    return [statistics.median(times) for times in found]


def _us(session: ort.InferenceSession, feeds: Mapping[str, Array], runs: int) -> float:
    start = time.perf_counter()
    for _ in range(runs):
        session.run(None, dict(feeds))
    return (time.perf_counter() - start) / runs * 1e6


if __name__ == "__main__":
    main()
