"""What `benchmarks.gpu_models` found, as a Markdown page and JSON, against the targets of gpu_models.toml."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.gpu_specs import spec_of
from benchmarks.kept_page import Row, keep
from benchmarks.runs import GOOD
from benchmarks.tally import table

ORT = ("ORT", "ORT, graph", "ORT, captured", "ORT, NHWC", "ORT, NHWC, graph", "ORT, NHWC, captured")
TORCH = ("torch", "torch, graph", "torch, compiled")


_AGAINST = (
    "model", "over ONNX Runtime, to be", "over PyTorch, to be", "fused, to be", "graph, to be", "alone",
    "reached",
)  # fmt: skip
_WRITTEN = (
    "model", "nodes", "fusions", "written", "export, s", "optimize, s", "error", "of ORT", "of torch", "date",
)  # fmt: skip


def write_page(rows: Sequence[Row], folder: Path) -> Path:
    """Write `gpu-models-DEVICE.md` and `.json` into `folder`, with the models that are there already and not among
    `rows`; returns the path of the page."""
    device = next((r["machine"]["device"] for row in rows for r in row["times"].values() if "machine" in r), "unknown")
    return keep("gpu-models", device, rows, ("id",), folder, lambda found: page(found, device))


def page(rows: Sequence[Row], device: str) -> str:
    """The Markdown page."""
    failed = failures(rows)
    return "\n\n".join(
        [
            f"# Whole models on {device}",
            "Made by `python -m benchmarks.gpu_models`. Milliseconds per run: medians of rounds in which every way runs"
            " some times in a row, so that the card is as hot for one as for the other; each from when the GPU is free"
            " for it until it is done. The host's thread is kept on the core that is quickest just then;"
            " with a dagger, it was not. *graph* is a CUDA graph that ONNX Runtime keeps"
            " (`enable_cuda_graph`) and waits for after every run, *captured* one that the caller makes of a run, as"
            " PyTorch's *graph* is. *NHWC* is ONNX Runtime's `prefer_nhwc`, *compiled* `torch.compile` with"
            " max-autotune. ONNX Runtime has all its optimizations on and multiplies float32 matrices as TF32, as it"
            " does by default; so does PyTorch. *Fused* is what the default command line writes; with a star, what"
            " `--no-verify` does.",
            _versions(rows),
            table(["model", "fused", "graph", "captured", *ORT, *TORCH], [_times(r) for r in rows]),
            "## Against the best",
            "The fused model at its best over the best of ONNX Runtime and of PyTorch, and its times, each with what it"
            " is to be; as a graph the lesser of both kinds. *Alone*: the ratios where each way runs by itself, which"
            " says what a card gives that is at its most power all the time. Rows without it are of the time before"
            " there were rounds: every way has run by itself.",
            table(_AGAINST, map(_against, rows)),
            "## What was written, and its numbers",
            "Errors are the largest difference over the largest magnitude, against PyTorch in double precision. Kernels"
            " that were in the cache are not compiled: *optimize* takes a few seconds then.",
            table(_WRITTEN, map(_written, rows)),
            "## Failed",
            table(["model", "what", "outcome", "why"], failed) if failed else "Nothing.",
        ]
    ) + "\n"  # fmt: skip


def failures(rows: Sequence[Row]) -> list[list[str]]:
    """What of which model did not end well, and why."""
    return [
        [row["id"], f"{what} {r['mode']}", r["status"], r.get("detail") or f"error {r['error']:.1e}"]
        for row in rows
        for what in ("written", "times")
        for r in row[what].values()
        if r["status"] not in GOOD
    ]


def ms(row: Row, way: str, kind: str = "ms") -> float | None:
    """The median of one way of running, if it ran; `kind`: "ms" in turn with the others, "alone" before."""
    found: float | None = row["times"].get(way, {}).get(kind)
    return found


def best(row: Row, ways: Sequence[str], kind: str = "ms") -> float | None:
    """The least median of several ways."""
    return min((t for way in ways if (t := ms(row, way, kind)) is not None), default=None)


def fused_ways(made: str) -> tuple[str, str, str]:
    """How what was written is run, `quick` or `fused`."""
    return made, f"{made}, graph", f"{made}, captured"


def _versions(rows: Sequence[Row]) -> str:
    machines = [r["machine"] for row in rows for r in row["times"].values() if "machine" in r]
    names = dict.fromkeys(name for m in machines for name in m if name != "device")
    return ", ".join(f"{n} {' or '.join(dict.fromkeys(m[n] for m in machines if n in m))}" for n in names) + "."


def _times(row: Row) -> list[str]:
    name = row["id"] + " \\*" * (row["made"] == "quick") + " †" * ("core" not in row)
    return [name, *(_number(ms(row, way)) for way in (*fused_ways(row["made"]), *ORT, *TORCH))]


def _against(row: Row) -> list[str]:
    spec, own = spec_of(row["id"]), best(row, fused_ways(row["made"]))
    others = ((best(row, ORT), spec.over_ort), (best(row, TORCH), spec.over_torch))
    ratios = [(None if own is None or other is None else other / own, least) for other, least in others]
    to_be = (spec.target.get("fused"), spec.target.get("graph"))
    fused, *graphs = fused_ways(row["made"])
    times = list(zip((ms(row, fused), best(row, graphs)), to_be, strict=True))
    reached = [ratio is not None and ratio >= least for ratio, least in ratios]
    reached += [t is not None and t <= most for t, most in times if most is not None]
    cells = [f"{'-' if ratio is None else f'{ratio:.2f}x'}, {least:.2f}x" for ratio, least in ratios]
    cells += [f"{_number(t)}, {'-' if most is None else f'{most:.3f}'}" for t, most in times]
    return [row["id"], *cells, _alone(row), "yes" if all(reached) else "no"]


def _alone(row: Row) -> str:
    own, *others = (best(row, ways, "alone") for ways in (fused_ways(row["made"]), ORT, TORCH))
    return "-" if own is None else ", ".join("-" if other is None else f"{other / own:.2f}x" for other in others)


def _written(row: Row) -> list[str]:
    made, export = row["written"].get(row["made"], {}), row["written"].get("export", {})
    errors = [row["times"].get(way, {}).get("error") for way in (row["made"], "ORT", "torch")]
    return [
        row["id"],
        " -> ".join(map(str, made.get("nodes", ["-"]))),
        ", ".join(f"{n} {rule}" for rule, n in made.get("fusions", {}).items()) or "none",
        made.get("chosen", "-"),
        *(str(r.get("seconds", "-")) for r in (export, made)),
        *("-" if e is None else f"{e:.1e}" for e in errors),
        row["date"],
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
