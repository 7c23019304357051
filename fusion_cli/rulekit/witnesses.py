"""Witnesses of algebra, `rules/algebra/*.onnxtxt`: for each rule, graphs that it changes, and what becomes of them.

A file is a family of rules. Its parts stand apart by empty lines: first what the family does, then graphs in ONNX's own
text, each by the name of its rule and with lines `# key: value` before it. What `summary` and `when` say of a rule's
first graph holds for its others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import onnx
import onnx.parser

from fusion_cli.errors import RuleError
from fusion_cli.resources import resource_dir

_HEAD = '<ir_version: 8, opset_import: ["": 17]>'
"""The head of a graph that is written without one."""
_KEYS = ("family", "summary", "when", "becomes", "exact")
_KEY = re.compile(rf"# ({'|'.join(_KEYS)}): (.+)")
_PART = re.compile(r"(?:^.+\n?)+", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class Witness:
    """One graph (counted from 1, at `line` of its file) that a rule changes.

    Constants without values, in the graph's angle brackets, stand for any: `model` leaves them out.
    """

    rule: str
    number: int
    path: Path
    line: int
    text: str
    becomes: tuple[str, ...]
    """The operators that are left, in order."""
    is_exact: bool
    """Whether results stay the same to the last bit, NaN and infinities included."""
    model: onnx.ModelProto


@dataclass(frozen=True)
class Witnessed:
    """A rule of algebra: what it does, when it holds, and its witnesses."""

    name: str
    summary: str
    when: str
    witnesses: tuple[Witness, ...]


@dataclass(frozen=True)
class Family:
    """The rules of one file."""

    title: str
    summary: str
    rules: tuple[Witnessed, ...]


@cache
def families() -> tuple[Family, ...]:
    """All there are, by the names of their files. Raises RuleError with the place of what cannot be read."""
    return tuple(map(read_family, sorted((resource_dir("rules") / "algebra").glob("*.onnxtxt"))))


def witnessed() -> Mapping[str, Witnessed]:
    """The rules of all families by name. Raises RuleError as `families`."""
    return {rule.name: rule for family in families() for rule in family.rules}


def witnessed_among(which: Sequence[str]) -> list[Witnessed]:
    """The rules of these names, all if none are given. Raises RuleError as `families`."""
    return [rule for name, rule in witnessed().items() if not which or name in which]


def read_family(path: Path) -> Family:
    """The rules of one file. Raises RuleError with the place of what cannot be read."""
    (_, keys, _), *parts = _parts(path)
    graphs: dict[str, list[Witness]] = {}
    said: dict[str, Mapping[str, str]] = {}
    for line, own, text in parts:
        model = _parsed(text, f"{path}:{line}")
        rule = model.graph.name
        of_rule = graphs.setdefault(rule, [])
        said.setdefault(rule, own)
        becomes = tuple(own["becomes"].split(", "))
        of_rule.append(Witness(rule, len(of_rule) + 1, path, line, text, becomes, "exact" in own, model))
    rules = (Witnessed(name, said[name]["summary"], said[name]["when"], tuple(found)) for name, found in graphs.items())
    return Family(keys["family"], keys["summary"], tuple(rules))


def _parts(path: Path) -> Iterator[tuple[int, Mapping[str, str], str]]:
    """For each stretch without empty lines: the line behind its header, what that says, and what follows."""
    text = path.read_text(encoding="utf-8")
    for part in _PART.finditer(text):
        lines = part[0].splitlines()
        header = [line for line in lines if line.startswith("#")]
        first = text.count("\n", 0, part.start()) + 1 + len(header)
        yield first, dict(_key(line, path) for line in header), "\n".join(lines[len(header) :])


def _key(line: str, path: Path) -> tuple[str, str]:
    found = _KEY.fullmatch(line)
    if found is None:
        raise RuleError(f"'{line}' is no header line", where=str(path), hint=f"there are {', '.join(_KEYS)}")
    return found[1], found[2]


def _parsed(text: str, where: str) -> onnx.ModelProto:
    try:
        return onnx.parser.parse_model(text if text.startswith("<") else f"{_HEAD} {text}")
    except onnx.parser.ParseError as error:
        raise RuleError(f"not a graph in ONNX's text form: {error}", where=where) from error
