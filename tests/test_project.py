"""What contributors and CI run is there: workflows, hooks, and the notes of a release."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from fusion_cli.version import DISTRIBUTION, __version__

ROOT = Path(__file__).parents[1]
NOTES = runpy.run_path(str(ROOT / ".ci" / "release_notes.py"))["notes"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_notes_are_the_section_of_the_version() -> None:
    text = "# Changelog\n\n## 0.2.0 (2027-01-01)\n\n- New.\n\n## 0.1.0\n\n- First.\n"
    assert NOTES(text, "0.2.0") == "- New.\n"
    assert NOTES(text, "0.1.0") == "- First.\n"
    with pytest.raises(SystemExit, match=r"no section '## 0\.2'"):
        NOTES(text, "0.2")
    with pytest.raises(SystemExit, match="unreleased"):
        NOTES("## 0.3.0 (unreleased)\n\n- Soon.\n", "0.3.0")


def test_this_version_has_a_section() -> None:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8").replace(" (unreleased)", "")
    assert len(NOTES(text, __version__)) > 100
    command = [sys.executable, ROOT / ".ci" / "release_notes.py", "0.0.0"]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 1


def test_workflows_and_hooks_run_what_there_is() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "wheels.yml"]
    texts = [path.read_text("utf-8") for path in (*WORKFLOWS, ROOT / ".pre-commit-config.yaml", ROOT / ".ci" / "run")]
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for text in texts:
        for path in re.findall(r"(?<![\w/])((?:\.ci|tests)/[\w/.]*\w)", text):
            assert (ROOT / path).exists(), path
        assert set(re.findall(r"\bmake (\w+)", text)) <= targets
    assert f"dist/{DISTRIBUTION.replace('-', '_')}-*.whl" in texts[1]


def test_hooks_check_what_lint_does() -> None:
    hooks = re.findall(r"entry: (?:\.venv/bin/)?(.+)", (ROOT / ".pre-commit-config.yaml").read_text("utf-8"))
    lint = re.search(r"^lint:.*\n((?:\t.+\n)+)", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert lint is not None
    commands = [line.strip().removeprefix("$(BIN)/").removesuffix(".").strip() for line in lint[1].splitlines()]
    assert len(commands) == 3
    assert set(commands) <= set(hooks)
