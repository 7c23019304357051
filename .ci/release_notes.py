"""What CHANGELOG.md says of one version, as the notes of its release: python .ci/release_notes.py 0.1.0"""

from __future__ import annotations

import re
import sys
from pathlib import Path

CHANGELOG = Path(__file__).parents[1] / "CHANGELOG.md"


def notes(text: str, version: str) -> str:
    """The section of a version. Raises SystemExit where there is none, or it says that it is not released."""
    found = re.search(rf"^## {re.escape(version)}(?: \(([^)\n]*)\))?\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if found is None:
        raise SystemExit(f"{CHANGELOG.name} has no section '## {version}'")
    if found[1] == "unreleased":
        raise SystemExit(f"{CHANGELOG.name} calls {version} unreleased: give its section the day in place of that")
    return found[2].strip() + "\n"


if __name__ == "__main__":
    print(notes(CHANGELOG.read_text(encoding="utf-8"), sys.argv[1]), end="")
