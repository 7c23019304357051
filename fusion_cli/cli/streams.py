"""Models that come from stdin and go to stdout, where "-" stands for their file."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import onnx

from fusion_cli.errors import FusionError
from fusion_cli.runtime import METADATA_KEY, read_manifest
from fusion_cli.runtime.bundle import bundle_of

STREAM = "-"


@contextmanager
def read_from(name: str) -> Iterator[Path]:
    """The file of a model; of "-" one with what stdin holds, which errors call stdin."""
    if name != STREAM:
        yield Path(name)
        return
    stdin = sys.stdin.buffer
    if stdin.isatty():
        raise click.UsageError("- is a model on stdin, and that is a terminal")
    with TemporaryDirectory(prefix="fusion-cli-") as folder:
        path = Path(folder) / "stdin.onnx"
        with path.open("wb") as file:
            shutil.copyfileobj(stdin, file)
        try:
            yield path
        except FusionError as error:
            if error.where == str(path):
                error.where = "stdin"
            raise


@contextmanager
def written_to(output: Path | None) -> Iterator[Path | None]:
    """Where to write a model; what is there at the end goes to stdout where the output is "-". Raises FusionError for
    one that does not go through a stream: that has files beside it."""
    if output != Path(STREAM):
        yield output
        return
    stdout = sys.stdout.buffer
    if stdout.isatty():
        raise click.UsageError("-o - writes a model to stdout, and that is a terminal")
    with TemporaryDirectory(prefix="fusion-cli-") as folder:
        path = Path(folder) / "stdout.onnx"
        yield path
        stdout.write(_alone(path))


def _alone(path: Path) -> bytes:
    """The model without the name of its bundle."""
    manifest = read_manifest(bundle_of(path))
    if manifest.libraries:
        hint = "-o FILE keeps them; --target portable makes none"
        raise FusionError("the model has kernels, in a library that goes beside it", where="stdout", hint=hint)
    if manifest.data:
        raise FusionError("the model has weights in files beside it", where="stdout", hint="give a file with -o")
    model = onnx.load(path)
    kept = [entry for entry in model.metadata_props if entry.key != METADATA_KEY]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    return bytes(model.SerializeToString())
