"""Every command of README and the other pages: what is shown as a command is run, and what is shown as the form of one
names commands and options that there are."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import onnx
import pytest

from fusion_cli.cli import main
from tests.helpers.cli_helpers import ROOT, call, write_model

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.md")])
RUN = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/rules.md", "docs/security.md")]
"""Those with commands of whole words; docs/cli.md has forms of commands alone."""


def shown(page: Path) -> Iterator[str]:
    """The indented commands of a page, each on a line of its own; fenced ones are output, or are tested elsewhere."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S).replace("\\\n", " ")
    for line in re.findall(r"^ {4,}(\S.*)$", text, re.M):
        for part in re.split(r";\s+", re.sub(r"\s+#.*", "", line)):
            if found := re.search(r"fusion-cli (.*)$", part):
                yield found[1].strip()


def inline(page: Path) -> Iterator[str]:
    """The commands within sentences."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.M | re.S)
    for found in re.findall(r"`fusion-cli\s+([^`]+)`", text):
        yield " ".join(found.split())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the pages' commands find: a model with a node of the name that they ask about, a folder of models, rules."""
    model = onnx.load(write_model(tmp_path / "model.onnx"))
    next(n for n in model.graph.node if n.name == "MatMul/h").name = "/layer.0/MatMul"
    for place in ("model.onnx", "models/model.onnx", "in/model.onnx"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        onnx.save(model, tmp_path / place)
    (tmp_path / "out").mkdir()
    (tmp_path / "fusion.toml").write_text("force = true\n")  # in so small a model nothing pays
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda _: True)
    monkeypatch.setattr("fusion_cli.verify.rollback._OPS_SECONDS", 0.0)
    return tmp_path


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_every_command_runs(page: Path, folder: Path) -> None:
    if page.name == "rules.md":
        assert call("rules", "new", "MyRule", "--from", "model.onnx", "--around", "/layer.0/MatMul").exit_code == 0
        (folder / "my_rules").mkdir()
        (folder / "my_rule.rule").rename(folder / "my_rules" / "mine.rule")
    commands = list(shown(page))
    assert len(commands) >= 3
    for command in commands:
        words = [re.sub(r"^(?:/tmp)?/(in|out)/", r"\1/", word) for word in shlex.split(command)]  # within a container
        if words[0] == "bench":
            words += ["--seconds", "0.05"]
        result = call(*words)
        assert result.exit_code == 0, f"{command}\n{result.output}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_forms_of_commands_name_commands_and_options_that_there_are(page: Path) -> None:
    context = click.Context(main)
    for form in (*shown(page), *inline(page)):
        words = re.findall(r"--?[a-z][\w-]*|[\w.]+", form)
        command: click.Command | None = main.get_command(context, words[0]) if words else None
        if words and words[0].startswith("-"):
            continue  # of the program itself
        assert command is not None, form
        commands = [command]
        if isinstance(command, click.Group):
            commands = [command.commands[word] for word in words if word in command.commands]
            assert commands, form
        known = {o for c in commands for p in c.params for o in p.opts} | {"-h", "--help"}
        assert [w for w in words if w.startswith("--") and w not in known] == [], form


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_are_run_are_there_with_their_options(page: Path) -> None:
    for command in re.findall(r"python -m ((?:benchmarks|examples|tests)[\w.]*[^`\n]*)", page.read_text("utf-8")):
        module, *rest = command.split()
        found = importlib.util.find_spec(module)
        assert found is not None, command
        assert found.origin is not None
        path = Path(found.origin)
        text = (path.with_name("__main__.py") if path.name == "__init__.py" else path).read_text("utf-8")
        options = [word for word in re.findall(r"--[a-z-]+", " ".join(rest)) if f'"{word}"' not in text]
        assert options == [], command


def test_make_has_the_targets_that_are_named() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for page in PAGES:
        text = page.read_text("utf-8")
        assert set(re.findall(r"(?:^ {4}|`)make ([a-z]+)", text, re.M)) <= targets, page
