"""Optimize models several times with the default command line, and name those whose files differ from run to run.

    python -m benchmarks.repeat [--models GLOB] [--runs N] [--remeasure] [--keep FOLDER]

Every run is a process of its own, as a user's; the first one measures. With `--remeasure` all do, which tells how often
measurements decide alike. Then `--decisions` does the first one again, with verification and
without. Compared are the model and its bundle; of report.json what is not measured.
"""

from __future__ import annotations

import glob
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.runs import ROOT, default_folder
from fusion_cli.save.ownership import bundle_of

_MEASURED = ("timings", "choice", "verification", "libraries", "model", "output", "options")
"""What of a report is of one run only, was asked of it, or says where files lie."""


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--models", default=str(default_folder() / "*.onnx"), show_default=True, metavar="GLOB")
@click.option("--runs", type=click.IntRange(2), default=2, show_default=True, help="How often each model is optimized.")
@click.option("--remeasure", is_flag=True, help="Measure in every run.")
@click.option("--keep", type=click.Path(path_type=Path), help="Leave what was written here, in a folder per model.")
def main(models: str, runs: int, remeasure: bool, keep: Path | None) -> None:
    paths = [Path(name) for name in sorted(glob.glob(models))]
    unlike, broken = [], []
    for path in paths:
        with tempfile.TemporaryDirectory() as temporary:
            folder = (keep or Path(temporary)) / path.stem
            measured = ["--remeasure" if remeasure or i == 0 else "" for i in range(runs)]
            outputs = [optimize(path, folder / f"{i}", *filter(None, [option])) for i, option in enumerate(measured)]
            decisions = ("--decisions", str(report_of(outputs[0])))
            replays = [
                optimize(path, folder / name, *decisions, *options)
                for name, options in {"replayed": (), "untried": ("--no-verify",)}.items()
            ]
            unlike += [path] if differ(outputs) else []
            broken += [path] if differ([outputs[0], *replays]) else []
            note = " REPLAY DIFFERS" if path in broken else " differs" if path in unlike else ""
            click.echo(f"{path.stem}:{note} " + ", ".join(map(chosen, outputs)))
    click.echo(f"{len(unlike)} of {len(paths)} models differ in {runs} runs, {len(broken)} from their replay")
    sys.exit(1 if broken else 0)


def optimize(model: Path, folder: Path, *options: str) -> Path:
    """The model that was written, as `out.onnx` in `folder`; what went wrong lies there as `error.txt`."""
    folder.mkdir(parents=True, exist_ok=True)
    output = folder / "out.onnx"
    command = [sys.executable, "-m", "fusion_cli", "optimize", str(model), "-o", str(output), *options]
    run = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    if run.returncode:
        (folder / "error.txt").write_text(run.stderr)
    return output


def report_of(output: Path) -> Path:
    return bundle_of(output) / "report.json"


def chosen(output: Path) -> str:
    """The whole model that was written, and its rules; how fast the candidates were."""
    if not output.exists():
        return "failed"
    report = json.loads(report_of(output).read_text())
    rules = sorted({f["rule"] for f in report["fusions"]})
    measured = report["choice"]["measured"][:1]
    speeds = [f"{c['speed']['ratio']:.2f}" for m in measured for c in m["models"][1:]]
    return f"{report['choice']['chosen']} {'+'.join(rules)} [{' '.join(speeds)}]"


def differ(outputs: Sequence[Path]) -> bool:
    first, *others = map(files, outputs)
    return any(other != first for other in others)


def files(output: Path) -> dict[str, Any]:
    """All that was written, by name."""
    if not output.exists():
        return {"error": (output.parent / "error.txt").read_text()}
    bundle = bundle_of(output)
    written = (p for p in (output, *bundle.rglob("*")) if p.is_file() and p.name != "report.html")  # it shows times
    found: dict[str, Any] = {str(p.relative_to(output.parent)): p.read_bytes() for p in written}
    found[str(report_of(output).relative_to(output.parent))] = decided(json.loads(report_of(output).read_text()))
    return found


def decided(report: dict[str, Any]) -> dict[str, Any]:
    """What of a report does not depend on times."""
    kept = {key: value for key, value in report.items() if key not in _MEASURED}
    kept["rejected"] = [r for r in report["rejected"] if r["stage"] != "verify"]
    kept["fusions"] = [{k: v for k, v in f.items() if k != "measured"} for f in report["fusions"]]
    return kept | {"chosen": report["choice"] and report["choice"]["chosen"]}


if __name__ == "__main__":
    main()
