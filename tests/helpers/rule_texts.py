"""The text of rules in tests, and what is found wrong with it where."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fusion_cli.rulekit.findings import lint

HEAD = '<domain: "fusion.rules", opset_import: ["": 23, "pattern": 1]>\n'
Traps = Mapping[str, tuple[str, str, str, str]]
"""By name: a rule's text, the code of its fault, what stands where it is, and words of the message."""


def rule(body: str, head: str = HEAD, signature: str = "R (x) => (y)", keys: str = "") -> str:
    """A rule whose body starts in line 4 after one header line and the two lines of its head."""
    return f"# summary: r{keys}\n{head}{signature}\n{{\n{body}\n}}\n"


def write(folder: Path, text: str, name: str = "mine.rule") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def check_trap(folder: Path, text: str, code: str, at: str, message: str) -> None:
    """Fails unless this fault is found, at the last place where `at` stands."""
    path = write(folder, text)
    (folder / "mine.cc.jinja").write_text("")
    _, findings = lint([path])
    found = next(f for f in findings if f.code == code)
    before = text[: text.rindex(at)]
    assert (found.line, found.column) == (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert message in found.message
    shown = str(found).splitlines()
    assert shown[2].index("^") - 4 == found.column - 1
    assert shown[1][4:] == text.splitlines()[found.line - 1]
