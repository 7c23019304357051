"""A report.json, read back into the `Report` that it was written from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fusion_cli.errors import FusionError, first_line
from fusion_cli.report import SCHEMA_VERSION, Report
from fusion_cli.structuring import structured

_HINT = "give the report.json of a bundle that this version wrote"


def read_report(path: Path) -> Report:
    """The report in a file, without what report.json leaves out: the text of sources, the folder of libraries. Raises
    FusionError if it is none of this version's schema."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FusionError(f"cannot be read as a report: {first_line(error)}", where=str(path)) from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA_VERSION:
        raise FusionError("no report of this version's schema", where=str(path), hint=_HINT)
    try:
        return report_from(content)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FusionError(f"the report is damaged: {error!r}", where=str(path), hint=_HINT) from error


def report_from(content: Mapping[str, Any]) -> Report:
    """The report of which `to_dict` made this."""
    fusions = [_with_keys(fusion) for fusion in content["fusions"]]
    checks = [check for fusion in {f["name"]: f for f in fusions}.values() for check in fusion["measured"]]
    verification = content["verification"] and {**content["verification"], "ops": checks}
    sources = [{**source, "text": ""} for source in content["sources"]]
    made: Report = structured(Report, {**content, "fusions": fusions, "verification": verification, "sources": sources})
    return made


def _with_keys(fusion: Mapping[str, Any]) -> dict[str, Any]:
    """A fusion whose scores and checks name their target and their operator again, and whose settings are pairs."""
    predicted = {target: {**score, "target": target} for target, score in fusion["predicted"].items()}
    measured = [{**check, "op": fusion["name"]} for check in fusion["measured"]]
    schedules = {
        target: [[{**s, "settings": s["settings"].items()} for s in variants] for variants in stages]
        for target, stages in fusion["schedules"].items()
    }
    return {**fusion, "predicted": predicted, "measured": measured, "schedules": schedules}
