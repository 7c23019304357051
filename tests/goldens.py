"""Golden files: what the compiler makes of small models, kept as text, so that a change of it is seen in review.

    python -m tests.goldens

writes them anew, and docs/algebra.md and README's table with them, and removes those that nothing makes any more.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path

Goldens = Mapping[str, Callable[[], str]]
"""File names, and the functions that make the texts."""

PLANS = Path(__file__).parent / "plan" / "goldens"
SOURCES = Path(__file__).parent / "emit" / "goldens"


def check(folder: Path, name: str, text: str) -> None:
    """Fails with the difference, as a patch to the golden file, where the text is another one."""
    path = folder / name
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    difference = "".join(difflib.unified_diff(kept.splitlines(True), text.splitlines(True), name, f"{name} now"))
    assert not difference, f"{difference}\n`make goldens` writes it to {path}, if that is what should be"


def check_names(folder: Path, goldens: Goldens) -> None:
    """Fails where the folder has not the files that are made, and no others."""
    assert sorted(p.name for p in folder.iterdir()) == sorted(goldens), "`make goldens` adds and removes files"


def write(folder: Path, goldens: Goldens) -> None:
    """Make the folder's files anew."""
    folder.mkdir(exist_ok=True)
    for stale in {p.name for p in folder.iterdir()} - set(goldens):
        (folder / stale).unlink()
    for name, make in goldens.items():
        (folder / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    from benchmarks.front_page import README, front_page
    from tests.helpers import algebra_page, golden_plans, golden_sources

    write(PLANS, golden_plans.GOLDENS)
    write(SOURCES, golden_sources.GOLDENS)
    algebra_page.PAGE.write_text(algebra_page.page(), encoding="utf-8")
    README.write_text(front_page(README.read_text(encoding="utf-8")), encoding="utf-8")
