"""Optimize every model of a corpus folder in every mode, and tally what came out.

    python -m benchmarks.corpus [FOLDER] [--only GLOB] [--jobs N] [--results FILE] [--markdown docs/corpus.md]

Results go to a file of JSON lines as they come; a second run does only what is missing in it (delete it to start over).
`benchmarks/runs.py` says what the folder holds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from benchmarks.corpus_model import MODES
from benchmarks.runs import GOOD, Run, default_folder, is_there, load_entries, write
from benchmarks.tally import markdown, statuses


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
    if not is_there(folder):
        return
    entries = load_entries(folder, only)[:limit]
    wanted = modes or tuple(MODES)
    kept = Run(folder, "benchmarks.corpus_model", jobs, timeout).wanted(entries, wanted, results, retry)
    write(markdown(entries, kept), markdown_path)
    if json_path:
        json_path.write_text(json.dumps(kept, indent=1) + "\n")
    bad = sum(n for c in statuses(entries, kept).values() for status, n in c.items() if status not in GOOD)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
