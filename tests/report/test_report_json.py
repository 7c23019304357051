"""The report as JSON: it follows the documented schema, its counts add up, and it is read as it was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fusion_cli.report import Report, write_report
from fusion_cli.report.read import read_report
from tests.helpers.made_up_reports import dry_report, full_report

DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "report.schema.json").read_text("utf-8"))
KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def problems(value: Any, schema: dict[str, Any], path: str = "$") -> Iterator[str]:
    """Where `value` departs from `schema` (the keywords that report.schema.json uses)."""
    if "const" in schema and value != schema["const"]:
        yield f"{path}: not {schema['const']}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} not among {schema['enum']}"
    kinds = schema.get("type", [])
    if kinds and not any(is_kind(value, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        yield f"{path}: {value!r} is no {kinds}"
    elif isinstance(value, dict):
        yield from (f"{path}: no {key}" for key in schema.get("required", []) if key not in value)
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, schema.get("additionalProperties", False))
            if inner is False:
                yield f"{path}: {key} is not documented"
            else:
                yield from problems(item, inner, f"{path}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from problems(item, schema["items"], f"{path}[{i}]")


def is_kind(value: Any, kind: str) -> bool:
    if kind in ("number", "integer"):
        return isinstance(value, int if kind == "integer" else int | float) and not isinstance(value, bool)
    return isinstance(value, KINDS[kind])


@pytest.mark.parametrize("report", [full_report(), full_report(float("inf")), dry_report()])
def test_json_follows_the_schema(report: Report, tmp_path: Path) -> None:
    write_report(report, tmp_path / "report.json")
    read = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert list(problems(read, SCHEMA)) == []
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_the_validator_sees_departures() -> None:
    data = full_report().to_dict()
    data["fusions"][0]["stages"] = ["magic"]
    data["summary"]["fusions"] = "two"
    del data["idioms"]
    data["extra"] = 1
    assert len(list(problems(data, SCHEMA))) == 4


def test_every_key_of_the_schema_is_explained() -> None:
    text = (DOCS / "report.md").read_text("utf-8")

    def keys(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            yield from schema.get("properties", {})
            for value in schema.values():
                yield from keys(value)

    assert [key for key in sorted(set(keys(SCHEMA))) if f"`{key}`" not in text] == []


def test_counts_and_savings_add_up_over_places() -> None:
    summary = full_report().summary
    assert (summary.fusions, summary.kernels, summary.nodes_fused) == (2, 1, 4)
    assert (summary.bytes_saved, summary.launches_saved, summary.us_saved) == (4000, 2, 12.0)


def test_each_place_names_its_own_nodes_and_the_operators_check() -> None:
    fusions = full_report().to_dict()["fusions"]
    assert [f["nodes"] for f in fusions] == [["a", "b"], ["c", "d"]]
    assert [f["call"] for f in fusions] == ["Demo_1_0", "Demo_1_1"]
    assert fusions[0]["stages"] == ["pointwise", "rowwise", "rowwise"]
    assert [m["error"] for m in fusions[0]["measured"]] == [1e-7]


def test_libraries_do_not_tell_where_they_were_built() -> None:
    assert full_report().to_dict()["libraries"][0]["path"] == "cpu.so"


def test_an_error_that_is_not_finite_is_null() -> None:
    verification = full_report(float("inf")).to_dict()["verification"]
    assert verification["outputs"] == [{"output": "y", "error": None, "tolerance": 1e-3, "ok": False}]
    assert verification["ok"] is False


@pytest.mark.parametrize("report", [full_report(), full_report(float("inf")), dry_report()])
def test_a_report_is_read_as_it_was_written(report: Report, tmp_path: Path) -> None:
    write_report(report, tmp_path / "report.json")
    read = read_report(tmp_path / "report.json")
    assert read.to_dict() == report.to_dict()
    assert read.choice == report.choice
    assert [f.predicted for f in read.fusions] == [f.predicted for f in report.fusions]
