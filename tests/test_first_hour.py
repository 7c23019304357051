"""What README promises someone who comes new, step by step, with the wheel in a clean environment: optimize, explain,
lock, and a change of the model that stops a rule is found, with the reason."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import onnx
import pytest

from tests.helpers.clean_install import build_wheel, install
from tests.helpers.cli_helpers import ROOT, needs_compiler, write_model
from tests.page.test_page import browse, needs_browser
from tests.test_docs_commands import shown

pytestmark = needs_compiler
COMMANDS = list(shown(ROOT / "README.md"))
FORCED = ("--target", "cpu", "--force")
"""So small a model is not faster for it; what is fused must not depend on a time."""


class Newcomer:
    """A user in a folder of their own."""

    def __init__(self, commands: Path, folder: Path) -> None:
        self.commands, self.folder = commands, folder

    def run(self, *beginning: str, more: tuple[str, ...] = (), code: int = 0) -> subprocess.CompletedProcess[str]:
        """README's command that begins so, or has these words, and options."""
        command = next(c for c in COMMANDS if all(word in c.split() for word in beginning))
        path = os.pathsep.join([str(self.commands), os.environ["PATH"]])
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PATH": path}
        words = [str(self.commands / "fusion-cli"), *shlex.split(command), *more]
        done = subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == code, f"{command}\n{done.stdout}{done.stderr}"
        return done


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    """Who has a model, has installed the wheel, and has done what README shows first."""
    folder = tmp_path_factory.mktemp("first hour")
    commands = install(build_wheel(folder), folder / "clean")
    model = onnx.load(write_model(folder / "model.onnx"))
    next(n for n in model.graph.node if n.name == "MatMul/h").name = "/layer.0/MatMul"
    onnx.save(model, folder / "model.onnx")
    newcomer = Newcomer(commands, folder)
    newcomer.run("optimize", "model.onnx", "--lock", more=FORCED)
    return newcomer


def test_the_wheel_is_what_runs(user: Newcomer) -> None:
    told = subprocess.run(
        [user.commands / "python", "-c", "import fusion_cli; print(fusion_cli.__file__)"],
        cwd=user.folder, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert told.stdout.startswith(str(user.folder / "clean"))
    assert "rules" in user.run("doctor").stdout


def test_optimize_begins_with_the_verdict_and_ends_with_what_can_be_pasted(user: Newcomer) -> None:
    done = user.run("optimize", "model.onnx", "--lock", more=FORCED)
    lines = done.stdout.splitlines()
    assert re.match(r"(?:\d\.\d\dx on this CPU|as fast as|slower than)", lines[0])
    assert lines[-1] == "next: fusion-cli check model.onnx --lock fusion.lock"
    assert (user.folder / "fused.fusion" / "report.html").is_file()


def test_explain_answers(user: Newcomer) -> None:
    assert user.run("explain", "fused.onnx").stdout.count("+ ") >= 1
    node = user.run("explain", "--node").stdout
    assert node.splitlines()[0].startswith("MatMul /layer.0/MatMul: ")
    assert len(node.splitlines()) <= 10
    assert user.run("verify").stdout.startswith("ok ")


def test_check_passes_while_the_model_is_as_it_was(user: Newcomer) -> None:
    assert user.run("check", more=("--max-slowdown", "1000")).stdout.startswith("check passed: 1 of 1 fusion as locked")


def test_check_fails_with_the_reason_where_the_model_breaks(user: Newcomer) -> None:
    """A Max with the lowest number changes no result, and hides from the rule that the product is one of a norm."""
    model = user.folder / "model.onnx"
    before = model.read_bytes()
    proto = onnx.load(model)
    next(n for n in proto.graph.node if n.name == "/layer.0/MatMul").input[0] = "n_clipped"
    lowest = onnx.helper.make_tensor("lowest", onnx.TensorProto.FLOAT, [], [-3.4e38])
    proto.graph.initializer.append(lowest)
    proto.graph.node.insert(1, onnx.helper.make_node("Max", ["n", "lowest"], ["n_clipped"], name="/layer.0/Max"))
    try:
        onnx.save(proto, model)
        told = user.run("check", more=("--max-slowdown", "1000"), code=4).stdout.splitlines()
    finally:
        model.write_bytes(before)
    assert told[0].startswith("check FAILED: 0 of 1 fusion as locked")
    assert told[1].startswith("- FeedForwardBlock no longer takes 7 nodes at ")
    assert re.search(r"FUS\d{3}.*(?:Max|clipped)", told[2]), told
    assert "note: the model changed: +1 Max" in told


@needs_browser
def test_the_page_opens_in_a_browser(user: Newcomer) -> None:
    first = user.run("explain", "fused.onnx").stdout.splitlines()[0]
    page = browse(user.folder / "fused.fusion" / "report.html", user.folder / "profile", "--dump-dom")
    assert f'<h1 id="verdict">{first}</h1>' in page
    assert "/layer.0/MatMul" in page
