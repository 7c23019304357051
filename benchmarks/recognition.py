"""Count what fusion-cli and other tools recognise in every model of a corpus folder, and check what they leave.

    python -m benchmarks.recognition [FOLDER] [--only GLOB] [--jobs N] [--results FILE] [--markdown docs/recognition.md]

Results go to a file of JSON lines as they come; a second run does only what is missing in it (delete it to start over).
`benchmarks/runs.py` says what the folder holds. Exit code 1: one of fusion-cli's outputs is wrong, a trap was taken
for what it is not, or a cell of the table is below the goal.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import onnx

from benchmarks.in_file import in_file
from benchmarks.recognition_model import TOOLS
from benchmarks.recognition_page import Tally, facts, page, shortfalls
from benchmarks.runs import Run, default_folder, is_there, load_entries, write


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.argument("folder", type=click.Path(path_type=Path), required=False)
@click.option("--only", default="*", metavar="GLOB", help="Only the models whose id matches.")
@click.option("--tool", "tools", multiple=True, type=click.Choice(TOOLS), help="Only this tool (repeatable).")
@click.option("--jobs", type=int, default=1, show_default=True, help="Models at a time.")
@click.option("--timeout", type=int, default=300, show_default=True, help="Seconds for one model, all its tools.")
@click.option("--results", type=click.Path(path_type=Path), default=Path("recognition.jsonl"), show_default=True)
@click.option("--retry", is_flag=True, help="Do again what did not end ok in an earlier run.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write what the page says as JSON.")
@click.option("--markdown", "markdown_path", type=click.Path(path_type=Path), help="Write the page.")
def main(
    folder: Path | None,
    only: str,
    tools: tuple[str, ...],
    jobs: int,
    timeout: int,
    results: Path,
    retry: bool,
    json_path: Path | None,
    markdown_path: Path | None,
) -> None:
    folder = folder or default_folder()
    if not is_there(folder):
        return
    entries = load_entries(folder, only)
    wanted = tools or TOOLS
    kept = Run(folder, "benchmarks.recognition_model", jobs, timeout).wanted(entries, wanted, results, retry)
    bounds = {e["id"]: in_file(onnx.load(folder / f"{e['id']}.onnx", load_external_data=False)) for e in entries}
    tally = Tally(entries, kept, bounds)
    write(page(tally), markdown_path)
    if json_path:
        json_path.write_text(json.dumps(facts(tally), indent=1) + "\n")
    short = shortfalls(tally)
    click.echo("\n".join(short), err=True)
    sys.exit(1 if short else 0)


if __name__ == "__main__":
    main()
