"""The reason codes that docs/codes.md explains."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "codes.md"


def explained() -> dict[str, list[str]]:
    """By stage, the codes in the order of the page."""
    _, *sections = re.split(r"^## (?=\w+: )", PAGE.read_text("utf-8"), flags=re.M)
    return {s.partition(":")[0]: re.findall(r"^\*\*(FUS\d{3}): [^*]+\.\*\* \S", s, flags=re.M) for s in sections}
