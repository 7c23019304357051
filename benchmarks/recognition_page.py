"""Adding up what the tools recognised, and the Markdown page and JSON that say so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchmarks.idioms import IDIOMS, TRAPS
from benchmarks.tally import NOTHING, READING, Recall, Result, cell, count, exporter, table

US = "fusion-cli"
STATUSES = ("ok", "skipped", "unsupported", "invalid", "wrong", "error", "crash", "timeout")
GOAL: Mapping[str, float] = {"attention": 1.0}
"""Least share of an idiom's instances to be recognised, per exporter; `LEAST` for the others."""
LEAST = 0.98

REASONS: Mapping[tuple[str, str], str] = {
    **dict.fromkeys(
        [(a, "linear") for a in ("bert-nomask", "camembert", "megatron_bert", "mpnet", "roberta", "yolos")],
        "the pooler's linear layer feeds no output of the file, so the exporter leaves it out",
    ),
    **dict.fromkeys(
        [(a, "layernorm") for a in ("clip_vision", "convnext", "convnextv2")],
        "the norm of the pooled features feeds no output of the file, so the exporter leaves it out",
    ),
    ("squeezebert", "linear"): "the pooler's, which feeds no output; the other layers are grouped convolutions",
    **dict.fromkeys(
        [(a, "linear") for a in ("gpt2", "gpt2-eager", "gpt2-nomask")],
        "weights applied by a module that is no torch.nn.Linear (Conv1D) were not counted: 4 a layer",
    ),
    ("xlnet", "linear"): "the projections are Einsums with a weight of rank 3, which were not counted: 5 a layer",
    ("torch_encoder_layer", "linear"): "the attention's projections are functional calls, which were not counted",
    **dict.fromkeys(
        [(a, "silu") for a in ("flux", "sd3", "sd_unet")],
        "every block computes SiLU of the same time embedding; the file has it once",
    ),
    ("dit", "silu"): "the time embedder runs twice on the same input, and the file has it once",
    ("dit", "linear"): "the time embedder runs twice on the same input, and the file has its two layers once",
    ("shared_weights", "layernorm"): "the same norm of the same input twice; the file has it once",
}
"""(architecture, idiom) -> why the modules executed another number than the file holds."""
ROTATIONS = "one call turns the queries and the keys: two embeddings in the file"

COUNTING = (
    "**In the file** is an upper bound that no pattern matching enters: the operators of which every instance of an"
    " idiom needs one of its own (Erf for GELU, Sqrt for a norm, Softmax before a product for attention; see"
    " `benchmarks/in_file.py`), and no more than the modules executed. Linear layers (products with a weight matrix)"
    " and rotary embeddings (a negated half put beside the other) can be counted for themselves.\n\n"
    "**Others are counted generously** (`benchmarks/idioms.py`). An operator stands for every idiom it takes in"
    " (`SkipLayerNormalization` for the norm, `com.microsoft.Attention` for three linear layers); one that the exporter"
    " itself wrote counts for every tool that leaves it or makes it its own (one that ONNX Runtime replaces by its"
    " definition, for want of a kernel, is gone); every product with a constant matrix"
    " counts as a linear layer; what onnxscript reports as fused and puts back afterwards counts; of the transformer"
    " optimizer's model types the one that finds most is taken for each model, after ONNX Runtime's basic"
    " optimizations. What a tool recognises counts whether or not its output runs. The CPU build is used: fusions that"
    " ONNX Runtime makes for other devices alone are not seen."
)


@dataclass(frozen=True)
class Tally:
    """Models, one result per model and tool (its `mode`), and the bounds of `benchmarks.in_file` by model."""

    entries: Sequence[Mapping[str, Any]]
    results: Sequence[Result]
    bounds: Mapping[str, Mapping[str, int]]

    @cached_property
    def tools(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(r["mode"] for r in self.results))

    @cached_property
    def exporters(self) -> tuple[str, ...]:
        return tuple(sorted({exporter(e) for e in self.entries}))

    @cached_property
    def recalls(self) -> Mapping[tuple[str, str, str], Recall]:
        """(idiom, exporter, tool) -> recall; a tool that left nothing recognised nothing."""
        found = {(r["id"], r["mode"]): r.get("idioms", {}) for r in self.results}
        totals: dict[tuple[str, str, str], Recall] = {}
        for entry in self.entries:
            for tool in self.tools:
                for idiom in IDIOMS if (entry["id"], tool) in found else ():
                    reported = found[entry["id"], tool].get(idiom, 0)
                    key = idiom, exporter(entry), tool
                    one = count(entry["truth"], self.bounds[entry["id"]], idiom, reported)
                    totals[key] = totals.get(key, NOTHING) + one
        return totals

    @cached_property
    def traps(self) -> Sequence[tuple[str, str, str, int, int]]:
        """(model, tool, idiom, reported, at most) where a trap was taken for what it is not."""
        architectures = {e["id"]: e["arch"] for e in self.entries}
        return [
            (r["id"], r["mode"], idiom, r["idioms"][idiom], most)
            for r in self.results
            for idiom, most in TRAPS.get(architectures[r["id"]], {}).items()
            if r.get("idioms", {}).get(idiom, 0) > most
        ]

    @cached_property
    def differences(self) -> Mapping[tuple[str, str], Sequence[tuple[str, int, int]]]:
        """(architecture, idiom) -> (exporter, executed, in the file) where these differ."""
        differing: dict[tuple[str, str], list[tuple[str, int, int]]] = {}
        for entry in self.entries:
            for idiom in IDIOMS:
                one = count(entry["truth"], self.bounds[entry["id"]], idiom, 0)
                if one.truth != one.present:
                    row = exporter(entry), one.truth, one.present
                    differing.setdefault((entry["arch"], idiom), []).append(row)
        return differing


def page(tally: Tally) -> str:
    """The whole page."""
    parts = [
        "# What is recognised",
        f"{len(tally.entries)} models exported by TorchScript at opset 17 (ts17) and by the dynamo exporter at opsets"
        " 18 and 23 (dyn18, dyn23), through fusion-cli, ONNX Runtime with all its optimizations, its transformer"
        " optimizer and onnxscript's fusions for ONNX Runtime. Made by `python -m benchmarks.recognition --markdown`.",
        "## Recognised",
        READING,
        _recognised(tally),
        "## What the tools leave",
        "Each output is run in ONNX Runtime on the CPU and compared with the original run without optimizations."
        " *skipped*: the original does not load either (bfloat16); *unsupported*: an operator that ONNX Runtime has no"
        " CPU kernel for; *invalid*: does not load for another reason; *error*: the tool raises an error, or its output"
        " does.",
        _outcomes(tally),
        _failures(tally),
        "## Traps",
        "Graphs that look like an idiom and are not one (`TRAPS` in `benchmarks/idioms.py`), or whose intermediates or"
        " weights are used elsewhere: taken for what they are not, or computed wrongly.",
        _traps(tally),
        "## How it is counted",
        COUNTING,
        "## Where a file does not hold what the modules executed",
        _differences(tally),
    ]
    return "\n\n".join(parts) + "\n"


def facts(tally: Tally) -> dict[str, Any]:
    """The page's contents for programs."""
    return {
        "recognised": [
            {"idiom": i, "exporter": e, "tool": t, "executed": r.truth, "in_file": r.present, "found": r.found,
             "extra": r.extra}
            for (i, e, t), r in tally.recalls.items() if r != NOTHING
        ],
        "outcomes": {tool: dict(_statuses(tally, tool)) for tool in tally.tools},
        "traps": [dict(zip(("model", "tool", "idiom", "reported", "most"), t, strict=True)) for t in tally.traps],
        "differences": [
            {"architecture": a, "idiom": i, "exporter": e, "executed": t, "in_file": p}
            for (a, i), rows in tally.differences.items() for e, t, p in rows
        ],
    }  # fmt: skip


def shortfalls(tally: Tally) -> list[str]:
    """Where fusion-cli itself falls short of its goals, a line each."""
    short = [
        f"{idiom} {where}: {recall.found} of {recall.present}"
        for (idiom, where, tool), recall in tally.recalls.items()
        if tool == US and recall.ratio < GOAL.get(idiom, LEAST)
    ]
    short += [f"{model}: {idiom} reported {n} times" for model, tool, idiom, n, _ in tally.traps if tool == US]
    short += [f"{r['id']}: {r['status']}" for r in tally.results if r["mode"] == US and not _fine(r)]
    return short


def _fine(result: Result) -> bool:
    return result["status"] in ("ok", "skipped")


def _recognised(tally: Tally) -> str:
    rows = []
    for idiom in IDIOMS:
        columns = {e: [tally.recalls.get((idiom, e, t), NOTHING) for t in tally.tools] for e in tally.exporters}
        columns["**all**"] = [sum(of_tool, NOTHING) for of_tool in zip(*columns.values(), strict=True)]
        rows += [
            [idiom, e, *map(cell, recalls)] for e, recalls in columns.items() if any(r != NOTHING for r in recalls)
        ]
    return table(["idiom", "exporter", *tally.tools], rows)


def _statuses(tally: Tally, tool: str) -> Counter[str]:
    return Counter(r["status"] for r in tally.results if r["mode"] == tool)


def _outcomes(tally: Tally) -> str:
    counts = {tool: _statuses(tally, tool) for tool in tally.tools}
    shown = [s for s in STATUSES if any(c[s] for c in counts.values())]
    return table(["tool", *shown], [[tool, *(c[s] for s in shown)] for tool, c in counts.items()])


def _failures(tally: Tally) -> str:
    bad = [r for r in tally.results if not _fine(r)]
    if not bad:
        return "Every output is right."
    rows = [[r["id"], r["mode"], r["status"], _why(r)] for r in bad]
    return table(["model", "tool", "status", "why"], rows)


def _why(result: Result) -> str:
    if result["status"] == "wrong":
        return f"relative error {result['worst']:.2g}"
    return str(result["detail"]).strip().split("\n")[0][:160]


def _traps(tally: Tally) -> str:
    trapped = {e["id"] for e in tally.entries if e["arch"] in TRAPS}
    rows = [[r["id"], r["mode"], "numbers", r["status"]] for r in tally.results if r["id"] in trapped and not _fine(r)]
    rows += [[model, tool, idiom, f"{n} reported, at most {most}"] for model, tool, idiom, n, most in tally.traps]
    if not rows:
        return f"None of {len(trapped)} models, by no tool."
    return f"{len(trapped)} models.\n\n" + table(["model", "tool", "idiom", "found"], rows)


def _differences(tally: Tally) -> str:
    rows = []
    for (architecture, idiom), found in tally.differences.items():
        reason = ROTATIONS if idiom == "rope" else REASONS.get((architecture, idiom), "not explained")
        numbers = sorted({(executed, held) for _, executed, held in found})
        where = ", ".join(e for e, _, _ in found)
        counted = "; ".join(f"{executed} → {held}" for executed, held in numbers)
        rows.append([architecture, idiom, where, counted, reason])
    if not rows:
        return "Nowhere."
    return table(["architecture", "idiom", "exporter", "executed → in the file", "why"], rows)
