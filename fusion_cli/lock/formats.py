"""The outcome of a check, for people and for what reads it in CI."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from xml.etree import ElementTree

from fusion_cli.lock import Lock
from fusion_cli.lock.compare import TITLES, Finding
from fusion_cli.report import plain
from fusion_cli.report.readable import counted, printable
from fusion_cli.version import __version__

_SHOWN, _SHOWN_NOTES = 8, 8


@dataclass(frozen=True)
class Checked:
    """A model held against a lock: what does not hold, and what else changed."""

    model: str
    path: str
    locked: Lock
    found: Lock
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """The outcome in one line."""
        speeds = [f"{lock.speed.ratio:.2f}x" if lock.speed else "not timed" for lock in (self.found, self.locked)]
        fusions = f"{self.found.places} of {counted(self.locked.places, 'fusion')} as locked"
        told = f"{fusions}, {speeds[0]} ({speeds[1]} locked)"
        return f"check FAILED: {told}" if self.findings else f"check passed: {told}"


def as_text(checked: Checked) -> str:
    """At most a screen: the verdict, what does not hold and why, what changed, and how to go on."""
    lines = [checked.verdict]
    for finding in checked.findings[:_SHOWN]:
        lines.append(f"- {finding.text}")
        lines += [f"    {finding.reason}"] if finding.reason else []
    more = len(checked.findings) - _SHOWN
    lines += [f"and {more} more; --format json has them"] if more > 0 else []
    lines += [f"note: {note}" for note in checked.notes[:_SHOWN_NOTES]]
    if checked.findings:
        lines.append(
            f"next: mend the model, or accept it: fusion-cli optimize {checked.model} -o OUT --lock {checked.path}"
        )
    return "\n".join(map(printable, lines))


def as_json(checked: Checked) -> dict[str, Any]:
    """The outcome as plain JSON values."""
    locks = {"locked": plain(checked.locked), "found": plain(checked.found)}
    findings = [asdict(f) for f in checked.findings]
    return {
        "ok": not checked.findings,
        "verdict": checked.verdict,
        "findings": findings,
        "notes": checked.notes,
        **locks,
    }


def as_github(checked: Checked) -> str:
    """Workflow commands, which GitHub shows beside the file of the lock."""
    lines = [_command("error", checked.path, TITLES[f.kind], f"{f.text}\n{f.reason}".strip()) for f in checked.findings]
    lines += [_command("notice", checked.path, "fusion-cli", note) for note in checked.notes]
    return "\n".join([*lines, printable(checked.verdict)])


def _command(level: str, file: str, title: str, text: str) -> str:
    """Escaped as the runner unescapes it."""
    data = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    properties = {"file": file, "title": title}
    told = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
    return printable(f"::{level} {told}::{data}")


def _property(text: str) -> str:
    return text.replace("%", "%25").replace(":", "%3A").replace(",", "%2C").replace("\n", "%0A")


def as_junit(checked: Checked) -> str:
    """A test suite: a case for every locked operator, one for each other finding, and one for the model."""
    by_operator: dict[str, list[Finding]] = {f.operator: [] for f in checked.locked.fusions}
    others: list[Finding] = []
    for finding in checked.findings:
        by_operator.get(finding.subject.split(" at ")[0], others).append(finding)
    cases = [*by_operator.items(), *((f.subject, [f]) for f in others), ("model", [])]
    suite = ElementTree.Element("testsuite", name=f"fusion-cli check {_xml(checked.model)}", tests=str(len(cases)))
    suite.set("failures", str(sum(bool(findings) for _, findings in cases)))
    suite.set("errors", "0")
    for name, findings in cases:
        case = ElementTree.SubElement(suite, "testcase", classname=_xml(checked.model), name=_xml(name))
        if findings:
            failure = ElementTree.SubElement(case, "failure", message=_xml(findings[0].text), type=findings[0].kind)
            failure.text = _xml("\n".join(f"{f.text}\n{f.reason}" for f in findings))
    ElementTree.SubElement(suite, "system-out").text = _xml("\n".join([checked.verdict, *checked.notes]))
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True)


def _xml(text: str) -> str:
    """Without characters that XML cannot hold."""
    return "\n".join(map(printable, text.split("\n")))


def as_sarif(checked: Checked) -> dict[str, Any]:
    """SARIF 2.1.0, one result for each finding."""
    rules = [{"id": kind, "shortDescription": {"text": title}} for kind, title in TITLES.items()]
    driver = {"name": "fusion-cli", "version": __version__, "rules": rules}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": list(_results(checked))}],
    }


def _results(checked: Checked) -> Iterator[dict[str, Any]]:
    kinds = list(TITLES)
    for finding in checked.findings:
        location: dict[str, Any] = {"physicalLocation": {"artifactLocation": {"uri": checked.path}}}
        if finding.nodes:
            location["logicalLocations"] = [{"name": name, "kind": "element"} for name in finding.nodes]
        yield {
            "ruleId": finding.kind,
            "ruleIndex": kinds.index(finding.kind),
            "level": "error",
            "message": {"text": f"{finding.text}. {finding.reason}".strip()},
            "locations": [location],
            "partialFingerprints": {"subject/v1": f"{finding.kind} {finding.subject}"},
        }


FORMATS: Mapping[str, Callable[[Checked], str | dict[str, Any]]] = {
    "text": as_text,
    "json": as_json,
    "github": as_github,
    "junit": as_junit,
    "sarif": as_sarif,
}
