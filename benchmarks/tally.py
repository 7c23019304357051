"""Adding up the results of a corpus run, and the Markdown page that says so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Result = Mapping[str, Any]
STATUSES = ("ok", "skipped", "wrong", "error", "crash", "timeout")

IDIOMS: Mapping[str, tuple[str, ...]] = {
    "attention": ("Attention",),
    "layernorm": ("LayerNorm",),
    "rmsnorm": ("RMSNorm",),
    "groupnorm": ("GroupNorm",),
    "gelu_erf": ("GeluErf",),
    "gelu_tanh": ("GeluTanh",),
    "quickgelu": ("QuickGelu",),
    "silu": ("Silu",),
    "mish": ("Mish",),
    "hardswish": ("HardSwish",),
    "swiglu": ("SwiGLU",),
    "geglu": ("GEGLU",),
    "linear": ("Linear",),
}
"""What a model's modules truly contain -> the idiom rules that recognise it in the graph. Not here: what is a single
operator in every graph (convolution, ReLU), and what simplification folds away (batch normalization)."""
TARGETED = ("attention", "layernorm", "rmsnorm", "gelu_erf", "gelu_tanh", "silu")


@dataclass(frozen=True)
class Recall:
    """Of `truth` true instances `found` were recognised; `extra` more were reported than a model has."""

    truth: int
    found: int
    extra: int

    @property
    def ratio(self) -> float:
        return self.found / self.truth if self.truth else 1.0

    def __add__(self, other: Recall) -> Recall:
        return Recall(self.truth + other.truth, self.found + other.found, self.extra + other.extra)


NOTHING = Recall(0, 0, 0)


def exporter(entry: Mapping[str, Any]) -> str:
    """Exporter and opset of a model: "ts17", "dyn18", "dyn23"."""
    return f"{entry['exporter']}{entry['opset']}"


def recall(entries: Sequence[Mapping[str, Any]], results: Iterable[Result]) -> dict[tuple[str, str], Recall]:
    """(idiom, exporter) -> recall, over the models whose idioms some mode reported.

    Counted model by model, so that one model's surplus cannot make up for another's misses.
    """
    reported = {r["id"]: r["idioms"] for r in results if "idioms" in r}
    totals: dict[tuple[str, str], Recall] = {}
    for entry in entries:
        if entry["id"] not in reported:
            continue
        for idiom, rules in IDIOMS.items():
            truth = entry["truth"].get(idiom, 0)
            found = sum(reported[entry["id"]].get(rule, 0) for rule in rules)
            key = idiom, exporter(entry)
            one = Recall(truth, min(truth, found), max(0, found - truth))
            totals[key] = totals.get(key, NOTHING) + one
    return totals


def statuses(entries: Sequence[Mapping[str, Any]], results: Iterable[Result]) -> dict[tuple[str, str], Counter[str]]:
    """(mode, exporter) -> how many models ended with which status."""
    exporters = {e["id"]: exporter(e) for e in entries}
    totals: dict[tuple[str, str], Counter[str]] = {}
    for r in results:
        if r["id"] in exporters:
            totals.setdefault((r["mode"], exporters[r["id"]]), Counter())[r["status"]] += 1
    return totals


def markdown(entries: Sequence[Mapping[str, Any]], results: Sequence[Result]) -> str:
    """The summary page: outcomes, recognised idioms, fusions taken, and every model that did not come out ok."""
    parts = [
        "# The corpus: what comes out",
        f"{len(entries)} models exported by TorchScript at opset 17 (ts17) and by the dynamo exporter at opsets 18 and"
        " 23 (dyn18, dyn23); tiny, with random weights. Each is optimized in three modes and run in ONNX Runtime on"
        " CPU with and without its library, against outputs of the original model run without optimizations."
        " Tolerances, relative to the largest output: f32 1e-3, f16 2e-2, bf16 8e-2. Made by"
        " `python -m benchmarks.corpus --markdown`.",
        "## Outcomes",
        _outcomes(entries, results),
        "## Idioms recognised",
        "Recognised of those the PyTorch modules executed, counted model by model (what a model has too many of is no"
        " help to another); `+n` are reports beyond the truth.",
        _recall_table(recall(entries, results)),
        "## Fusions",
        _fusions(results),
        "## Not ok",
        _failures(results),
    ]
    return "\n\n".join(parts) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _outcomes(entries: Sequence[Mapping[str, Any]], results: Sequence[Result]) -> str:
    totals = statuses(entries, results)
    shown = [s for s in STATUSES if any(c[s] for c in totals.values())] or ["ok"]
    rows: list[list[object]] = []
    for mode in dict.fromkeys(mode for mode, _ in totals):
        columns = {e: c for (m, e), c in totals.items() if m == mode}
        rows += [[f"`{mode}`", e, *(c[s] for s in shown)] for e, c in sorted(columns.items())]
        everything = sum(columns.values(), Counter[str]())
        rows.append([f"`{mode}`", "**all**", *(f"**{everything[s]}**" for s in shown)])
    return table(["mode", "exporter", *shown], rows)


def _recall_table(totals: Mapping[tuple[str, str], Recall]) -> str:
    exporters = sorted({e for _, e in totals})
    rows = []
    for idiom in IDIOMS:
        columns = [totals.get((idiom, e), NOTHING) for e in exporters]
        everything = sum(columns, NOTHING)
        if everything.truth or everything.extra:
            rows.append([idiom, *map(_cell, [*columns, everything])])
    aimed = [sum((totals.get((i, e), NOTHING) for i in TARGETED), NOTHING) for e in exporters]
    rows.append(["**attention, norms, GELU, SiLU**", *map(_cell, [*aimed, sum(aimed, NOTHING)])])
    return table(["idiom", *exporters, "all"], rows)


def _cell(count: Recall) -> str:
    extra = f" +{count.extra}" if count.extra else ""
    return f"{count.found}/{count.truth} ({count.ratio:.0%}){extra}" if count.truth else (extra.strip() or "-")


def _fusions(results: Sequence[Result]) -> str:
    modes = list(dict.fromkeys(r["mode"] for r in results))
    counts = {mode: Counter[str]() for mode in modes}
    nodes = {mode: [0, 0] for mode in modes}
    for r in results:
        counts[r["mode"]].update(r.get("fusions", {}))
        nodes[r["mode"]][0] += r.get("nodes_before", 0)
        nodes[r["mode"]][1] += r.get("nodes_after", 0)
    rules = sorted({rule for c in counts.values() for rule in c})
    rows: list[list[object]] = [[rule, *(counts[m][rule] for m in modes)] for rule in rules]
    rows.append(["**nodes before → after**", *(f"{nodes[m][0]} → {nodes[m][1]}" for m in modes)])
    return table(["rule", *(f"`{m}`" for m in modes)], rows)


def _failures(results: Sequence[Result]) -> str:
    bad = [r for r in results if r["status"] != "ok" or r.get("rolled_back") or r.get("build_failures")]
    if not bad:
        return "Nothing: every model in every mode, without a fusion rolled back."
    return table(["model", "mode", "status", "why"], [[r["id"], f"`{r['mode']}`", r["status"], _why(r)] for r in bad])


def _why(result: Result) -> str:
    told = str(result.get("detail", "")).strip().splitlines()
    notes = [told[0][:160] if told else ""]
    if result["status"] == "wrong":
        notes.append(f"error {result['worst']:.2g}")
    notes += [f"{key.replace('_', ' ')}: {', '.join(result[key])}" for key in ("rolled_back", "build_failures")
              if result.get(key)]  # fmt: skip
    return "; ".join(n for n in notes if n)
