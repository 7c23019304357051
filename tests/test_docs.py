"""The documentation says what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import click

from fusion_cli.cli import main
from fusion_cli.match.pattern import GROWING
from fusion_cli.match.predicates import PREDICATES
from fusion_cli.report.codes import codes_by_stage, markdown

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PATH = r"`((?:fusion_cli|templates|rules|examples|docs|tests)/[\w./-]+)`"
PAGES = [*ROOT.glob("*.md"), *DOCS.glob("*.md")]


def test_page_of_reason_codes_is_current() -> None:
    assert (DOCS / "codes.md").read_text("utf-8") == markdown(), (
        "run: python -m fusion_cli.report.codes > docs/codes.md"
    )


def test_every_reason_code_in_the_source_is_explained_once() -> None:
    listed = [code for codes in codes_by_stage().values() for code in codes]
    assert len(listed) == len(set(listed))
    used = {c for p in (ROOT / "fusion_cli").rglob("*.py") for c in re.findall(r"\bFUS\d{3}\b", p.read_text("utf-8"))}
    assert used <= set(listed)


def test_every_command_and_option_is_documented() -> None:
    text = (DOCS / "cli.md").read_text("utf-8")
    for name, command in main.commands.items():
        assert f"## {name}" in text
        names = [o for p in command.params if isinstance(p, click.Option) for o in p.opts]
        assert [o for o in names if o not in text] == []
        if isinstance(command, click.Group):
            assert [s for s in command.commands if not re.search(rf"fusion-cli {name} .*\b{s}\b", text)] == []


def test_every_predicate_and_header_line_of_rules_is_documented() -> None:
    text = (DOCS / "rules.md").read_text("utf-8")
    assert [name for name in PREDICATES if f"{name}(" not in text] == []
    assert [name for name in GROWING if f"`pattern.{name}`" not in text] == []
    used = {
        m for p in (ROOT / "rules").rglob("*.rule") for m in re.findall(r"^# ([a-z-]+):", p.read_text("utf-8"), re.M)
    }
    assert [key for key in used if f"`# {key}:`" not in text] == []


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_pages_name_modules_that_exist() -> None:
    for page in PAGES:
        for name in re.findall(
            r"`((?:fusion_cli|templates|rules|examples|docs|tests)/[\w./-]+)`", page.read_text("utf-8")
        ):
            assert (ROOT / name).exists(), f"{page.name} names {name}"
