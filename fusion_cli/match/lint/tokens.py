"""The words of a rule file with their places, cut into header lines, functions, and what lies between."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_KEY = re.compile(r"#\s*([a-z][a-z-]*)\s*:(?!/)\s*(.*?)\s*$")
_TOKEN = re.compile(
    r'"(?:\\.|[^"\\\n])*"|[A-Za-z_][\w.]*(?:-[A-Za-z_][\w.]*)*|[-+]?\d[\w.]*(?:[eE][-+]\d+)?|=>|//|[^\s]'
)


@dataclass(frozen=True)
class Token:
    """A word of a rule file and its place, both counted from 1."""

    text: str
    line: int
    column: int


@dataclass(frozen=True)
class Key:
    """A header line, `# name: value`; the place is the value's."""

    name: str
    value: str
    line: int
    column: int


def parts_of(text: str) -> Iterator[Key | list[Token]]:
    """Header lines, the tokens of each function from its `<` to its last brace, and of each stretch of other text."""
    part: list[Token] = []
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        tokens, comment = _tokens(line, number)
        for token in tokens:
            if token.text == "<" and not depth and part and part[0].text != "<":
                yield part
                part = []
            part.append(token)
            depth += (token.text == "{") - (token.text == "}")
            if token.text == "}" and depth <= 0:
                yield part
                part, depth = [], 0
        if comment >= 0 and not tokens and (key := _KEY.match(line[comment:])) is not None:
            yield Key(key[1], key[2], number, comment + key.start(2) + 1)
    if part:
        yield part


def _tokens(line: str, number: int) -> tuple[list[Token], int]:
    """The tokens of one line and where its comment starts (-1: it has none)."""
    found: list[Token] = []
    for match in _TOKEN.finditer(line):
        if match[0].startswith("#"):
            return found, match.start()
        found.append(Token(match[0], number, match.start() + 1))
    return found, -1
