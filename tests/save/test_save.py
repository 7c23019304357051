"""An output appears whole or not at all: what a failure leaves, and in which order things come."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from fusion_cli.errors import ModelError
from fusion_cli.save import commit, save_model, staging
from tests.helpers.graphs import parse


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def write(folder: Path, text: str) -> dict[str, bytes]:
    """A model, its weights and its bundle, as `text` would write them to a folder."""
    (folder / "out.fusion" / "lib").mkdir(parents=True, exist_ok=True)
    for name in ("out.onnx", "out.onnx.data", "out.fusion/manifest.json", "out.fusion/lib/kernel.so"):
        (folder / name).write_text(f"{text} {name}")
    return content(folder)


def moving(monkeypatch: pytest.MonkeyPatch, before: Callable[[int, Path], None]) -> None:
    """Have `before` called with the number and the destination of every move."""
    move, moves = os.replace, iter(range(1000))

    def replace(source: str | Path, target: str | Path) -> None:
        before(next(moves), Path(target))
        move(source, target)

    monkeypatch.setattr(os, "replace", replace)


def full_disk(failing: int) -> Callable[[int, Path], None]:
    def before(move: int, target: Path) -> None:
        if move == failing:
            raise OSError(28, "No space left on device", str(target))

    return before


def test_everything_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, "old")
    (tmp_path / "out.fusion" / "report.json").write_text("of the old bundle")
    with staging(tmp_path / "out.onnx") as stage:
        new = write(stage.folder, "new")
        commit(stage)
    assert content(tmp_path) == new


@pytest.mark.parametrize("failing", range(6))
def test_a_move_that_fails_leaves_what_was_there(failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six moves: the old model, weights and bundle aside, and the new ones to their places."""
    old = write(tmp_path, "old")
    with staging(tmp_path / "out.onnx") as stage:
        write(stage.folder, "new")
        moving(monkeypatch, full_disk(failing))
        with pytest.raises(OSError, match="No space left"):
            commit(stage)
    assert content(tmp_path) == old


@pytest.mark.parametrize("failing", range(3))
def test_a_first_output_that_fails_leaves_nothing(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with staging(tmp_path / "out.onnx") as stage:
        write(stage.folder, "new")
        moving(monkeypatch, full_disk(failing))
        with pytest.raises(OSError, match="No space left"):
            commit(stage)
    assert list(tmp_path.iterdir()) == []


def test_the_model_comes_after_all_that_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrived: list[str] = []
    with staging(tmp_path / "out.onnx") as stage:
        write(stage.folder, "new")
        moving(monkeypatch, lambda _, target: arrived.append(target.name))
        commit(stage)
    assert sorted(arrived[:-1]) == ["out.fusion", "out.onnx.data"]
    assert arrived[-1] == "out.onnx"


def test_a_model_that_the_checker_rejects_is_not_written_unless_the_original_was_such(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.onnx", tmp_path / "bad.onnx"
    onnx.save(parse("g (float[n] x) => (float[n] y) { y = Relu (x) }"), good)
    wrong = parse("g (float[n] x) => (float[n] y) { y = Relu (x, x) }")
    onnx.save(wrong, bad)
    with staging(tmp_path / "out.onnx") as stage:
        with pytest.raises(ModelError, match="the checker rejects the model"):
            save_model(ir.from_proto(wrong), stage, good, [None])
        save_model(ir.from_proto(wrong), stage, bad, [None])
        assert stage.model.is_file()
