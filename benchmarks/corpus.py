"""Optimize every model of a corpus folder in every mode, and tally what came out.

    python -m benchmarks.corpus [FOLDER] [--only GLOB] [--jobs N] [--results FILE] [--markdown docs/corpus.md]

The folder holds MODEL.onnx, MODEL.npz (inputs `in__X`, reference outputs `out__Y`) and index.json, a list of
{id, exporter, opset, dtype, truth: {idiom: count}}. Results go to a file of JSON lines as they come; a second run does
only what is missing in it (delete it to start over).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress

from benchmarks.corpus_model import MODES
from benchmarks.tally import markdown, statuses

TOLERANCE = {"f32": 1e-3, "f16": 2e-2, "bf16": 8e-2}
"""Largest error allowed, relative to the largest magnitude of the reference, by a model's element type."""
GOOD = ("ok", "skipped")
ROOT = Path(__file__).resolve().parent.parent
Entry = dict[str, Any]


def default_folder() -> Path:
    """The corpus folder: environment variable FUSION_CORPUS, else `../shared/corpus` beside the checkout."""
    return Path(os.environ.get("FUSION_CORPUS", ROOT.parent / "shared" / "corpus"))


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--only", default="*", metavar="GLOB", help="Only the models whose id matches.")
@click.option("--limit", type=int, default=None, help="Only the first N of them.")
@click.option("--mode", "modes", multiple=True, type=click.Choice(list(MODES)), help="Only this mode (repeatable).")
@click.option("--jobs", type=int, default=1, show_default=True, help="Models at a time.")
@click.option("--timeout", type=int, default=600, show_default=True, help="Seconds for one model, all its modes.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("corpus-results.jsonl"), show_default=True)
@click.option("--retry", is_flag=True, help="Do again what did not end ok in an earlier run.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write all results as one JSON list.")
@click.option("--markdown", "markdown_path", type=click.Path(path_type=Path), help="Write the summary page.")
def main(
    folder: Path | None,
    only: str,
    limit: int | None,
    modes: tuple[str, ...],
    jobs: int,
    timeout: int,
    results: Path,
    retry: bool,
    json_path: Path | None,
    markdown_path: Path | None,
) -> None:
    folder = folder or default_folder()
    if not (folder / "index.json").is_file():
        click.echo(f"no corpus at {folder}: nothing to do (name a folder, or set FUSION_CORPUS)")
        return
    entries = [e for e in json.loads((folder / "index.json").read_text()) if fnmatch(e["id"], only)][:limit]
    wanted = modes or tuple(MODES)
    done = {k: r for k, r in load_results(results).items() if not retry or r["status"] in GOOD}
    run_all(folder, entries, wanted, done, results, jobs, timeout)
    kept = [done[e["id"], mode] for mode in wanted for e in entries if (e["id"], mode) in done]
    page = markdown(entries, kept)
    click.echo(page)
    if markdown_path:
        markdown_path.parent.mkdir(parents=True, exist_ok=True)
        markdown_path.write_text(page)
    if json_path:
        json_path.write_text(json.dumps(kept, indent=1) + "\n")
    bad = sum(n for c in statuses(entries, kept).values() for status, n in c.items() if status not in GOOD)
    sys.exit(1 if bad else 0)


def load_results(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """Earlier results by model and mode; a line cut short by an interruption is done again."""
    found = {}
    for line in path.read_text().splitlines() if path.is_file() else []:
        try:
            result = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[result["id"], result["mode"]] = result
    return found


def run_all(
    folder: Path,
    entries: Sequence[Entry],
    modes: Sequence[str],
    done: dict[tuple[str, str], dict[str, Any]],
    results: Path,
    jobs: int,
    timeout: int,
) -> None:
    """Run what `done` lacks, adding to it and to the file `results`."""
    missing = [(e, [m for m in modes if (e["id"], m) not in done]) for e in entries]
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a") as file, Progress(disable=not sys.stderr.isatty()) as bar, ThreadPoolExecutor(jobs) as pool:
        task = bar.add_task("models", total=len(entries))
        futures = [pool.submit(run_model, folder, entry, todo, timeout) for entry, todo in missing]
        for future in as_completed(futures):
            for result in future.result():
                done[result["id"], result["mode"]] = result
                file.write(json.dumps(result) + "\n")
            file.flush()
            bar.advance(task)


def run_model(folder: Path, entry: Entry, modes: Sequence[str], timeout: int) -> list[dict[str, Any]]:
    """All modes of one model, each result complete even if the process that makes it dies."""
    results: list[dict[str, Any]] = []
    remaining = list(modes)
    while remaining:
        found, failure = run_process(folder, entry, remaining, timeout)
        if failure:
            # The process ended within the first mode it had not reported.
            found.append({"mode": remaining[len(found)], **failure})
        results += [{"id": entry["id"], **result} for result in found]
        remaining = remaining[len(found) :]
    return results


def run_process(
    folder: Path, entry: Entry, modes: Sequence[str], timeout: int
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """One process over the modes: the results it printed, and how it died if it did."""
    command = [
        sys.executable, "-m", "benchmarks.corpus_model",
        str(folder / f"{entry['id']}.onnx"), str(TOLERANCE[entry["dtype"]]), *modes,
    ]  # fmt: skip
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
        output, log, code = run.stdout, run.stderr, run.returncode
    except subprocess.TimeoutExpired as expired:
        output, log, code = (expired.stdout or b"").decode(), "", None
    found = [json.loads(line) for line in output.splitlines() if line.startswith('{"status"')]
    if len(found) == len(modes):
        return found, {}
    last = (log.strip().splitlines() or [""])[-1]
    if code is None:
        return found, {"status": "timeout", "detail": f"not done within {timeout} s"}
    return found, {"status": "crash", "detail": f"exit code {code}: {last}"}


if __name__ == "__main__":
    main()
