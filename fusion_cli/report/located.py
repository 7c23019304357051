"""Where the report of a run lies, given what the run wrote."""

from __future__ import annotations

from pathlib import Path

from fusion_cli.errors import ModelError
from fusion_cli.files import file_sha256
from fusion_cli.runtime.manifest import read_manifest


def find_report(path: Path) -> Path | None:
    """The report.json that `path` is, or that lies in the bundle of the model at `path`; None for any other file."""
    if path.suffix == ".json":
        return path
    bundle = path.with_suffix(".fusion")
    report = bundle / "report.json"
    if not (path.is_file() and report.is_file()):
        return None
    try:
        is_ours = read_manifest(bundle).model_sha256 == file_sha256(path)
    except ModelError:
        return None  # the model may be another's: it is looked at as any
    return report if is_ours else None
