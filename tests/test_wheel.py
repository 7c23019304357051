"""A wheel built from the checkout does the same job from elsewhere: it has its rules, templates and profiles."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from fusion_cli.version import DISTRIBUTION, __version__
from tests.helpers.clean_install import build_wheel
from tests.helpers.cli_helpers import ROOT, write_model


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


def test_wheel_holds_what_the_program_reads(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    expected = [f"fusion_cli/{p.relative_to(ROOT).as_posix()}" for d in ("rules", "templates") for p in files(ROOT / d)]
    expected += [p.relative_to(ROOT).as_posix() for p in (ROOT / "fusion_cli" / "devices").glob("*.toml")]
    expected += [
        "fusion_cli/page/report.html.jinja",
        *(f"fusion_cli/page/roofline.{kind}.jinja" for kind in ("axes", "svg")),
        "fusion_cli/py.typed",
    ]
    assert expected
    assert [name for name in expected if name not in names] == []
    assert [name for name in names if not name.startswith(("fusion_cli/", "onnx_fusion_cli-"))] == []


def test_what_is_advised_to_be_installed_is_what_the_wheel_is(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(archive.read(name))
    assert (metadata["Name"], metadata["Version"]) == (DISTRIBUTION, __version__)
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.yml")]
    texts = [p.read_text("utf-8") for p in (*pages, *(ROOT / "fusion_cli").rglob("*.py"))]
    advised = {found for text in texts for found in re.findall(r"\binstall '?([\w-]+)\[(\w+)\]", text)}
    in_code = {(DISTRIBUTION, extra) for text in texts for extra in re.findall(r"\binstall\(['\"](\w+)['\"]\)", text)}
    assert {"cpu", "gpu", "cuda"} <= {extra for _, extra in in_code}
    offered = {(metadata["Name"], extra) for extra in metadata.get_all("Provides-Extra", [])}
    runtime = tomllib.loads((ROOT / "packaging" / "runtime" / "pyproject.toml").read_text())["project"]
    offered |= {(runtime["name"], extra) for extra in runtime["optional-dependencies"]}
    assert advised | in_code <= offered


def files(folder: Path) -> list[Path]:
    return [p for p in folder.rglob("*") if p.is_file() and "__pycache__" not in p.parts]


def test_installed_wheel_optimizes_outside_the_checkout(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    model = write_model(tmp_path / "model.onnx")
    # -P keeps the working directory off the path; the checkout is not on it either.
    code = (
        "import fusion_cli, sys; from fusion_cli.cli import main; print(fusion_cli.__file__, file=sys.stderr); main()"
    )
    arguments = ["optimize", str(model), "-o", str(tmp_path / "fused.onnx"), "--target", "cpu", "--force"]
    result = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stderr.startswith(str(site))
    assert "passed" in result.stdout
    assert list((tmp_path / "fused.fusion" / "lib").glob("*.so"))
