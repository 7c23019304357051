"""Hold predicted times against measured ones, and see what each term of the prediction is worth.

    python -m benchmarks.cost_model [--models FOLDER] [--results FOLDER] [--markdown docs/cost-model.md]
    python -m benchmarks.cost_model --cpu

Reads what `benchmarks.kernels` and `benchmarks.gpu_models` measured on a GPU, and what --cpu measures on this machine's
CPU, from the folder of results; predicts all of it, without a GPU. A third of the cases, by a hash of their names, are
held out: no number of a profile was fitted to them. Whole models are predicted where their exports are: those of
`benchmarks.gpu_models` in --models.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import onnx

from benchmarks.cost_cases import Case, Measured, Prediction, Predictor
from benchmarks.cost_cpu import CPU_CASES, CpuCase, measure
from benchmarks.cost_model_page import summary_json, with_tables
from benchmarks.gpu_specs import spec_of
from benchmarks.kernel_cases import case_of
from benchmarks.kernel_write import ORIGINAL
from fusion_cli.costs import Device
from fusion_cli.errors import FusionError
from fusion_cli.sessions import CannotRun
from fusion_cli.targets import machine
from fusion_cli.types import Options

RESULTS = Path(__file__).with_name("results")
_TARGETS = {"nvidia-h200": "sm_90a"}
"""Of the devices in names of results."""
_WAYS: dict[Device, str] = {"cuda": "", "cuda graph": ", graph"}
_CPU_RESULT = "cost-cpu.json"


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--cpu", is_flag=True, help="First time the cases for CPUs, on this machine, which has to be quiet.")
@click.option("--models", type=click.Path(path_type=Path), default=Path(".gpu-work/models"), show_default=True)
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
@click.option("--markdown", type=click.Path(path_type=Path), help="A page whose tables are written anew.")
def main(cpu: bool, models: Path, results: Path, markdown: Path | None) -> None:
    if cpu:
        measure_cpu(results / _CPU_RESULT)
    predictor = Predictor()
    found: list[Prediction] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in cases(results, models, Path(folder)):
            try:
                found.append(predictor.predict(case))
            except FusionError as problem:
                click.echo(f"{case.name}: {problem}", err=True)
    (results / "cost-model.json").write_text(json.dumps(summary_json(found), indent=1) + "\n")
    if markdown is not None:
        markdown.write_text(with_tables(markdown.read_text("utf-8"), found, cpu_machine(results)), encoding="utf-8")
    click.echo(json.dumps(summary_json(found)["summary"], indent=1))


def cases(results: Path, models: Path, folder: Path) -> Iterator[Case]:
    """All that was measured; small models are made in `folder`, others skipped where there is no export."""
    for device, target in _TARGETS.items():
        yield from _kernels(_read(results / f"kernels-{device}.json", {}), target, folder)
        yield from _models(_read(results / f"gpu-models-{device}.json", []), target, models)
    times = _read(results / _CPU_RESULT, {}).get("times", {})
    for case in CPU_CASES:
        if case.id in times:
            path = folder / f"{case.id}.onnx"
            onnx.save(case.model(), path)
            yield Case(case.id, path, case.options, "cpu", _measured(times[case.id]), case.is_model)


def _kernels(content: dict[str, Any], target: str, folder: Path) -> Iterator[Case]:
    fusions = {r["id"]: r.get("fusions", ()) for r in content.get("built", ()) if r["mode"] == "kernels"}
    for row in content.get("timed", ()):
        if "kernels" not in row.get("us", {}):
            continue
        path = folder / f"{row['mode']}.onnx"
        onnx.save(case_of(row["mode"]).model(), path)
        measured = Measured(
            row["us"].get(ORIGINAL, [None])[0], row["us"]["kernels"][0], tuple(sorted(fusions.get(row["mode"], ())))
        )
        yield Case(row["mode"], path, Options(targets=(target,), force=True), None, measured, False)


def _models(content: list[dict[str, Any]], target: str, models: Path) -> Iterator[Case]:
    for row in content:
        path, spec, made = models / f"{row['id']}.onnx", spec_of(row["id"]), row["made"]
        if not path.is_file():
            click.echo(f"{row['id']}: no export in {models}, left out", err=True)
            continue
        dims = {"batch": (spec.batch,) * 2, "seq": (spec.seq,) * 2} if spec.dynamic else {}
        rules = tuple(sorted(r for r, n in row["written"][made].get("fusions", {}).items() for _ in range(n)))
        for device, way in _WAYS.items():
            ms = [row["times"].get(f"{name}{way}", {}).get("ms") for name in ("ORT", made)]
            before, after = (None if t is None else t * 1e3 for t in ms)
            measured = Measured(before, after, rules)
            yield Case(row["id"], path, Options(targets=(target,), dims=dims), device, measured, True)


def measure_cpu(path: Path) -> None:
    """Time all cases for CPUs, and keep their times with the machine's name."""
    times: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in CPU_CASES:
            click.echo(case.id, err=True)
            try:
                times[case.id] = vars(measure(case, Path(folder)))
            except (FusionError, CannotRun) as problem:
                click.echo(f"{case.id}: {problem}", err=True)
            _clear(case, Path(folder))
    path.write_text(json.dumps({"machine": machine(), "times": times}, indent=1) + "\n", encoding="utf-8")


def _clear(case: CpuCase, folder: Path) -> None:
    (folder / f"{case.id}.onnx").unlink(missing_ok=True)


def cpu_machine(results: Path) -> str:
    """Where the cases for CPUs were timed; "" if they were not."""
    return str(_read(results / _CPU_RESULT, {}).get("machine", ""))


def _measured(content: dict[str, Any]) -> Measured:
    speed = content.get("speed")
    return Measured(content["before"], content["after"], tuple(content["rules"]), speed and (speed[0], speed[1]))


def _read(path: Path, missing: Any) -> Any:
    return json.loads(path.read_text("utf-8")) if path.is_file() else missing


if __name__ == "__main__":
    main()
