"""Adding up the results of a corpus run, and the Markdown page that says so."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.idioms import IDIOMS
from benchmarks.in_file import present
from benchmarks.runs import GOOD
from fusion_cli.measured import WORDS

Result = Mapping[str, Any]
STATUSES = ("ok", "skipped", "wrong", "error", "crash", "timeout")

TARGETED = ("attention", "layernorm", "rmsnorm", "groupnorm", "gelu_erf", "gelu_tanh", "silu")


@dataclass(frozen=True)
class Recall:
    """The modules executed `truth` instances and the file can hold `present`; `found` of these were recognised, and
    `extra` more were reported."""

    truth: int
    present: int
    found: int
    extra: int

    @property
    def ratio(self) -> float:
        return self.found / self.present if self.present else 1.0

    def __add__(self, other: Recall) -> Recall:
        return Recall(
            self.truth + other.truth, self.present + other.present, self.found + other.found, self.extra + other.extra
        )


NOTHING = Recall(0, 0, 0, 0)
READING = (
    "Recognised of those in the files, counted model by model (what a model has too many of is no help to another);"
    " `[n]` is how many the PyTorch modules executed where the files hold another number, `+n` are reports beyond what"
    " is in the files. What a file holds is counted in it without matching any pattern: an exporter writes once what"
    " modules compute twice on the same input, and nothing for what no output needs."
)


def exporter(entry: Mapping[str, Any]) -> str:
    """Exporter and opset of a model: "ts17", "dyn18", "dyn23"."""
    return f"{entry['exporter']}{entry['opset']}"


def recall(entries: Sequence[Mapping[str, Any]], results: Iterable[Result]) -> dict[tuple[str, str], Recall]:
    """(idiom, exporter) -> recall, over the models whose idioms some mode reported.

    Counted model by model, so that one model's surplus cannot make up for another's misses.
    """
    reported = {r["id"]: r for r in results if "idioms" in r}
    totals: dict[tuple[str, str], Recall] = {}
    for entry in entries:
        if entry["id"] not in reported:
            continue
        for idiom, rules in IDIOMS.items():
            result = reported[entry["id"]]
            found = sum(result["idioms"].get(rule, 0) for rule in rules)
            one = count(entry["truth"], result["in_file"], idiom, found)
            key = idiom, exporter(entry)
            totals[key] = totals.get(key, NOTHING) + one
    return totals


def count(truth: Mapping[str, int], bounds: Mapping[str, int], idiom: str, found: int) -> Recall:
    """One model's recall of one idiom; `bounds` are those of `benchmarks.in_file`."""
    most = present(truth, bounds, idiom)
    return Recall(truth.get(idiom, 0), most, min(most, found), max(0, found - most))


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
        f" 23 (dyn18, dyn23); tiny, with random weights. Each is optimized ({_modes(results)}) and run in ONNX Runtime"
        " on CPU with and without its library, against outputs of the original model run without optimizations."
        " Tolerances, relative to the largest output: f32 1e-3, f16 2e-2, bf16 8e-2. Made by"
        " `python -m benchmarks.corpus --markdown`.",
        "## Outcomes",
        _outcomes(entries, results),
        "## Idioms recognised",
        READING,
        _recall_table(recall(entries, results)),
        "## Fusions",
        _fusions(results),
        "## Speed",
        "What `optimize --target cpu` writes without further options against the original, on the CPU at the sizes that"
        " it takes for likely, timed once more after the decision, in turn, with the 95% interval; the models are so"
        " small that calls of operators weigh as much as what they compute. Where the original itself was written"
        " there is nothing to compare.",
        _speeds(results),
        "## Not ok",
        _failures(results),
        "## Taken back",
        "Kernels that were built and put back: slower than their nodes, of no help to the model that they sit in, or"
        " given up with it for the original (models, by rule).",
        _taken_back(results),
    ]
    return "\n\n".join(parts) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)


def _modes(results: Sequence[Result]) -> str:
    return ", ".join(f"`{mode}`" for mode in dict.fromkeys(r["mode"] for r in results))


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


def _speeds(results: Sequence[Result]) -> str:
    """How many were left as they are, and all that differ from their originals, the slowest first."""
    asked = [r for r in results if r["mode"] == "cpu" and r["status"] in GOOD]
    timed = sorted((r for r in asked if "speed" in r), key=lambda r: float(r["speed"][0]))
    counts = Counter(_written(r) for r in asked)
    mean = math.exp(sum(math.log(r["speed"][0]) for r in timed) / max(len(timed), 1))
    rows = [
        [r["id"], _written(r), f"{r['speed'][0]:.2f}x", f"{r['speed'][1]:.2f} to {r['speed'][2]:.2f}"] for r in timed
    ]
    parts = [
        table(["written", "models"], counts.items()),
        f"Geometric mean of the {len(timed)} that were timed again: {mean:.2f}x.",
        table(["model", "written", "speed", "interval"], rows),
    ]
    return "\n\n".join(parts)


def _written(result: Result) -> str:
    return WORDS[result["chosen"]] if "chosen" in result else "not timed: there was nothing to do, or it does not run"


def _recall_table(totals: Mapping[tuple[str, str], Recall]) -> str:
    exporters = sorted({e for _, e in totals})
    rows = []
    for idiom in IDIOMS:
        columns = [totals.get((idiom, e), NOTHING) for e in exporters]
        everything = sum(columns, NOTHING)
        if everything != NOTHING:
            rows.append([idiom, *map(cell, [*columns, everything])])
    aimed = [sum((totals.get((i, e), NOTHING) for i in TARGETED), NOTHING) for e in exporters]
    rows.append(["**attention, norms, GELU, SiLU**", *map(cell, [*aimed, sum(aimed, NOTHING)])])
    return table(["idiom", *exporters, "all"], rows)


def cell(recall: Recall) -> str:
    """As `READING` says."""
    extra = f" +{recall.extra}" if recall.extra else ""
    if not recall.present:
        return extra.strip() or "-"
    executed = f" [{recall.truth}]" if recall.truth != recall.present else ""
    return f"{recall.found}/{recall.present} ({_percent(recall.ratio)}){executed}{extra}"


def _percent(ratio: float) -> str:
    """Rounded down, so that 100 % means all."""
    return f"{int(ratio * 100)}%"


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
    bad = [r for r in results if r["status"] != "ok" or r.get("build_failures")]
    if not bad:
        return "Nothing: every model came out right in every mode."
    return table(["model", "mode", "status", "why"], [[r["id"], f"`{r['mode']}`", r["status"], _why(r)] for r in bad])


def _taken_back(results: Sequence[Result]) -> str:
    modes = list(dict.fromkeys(r["mode"] for r in results))
    counts = {m: Counter(rule for r in results if r["mode"] == m for rule in r.get("rolled_back", ())) for m in modes}
    rules = sorted({rule for c in counts.values() for rule in c})
    if not rules:
        return "None."
    return table(["rule", *(f"`{m}`" for m in modes)], [[rule, *(counts[m][rule] for m in modes)] for rule in rules])


def _why(result: Result) -> str:
    told = str(result.get("detail", "")).strip().splitlines()
    notes = [told[0][:160] if told else ""]
    if result["status"] == "wrong":
        notes.append(f"error {result['worst']:.2g}")
    if result.get("build_failures"):
        notes.append(f"no kernel for {', '.join(result['build_failures'])}")
    return "; ".join(n for n in notes if n)
