"""Whose libraries run: those that this user built here, or has said to trust."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Thread

import numpy as np
import onnx
import pytest

from fusion_cli.errors import FusionError
from fusion_cli.runtime import session
from fusion_cli.runtime.head import read_head
from fusion_cli.runtime.seal import is_sealed, key_path, seal
from tests.helpers.cli_helpers import call, write_model

ELSEWHERE = "not built here by this user"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A model, and what `optimize` makes of it with kernels for the CPU."""
    folder = tmp_path_factory.mktemp("built")
    model = write_model(folder / "m.onnx")
    result = call("optimize", model, "-o", folder / "out.onnx", "--target", "cpu", "--force")
    assert result.exit_code == 0, result.output
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def out(built: dict[str, bytes], tmp_path: Path) -> Path:
    for name, data in built.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path / "out.onnx"


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another user, or another machine: without the key that sealed the bundle."""
    folder = tmp_path_factory.mktemp("stranger")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    return folder


def library(out: Path) -> Path:
    (path,) = (out.parent / "out.fusion" / "lib").iterdir()
    return path


def manifest(out: Path) -> Path:
    return out.parent / "out.fusion" / "manifest.json"


def edit(out: Path, change: Callable[[dict[str, object]], object]) -> None:
    content = json.loads(manifest(out).read_text())
    change(content)
    manifest(out).write_text(json.dumps(content))


def replace_library(out: Path) -> None:
    with library(out).open("ab") as file:
        file.write(b"evil")


def replace_hash(out: Path) -> None:
    digest = hashlib.sha256(library(out).read_bytes()).hexdigest()
    edit(out, lambda content: content["libraries"][0].update(sha256=digest))  # type: ignore[index]


def replace_both(out: Path) -> None:
    replace_library(out)
    replace_hash(out)


def replace_function(out: Path) -> None:
    proto = onnx.load(out)
    node = next(n for n in proto.functions[0].node if n.op_type == "Sigmoid")
    node.op_type = "Tanh"
    onnx.save(proto, out)


def replace_function_and_hash(out: Path) -> None:
    replace_function(out)
    edit(out, lambda content: content.update(functions=dict(read_head(out).functions)))


TAMPERED = {
    "library": (replace_library, "is not the one that was built"),
    "library and hash": (replace_both, ELSEWHERE),
    "function": (replace_function, "was changed after it was optimized"),
    "function and hash": (replace_function_and_hash, ELSEWHERE),
    "operators": (lambda out: edit(out, lambda c: c.update(ops=[])), ELSEWHERE),
    "seal": (lambda out: edit(out, lambda c: c.update(seal="0" * 64)), ELSEWHERE),
    "no seal": (lambda out: edit(out, lambda c: c.pop("seal")), ELSEWHERE),
    "no text": (lambda out: edit(out, lambda c: c.update(seal="\N{SNOWMAN}")), ELSEWHERE),
}


@pytest.mark.parametrize(("change", "words"), TAMPERED.values(), ids=list(TAMPERED))
def test_what_was_tampered_with_does_not_run(out: Path, change: Callable[[Path], None], words: str) -> None:
    change(out)
    for command in (("verify", out.with_name("m.onnx"), out), ("bench", out, "--seconds", "0")):
        result = call(*command)
        assert result.exit_code == 1, result.output
        assert words in result.stderr
    with pytest.warns(UserWarning, match=words):
        session(out)


def test_what_was_built_here_runs(out: Path) -> None:
    assert library(out).name == "cpu.so", "configurations of servers name it"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(out)
    assert call("verify", out.with_name("m.onnx"), out).exit_code == 0


def test_what_another_built_runs_where_it_is_trusted(out: Path, stranger: Path) -> None:
    original = out.with_name("m.onnx")
    assert f"{out.stem}.fusion: its libraries were {ELSEWHERE}" in call("verify", original, out).stderr
    assert list(stranger.iterdir()) == [], "who builds nothing needs no key"
    assert call("verify", original, out, "--trust").exit_code == 0
    assert call("bench", out, "--seconds", "0", "--trust").exit_code == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(out, trust=True)
        assert call("trust", out).exit_code == 0
        session(out)
    assert call("verify", original, out).exit_code == 0


def test_trust_does_not_take_what_is_damaged(out: Path, stranger: Path) -> None:
    replace_library(out)
    result = call("trust", out)
    assert result.exit_code == 1
    assert "is not the one that was built" in result.stderr
    assert "has no libraries" in call("trust", out.with_name("m.onnx")).stderr
    with pytest.warns(UserWarning, match="is not the one that was built"):
        session(out, trust=True)


def test_trusted_libraries_compute_the_same(out: Path, stranger: Path) -> None:
    x = np.ones((1, 3, 32), np.float32)
    with pytest.warns(UserWarning, match=ELSEWHERE):
        stock = session(out).run(None, {"x": x})[0]
    np.testing.assert_allclose(session(out, trust=True).run(None, {"x": x})[0], stock, rtol=1e-4, atol=1e-5)


# ---- the key


def test_the_key_is_the_users_alone(stranger: Path) -> None:
    assert is_sealed(b"text", seal(b"text"))
    assert not is_sealed(b"other", seal(b"text"))
    assert key_path().stat().st_mode & 0o777 == 0o600
    assert key_path().parent.stat().st_mode & 0o777 == 0o700
    assert list(key_path().parent.iterdir()) == [key_path()]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_that_others_know_is_none(stranger: Path, mode: int) -> None:
    sealed = seal(b"text")
    key_path().chmod(mode)
    for use in (lambda: seal(b"text"), lambda: is_sealed(b"text", sealed)):
        with pytest.raises(FusionError, match="others can read the key"):
            use()


def test_a_key_that_is_a_link_or_empty_is_none(stranger: Path, tmp_path: Path) -> None:
    sealed = seal(b"text")
    key_path().rename(tmp_path / "key")
    key_path().symlink_to(tmp_path / "key")
    assert not is_sealed(b"text", sealed)
    key_path().unlink()
    key_path().touch(mode=0o600)
    with pytest.raises(FusionError, match="no key of 32 bytes"):
        is_sealed(b"text", sealed)


@pytest.fixture
def no_owners(monkeypatch: pytest.MonkeyPatch, stranger: Path) -> Path:
    """A system whose files have no owners and no modes, as Python has them on Windows; the profile folder."""
    monkeypatch.delattr(os, "geteuid")
    monkeypatch.delattr(os, "O_NOFOLLOW")
    monkeypatch.setenv("HOME", str(stranger))
    return stranger


def test_without_owners_the_key_is_the_users_in_the_profile_folder(no_owners: Path, out: Path) -> None:
    with pytest.warns(UserWarning, match=ELSEWHERE):
        session(out)
    assert call("trust", out).exit_code == 0
    key_path().chmod(0o666)  # what modes say there is made up
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session(out)


def test_without_owners_a_key_elsewhere_is_none(
    no_owners: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call("trust", out).exit_code == 0
    words = f"nothing outside {no_owners} says here who can read the key that tells which libraries are yours"
    no_owners.joinpath("fusion-cli").rename(tmp_path / "fusion-cli")
    no_owners.joinpath("fusion-cli").symlink_to(tmp_path / "fusion-cli")
    with pytest.warns(UserWarning, match=re.escape(words)):
        session(out)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert words in call("trust", out).stderr


def test_runs_at_once_make_one_key(stranger: Path) -> None:
    start, seals = Barrier(8), set()

    def run() -> None:
        start.wait()
        seals.add(seal(b"text"))

    threads = [Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seals) == 1


def test_without_a_key_a_model_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    model = write_model(tmp_path / "m.onnx")
    result = call("optimize", model, "-o", tmp_path / "out.onnx", "--target", "cpu", "--force")
    assert result.exit_code == 0
    assert "warning: the libraries are not sealed as yours" in result.stderr
    assert call("verify", model, tmp_path / "out.onnx", "--trust").exit_code == 0
    assert os.listdir(tmp_path / "out.fusion" / "lib")
