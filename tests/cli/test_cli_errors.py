"""What the command says and does when something is wrong: one line, the right exit code, nothing lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import onnx
import pytest
from click.testing import Result

from fusion_cli.cli import main
from fusion_cli.errors import BuildError, NumbersDiffer
from fusion_cli.report.failures import INTERNAL_ERROR
from tests.helpers.cli_helpers import call, spawn, write_model
from tests.helpers.graphs import parse

BAD_RULE = """# summary: a rule with a mistake
<domain: "fusion.rules", opset_import: ["": 17]>
Wrong (x) => (y) {
    a = Relu (x)
    y = Add (a, nothing)
}
"""
TEMPLATE_RULE = """# summary: a rule with a template of its own
# kernel: mine
<domain: "fusion.rules", opset_import: ["": 17]>
Mine (x, s) => (y) {
    y = Mul (x, s)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model.onnx")


def failed(result: Result, code: int, *parts: str) -> str:
    """Check for one line of error with these parts in order, and no traceback; returns it."""
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    line = next(line for line in result.stderr.splitlines() if line.startswith("error: "))
    position = 0
    for part in parts:
        assert part in line[position:], line
        position = line.index(part, position) + len(part)
    return line


def test_missing_file(tmp_path: Path) -> None:
    failed(call("optimize", tmp_path / "none.onnx", "-o", tmp_path / "out.onnx"), 1, "none.onnx: no such file")


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n....", b"hello, world\n" * 20])
def test_bytes_that_are_no_model(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.onnx").write_bytes(content)
    failed(call("optimize", tmp_path / "m.onnx", "-o", tmp_path / "out.onnx"), 1, "m.onnx: not an ONNX model")


def test_truncated_protobuf(model: Path, tmp_path: Path) -> None:
    model.write_bytes(model.read_bytes()[:-700])
    failed(call("optimize", model, "-o", tmp_path / "out.onnx"), 1, "model.onnx: ", "cut short")


def external_model(path: Path, location: str) -> Path:
    proto = parse("g (float[2, 300] x) => (float[2, 300] y) { y = Add (x, w) }", {"w": (300,)})
    onnx.save_model(proto, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    proto = onnx.load(path, load_external_data=False)
    for entry in proto.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    path.write_bytes(proto.SerializeToString())
    return path


def test_missing_external_data(tmp_path: Path) -> None:
    path = external_model(tmp_path / "m.onnx", "gone.bin")
    failed(call("optimize", path, "-o", tmp_path / "out.onnx"), 1, "gone.bin")


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/hostname", "sub/../../secret.bin"])
def test_external_data_outside_the_models_folder(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "inner"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(1200))
    path = external_model(folder / "m.onnx", location)
    failed(call("optimize", path, "-o", tmp_path / "out.onnx"), 1, "outside")
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("opset", [3, 999])
def test_unsupported_opset(tmp_path: Path, opset: int) -> None:
    proto = parse("g (float[2] x) => (float[2] y) { y = Relu (x) }")
    proto.opset_import[0].version = opset
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    failed(call("optimize", path, "-o", tmp_path / "out.onnx"), 1, f"opset {opset} is not supported")


def test_unknown_rule_names_the_nearest(model: Path, tmp_path: Path) -> None:
    result = call("optimize", model, "-o", tmp_path / "out.onnx", "--rules", "PointwiseRegion,RowwizeRegion")
    failed(result, 1, "no fusion rule 'RowwizeRegion'", "did you mean 'RowwiseRegion'?")


def test_unknown_target_names_the_nearest(model: Path, tmp_path: Path) -> None:
    result = call("optimize", model, "-o", tmp_path / "out.onnx", "--target", "sm_90")
    failed(result, 1, "no target 'sm_90'", "sm_90a")


def test_bad_rule_shows_file_line_and_caret(model: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "wrong.rule").write_text(BAD_RULE)
    result = call("optimize", model, "-o", tmp_path / "out.onnx", "--rule-path", rules)
    failed(result, 1, "wrong.rule:5:17: ", "'nothing' is not defined")
    shown = result.stderr.splitlines()
    place = next(i for i, line in enumerate(shown) if "y = Add (a, nothing)" in line)
    assert shown[place + 1].index("^") == shown[place].index("nothing")


def test_rules_folder_that_does_not_exist(model: Path, tmp_path: Path) -> None:
    result = call("optimize", model, "-o", tmp_path / "out.onnx", "--rule-path", tmp_path / "none")
    failed(result, 1, "none: no such rule folder")


def test_bad_template_names_file_and_line(model: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "mine.rule").write_text(TEMPLATE_RULE)
    (rules / "mine.cc.jinja").write_text("// first line\n{% for x in %}\n")
    options = ("--rule-path", rules, "--rules", "Mine", "--target", "cpu", "--force")
    failed(call("optimize", model, "-o", tmp_path / "out.onnx", *options), 1, "mine.cc.jinja:2")


def failing_compiler(folder: Path) -> Path:
    path = folder / "broken-g++"
    path.write_text("#!/bin/sh\ncase $1 in --version) echo 'broken 1.0';; *) echo 'cannot do it' >&2; exit 1;; esac\n")
    path.chmod(0o755)
    return path


def test_failing_compiler_shows_the_end_of_its_output_and_the_log(model: Path, tmp_path: Path) -> None:
    env = {"CXX": str(failing_compiler(tmp_path)), "FUSION_CLI_CACHE": str(tmp_path / "cache")}
    result = call("optimize", model, "-o", tmp_path / "out.onnx", "--target", "cpu", "--force", env=env)
    failed(result, 5)
    assert "cannot do it" in result.stderr
    log = next((tmp_path / "cache").rglob("*.log"))
    assert str(log) in result.stderr
    assert not (tmp_path / "out.onnx").exists()


def test_output_is_not_lost_when_a_run_fails(model: Path, tmp_path: Path) -> None:
    arguments = ("optimize", model, "-o", tmp_path / "out.onnx", "--force", "--target")
    assert call(*arguments, "portable").exit_code == 0
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    env = {"CXX": str(failing_compiler(tmp_path)), "FUSION_CLI_CACHE": str(tmp_path.with_name("cache"))}
    failed(call(*arguments, "cpu", env=env), 5)
    after = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    assert after == before | {tmp_path / "broken-g++": (tmp_path / "broken-g++").read_bytes()}


def test_a_file_that_is_no_output_is_not_replaced(model: Path, tmp_path: Path) -> None:
    (tmp_path / "out.onnx").write_text("a thesis")
    failed(call("optimize", model, "-o", tmp_path / "out.onnx", "--overwrite"), 1, "out.onnx: exists, and nothing says")
    failed(call("optimize", model, "-o", "/dev/null"), 1, "/dev/null: is not a regular file")
    assert (tmp_path / "out.onnx").read_text() == "a thesis"
    assert Path("/dev/null").is_char_device()


def test_output_folder_that_does_not_exist(model: Path, tmp_path: Path) -> None:
    failed(call("optimize", model, "-o", tmp_path / "none" / "out.onnx"), 1, "none: no such folder")


def test_inputs_that_do_not_fit(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.npz").write_bytes(b"no arrays")
    result = call("optimize", model, "-o", tmp_path / "out.onnx", "--inputs", tmp_path / "in.npz")
    failed(result, 1, "in.npz: cannot be read as .npz")
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize(
    "command", [("optimize", "-o", "out.onnx"), ("explain",), ("bench",), ("verify", "model.onnx")]
)
@pytest.mark.parametrize(
    ("option", "value", "complaint", "hint"),
    [
        ("--dim", "sec=8", "no size 'sec'", "did you mean 'seq'?"),
        ("--dim", "nothing=8", "no size 'nothing'", "there are: batch, seq"),
        ("--shape", "xx=1,2,32", "no input 'xx'", "did you mean 'x'?"),
        ("--inputs", "in.npz", "no input 'xs'", "did you mean 'x'?"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest(
    model: Path, command: tuple[str, ...], option: str, value: str, complaint: str, hint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(model.parent)
    np.savez("in.npz", in__x=np.ones((1, 2, 32), np.float32), in__xs=np.ones(3, np.float32), out__y=np.ones(3))
    failed(call(*command, model.name, option, value), 1, complaint, hint)


def test_models_that_cannot_be_compared_are_not_said_to_agree(tmp_path: Path) -> None:
    for name, body in (("a.onnx", "y = RandomNormalLike (x)"), ("b.onnx", "r = RandomNormalLike (x) y = Neg (r)")):
        onnx.save(parse(f"g (float[n, 4] x) => (float[n, 4] y) {{ {body} }}"), tmp_path / name)
    failed(call("verify", tmp_path / "a.onnx", tmp_path / "b.onnx"), 3, "draws at random")


@pytest.mark.parametrize(
    "arguments",
    [
        ("optimize",),
        ("optimize", "m.onnx"),
        ("optimize", "m.onnx", "--input", "n.onnx", "-o", "out.onnx"),
        ("optimize", "m.onnx", "-o", "out.onnx", "--opt-level", "4"),
        ("optimize", "m.onnx", "-o", "out.onnx", "--dim", "batch"),
        ("optimize", "m.onnx", "-o", "out.onnx", "--dim", "batch=8:1"),
        ("optimize", "m.onnx", "-o", "out.onnx", "--dim", "batch=-1"),
        ("optimize", "m.onnx", "-o", "out.onnx", "--shape", "x=1,two"),
        ("optimize", "m.onnx", "-o", "out.onnx", "--jobs", "-1"),
        ("explain",),
        ("verify", "a.onnx"),
        ("nothing",),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...]) -> None:
    result = call(*arguments)
    assert result.exit_code == 2
    assert "Usage: " in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BuildError("no"), 5),
        (NumbersDiffer("no"), 3),
        (OSError(28, "no space left", "out.onnx"), 1),
        (OSError("no"), 1),
    ],
)
def test_exit_code_is_the_errors_own(error: Exception, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("fusion_cli.pipeline.optimize", fails)
    failed(call("optimize", "m.onnx", "-o", "out.onnx"), code, "no")


def test_a_fault_of_the_program_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr("fusion_cli.pipeline.optimize", fails)
    result = call("optimize", "m.onnx", "-o", "out.onnx")
    failed(result, INTERNAL_ERROR, "internal: KeyError", "--debug")
    traced = call("optimize", "m.onnx", "-o", "out.onnx", "--debug")
    assert traced.exit_code == INTERNAL_ERROR
    assert "Traceback" in traced.stderr


def test_control_characters_of_a_name_do_not_reach_the_terminal(tmp_path: Path) -> None:
    result = call("optimize", tmp_path / "\x1b[31mred.onnx", "-o", tmp_path / "out.onnx")
    assert result.exit_code == 1
    assert "\x1b" not in result.stderr


def test_a_process_of_its_own_reports_the_same(tmp_path: Path) -> None:
    result = spawn("optimize", tmp_path / "none.onnx", "-o", tmp_path / "out.onnx")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_help_of_every_command() -> None:
    names = main.list_commands(click.Context(main))
    assert {
        "bench",
        "cache",
        "check",
        "devices",
        "diff",
        "doctor",
        "explain",
        "inspect",
        "optimize",
        "report",
        "rules",
        "trust",
        "verify",
    } == set(names)
    for name in names:
        result = call(name, "--help")
        assert result.exit_code == 0
        assert "Usage: " in result.output


def test_help_waits_for_no_library_for_models() -> None:
    code = "import sys; from fusion_cli.cli import main; main(['--help'], standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "optimize" in done.stdout
    assert not {"onnx", "onnx_ir", "numpy", "rich", "jinja2"} & set(done.stdout.split())
