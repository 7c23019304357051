"""What `benchmarks.kernels` found, as a Markdown page and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.kept_page import slug
from benchmarks.kernel_cases import KernelCase
from benchmarks.kernel_write import MODES, ORIGINAL
from benchmarks.runs import GOOD, Result
from benchmarks.tally import table

_HEADER = (
    "family", "case", "us", "own, us", "ORT, us", "yardsticks, us", "rate", "best yardstick's", "share", "to be",
    "error", "same bits",
)  # fmt: skip


def write_page(cases: Sequence[KernelCase], built: Sequence[Result], timed: Sequence[Result], folder: Path) -> Path:
    """Write `kernels-DEVICE.md` and `.json` into `folder`; returns the path of the page."""
    device = next((r["machine"]["device"] for r in timed if "machine" in r), "unknown")
    path = folder / f"kernels-{slug(device)}.md"
    folder.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps({"built": built, "timed": timed}, indent=1) + "\n")
    path.write_text(page(cases, built, timed, device))
    return path


def page(cases: Sequence[KernelCase], built: Sequence[Result], timed: Sequence[Result], device: str) -> str:
    """The Markdown page: one table of all families."""
    by_case = {r["mode"]: r for r in timed}
    rows = [row(c, by_case[c.id]) for c in cases if "us" in by_case.get(c.id, {})]
    failed = [
        [r["id"], r["mode"], r["status"], r.get("detail", "")] for r in (*built, *timed) if r["status"] not in GOOD
    ]
    failed += [[r["mode"], name, "error", why] for r in timed for name, why in r.get("failures", {}).items()]
    parts = [
        f"# Kernels on {device}",
        "Made by `python -m benchmarks.kernels`. Microseconds in which kernels run, by the profiler, with how many"
        " there are; nothing that they read is in the GPU's cache before, which holds what was only read."
        " *Own* has our products also where the"
        " vendor's are taken otherwise. Yardsticks: cuBLASLt's product alone, without what follows it (for gate"
        " and up one product by both and a pass); PyTorch's attention by cuDNN and flash; a copy of as many bytes,"
        " or of the first operand where latency is the limit;"
        " a kernel that adds to one number. *Share* is our rate over the best yardstick's, for the smallest sizes"
        " how many times as long as the least kernel it takes, both where what they read is in the cache, as behind a"
        " kernel that has just written it; with a star where it is not as it is to be. Causal"
        " attention counts half the operations. Errors are the largest difference over the largest magnitude,"
        " against float32.",
        table(_HEADER, rows),
    ]
    if failed:
        parts += ["## Failed", table(["case", "what", "outcome", "why"], failed)]
    return "\n\n".join(parts) + "\n"


def row(case: KernelCase, result: Result) -> list[str]:
    us: Mapping[str, Sequence[float]] = result["us"]
    yards = [name for name in us if name not in (*MODES, ORIGINAL)]
    held: Mapping[str, float] = result["near"] if case.unit == "us" else {name: t for name, (t, _) in us.items()}
    ours, best = (min((held[name] for name in names if name in held), default=None) for names in (MODES, yards))
    share = None if ours is None or best is None else (ours / best if case.unit == "us" else best / ours)
    reached = share is not None and (share <= case.to_be if case.unit == "us" else share >= case.to_be)
    made = result["made"]
    return [
        case.family,
        case.id,
        *(f"{us[m][0]:.1f} ({us[m][1]:g})" if m in us else "-" for m in (*MODES, ORIGINAL)),
        ", ".join(f"{name} {us[name][0]:.1f}" for name in yards) or "-",
        _rate(case, ours),
        _rate(case, best),
        "-" if share is None else f"{share:.2f}{'' if reached else ' *'}",
        f"{'at most ' if case.unit == 'us' else ''}{case.to_be:.2f}",
        "-" if not made else f"{max(f['error'] for f in made.values()):.1e}",
        "yes" if made and all(f["repeatable"] for f in made.values()) else "no",
    ]


def _rate(case: KernelCase, us: float | None) -> str:
    if us is None:
        return "-"
    if case.unit == "us":
        return f"{us:.1f} us"
    return f"{case.work(case.sizes) / us / 1e6:.2f} {case.unit}"
