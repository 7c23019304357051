"""The documentation says what the program does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from fusion_cli.cli import main
from fusion_cli.language.lint.source import KEYS
from fusion_cli.language.pattern import GROWING, GROWING_ATTRIBUTES
from fusion_cli.language.predicates import PREDICATES
from tests.helpers.cli_helpers import call
from tests.helpers.reason_codes import explained

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PATH = r"`((?:fusion_cli|templates|rules|examples|docs|tests)/[\w./-]+)`"
PAGES = [*ROOT.glob("*.md"), *DOCS.glob("*.md")]


def codes_in(path: Path) -> set[str]:
    return set(re.findall(r"\bFUS\d{3}\b", path.read_text("utf-8")))


def test_every_reason_code_in_the_source_is_explained_once_at_its_stage() -> None:
    by_stage = explained()
    listed = [code for codes in by_stage.values() for code in codes]
    assert len(listed) == len(set(listed))
    assert set().union(*map(codes_in, (ROOT / "fusion_cli").rglob("*.py"))) == set(listed)
    for stage, codes in by_stage.items():
        assert codes == sorted(codes)
        module = ROOT / "fusion_cli" / "codes" / f"{stage}.py"
        assert stage == "lint" or codes_in(module) == set(codes)


def test_every_command_and_option_is_documented() -> None:
    text = (DOCS / "cli.md").read_text("utf-8")
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        assert f"## {name}" in text
        names = [o for p in command.params if isinstance(p, click.Option) for o in p.opts]
        assert [o for o in names if o not in text] == []
        if isinstance(command, click.Group):
            assert [s for s in command.commands if not re.search(rf"fusion-cli {name} .*\b{s}\b", text)] == []


def test_every_predicate_and_header_line_of_rules_is_documented() -> None:
    text = (DOCS / "rules.md").read_text("utf-8")
    assert [name for name in PREDICATES if f"{name}(" not in text] == []
    assert [name for name in GROWING if f"`pattern.{name}`" not in text] == []
    assert [key for key in KEYS if f"`# {key}:`" not in text] == []
    attributes = {a for names in GROWING_ATTRIBUTES.values() for a in names}
    assert [name for name in attributes if name not in text] == []


BLOCK = re.compile(r"^```(console|rule)([^\n]*)\n(.*?)^```$", re.M | re.S)


@pytest.mark.parametrize(("page", "least"), [("docs/rules.md", 8), ("examples/custom_rule/README.md", 3)])
def test_commands_go_as_described(page: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of the page is run, and prints what the page shows ("..." stands for anything)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = 0
    for kind, title, text in BLOCK.findall((ROOT / page).read_text("utf-8")):
        if kind == "rule":
            with open(title.strip(), "a", encoding="utf-8") as file:
                file.write(text)
            continue
        for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
            command, _, shown = part.partition("\n")
            assert re.fullmatch(_pattern(shown), _plain(_run(command)), re.S), command
            commands += 1
    assert commands >= least


def _run(command: str) -> str:
    words = command.split()
    if words[0] == "fusion-cli":
        return call(*words[1:]).output
    assert words[:2] == ["python", "-m"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *words[1:]], env=environment, capture_output=True, text=True).stdout


def _plain(text: str) -> str:
    return " ".join(text.split())


def _pattern(shown: str) -> str:
    return r"\s*".join(".*" if word == "..." else re.escape(word) for word in shown.split())


def test_every_line_of_manners_names_a_test_that_there_is() -> None:
    lines = [line for line in (DOCS / "manners.md").read_text("utf-8").splitlines() if line.startswith("| ")][1:]
    for line in lines:
        named = re.search(r"`(tests/[\w/]+\.py)::(\w+)` \|$", line)
        assert named is not None, line
        assert f"def {named[2]}(" in (ROOT / named[1]).read_text("utf-8"), line


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
