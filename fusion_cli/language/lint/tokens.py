"""The words of a rule file with their places, cut into header lines, functions, and what lies between; and those of
a function beside what ONNX's parser makes of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx

from fusion_cli.errors import did_you_mean
from fusion_cli.language.predicates import PREDICATES

KEYS = (
    "summary",
    "opt-level",
    "kernel",
    "where",
    "any",
    "optional",
    "unless",
    "counted",
    "match",
    "layout",
    "targets",
    "witness",
)
"""What a header line can say."""
OF_CALLS = ("where", "any", "optional")
"""What speaks of the calls of the function that follows, so holds for no other and may be said more than once."""
_KEY = re.compile(r"#\s*([a-z][a-z-]*)\s*:(?!/)\s*(.*?)\s*$")
_MEANT = re.compile(r"#\s*([A-Za-z][\w-]*)\s*(:?)\s*(.*?)\s*$")
_VALUES = {"where": re.compile(rf"\b(?:{'|'.join(PREDICATES)})\s*\("), "opt-level": re.compile(r"\d$")}
"""What makes a comment that starts with one of these words a header line whose colon was forgotten."""
_TOKEN = re.compile(
    r'"(?:\\.|[^"\\\n])*"|[A-Za-z_][\w.]*(?:-[A-Za-z_][\w.]*)*|[-+]?\d[\d.]*[eE][-+]\d+|[-+]?\d[\w.]*|=>|//|[^ \t\n]'
)


HEAD_KEYS = ("domain", "opset_import", "overload", "doc_string")
"""What a function's head, in angle brackets before its name, can say."""


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
    meant: str = ""
    """The name that a line written otherwise (`# Where: ...`, `# where ...`) has to have."""


Fault = tuple[str, Token | Key, str]
"""Code, place and message."""


@dataclass(frozen=True, eq=False)
class CallText:
    """One line of a function: the parsed node, and the tokens of its parts in the node's order."""

    node: onnx.NodeProto
    op: Token
    outputs: Sequence[Token]
    inputs: Sequence[Token]
    attributes: Mapping[str, Token]
    repeated: Sequence[Token]
    """Names of attributes that stood there before."""

    @cached_property
    def is_constant(self) -> bool:
        """Whether the call is a number of the rule rather than an operator to match."""
        return self.op.text == "Constant"


@dataclass(frozen=True, eq=False)
class FunctionText:
    """One overload: the header lines before it, the parsed function, and its tokens."""

    keys: Sequence[Key]
    proto: onnx.FunctionProto
    name: Token
    inputs: Sequence[Token]
    outputs: Sequence[Token]
    calls: Sequence[CallText]

    def said(self, name: str) -> list[Key]:
        """The header lines of a name."""
        return [k for k in self.keys if k.name == name]

    @cached_property
    def numbers(self) -> frozenset[str]:
        """The names of the rule's own numbers."""
        return frozenset(name for call in self.calls if call.is_constant for name in call.node.output)

    @cached_property
    def opsets(self) -> Mapping[str, int]:
        """By domain: the version that the function imports."""
        return {o.domain: o.version for o in self.proto.opset_import}


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint to add to a message: the known name that is meant, if one is near."""
    hint = did_you_mean(name, known, 0.6)
    return f"; {hint}" if hint else ""


def parts_of(text: str) -> Iterator[Key | list[Token]]:
    """Header lines, the tokens of each function from its head or name to its last brace, and of each stretch of other
    text."""
    part: list[Token] = []
    depth = 0
    for number, line in enumerate(text.split("\n"), 1):
        tokens, comment = _tokens(line, number)
        for token, after in zip(tokens, [*tokens[1:], None], strict=False):
            if part and not depth and _starts_head(part, token, after):
                yield part
                part = []
            part.append(token)
            depth += (token.text == "{") - (token.text == "}")
            if token.text == "}" and depth <= 0:
                yield part
                part, depth = [], 0
        if comment >= 0 and not tokens and (key := _key(line[comment:], number, comment)) is not None:
            yield key
    if part:
        yield part


def _starts_head(before: Sequence[Token], token: Token, after: Token | None) -> bool:
    """Whether the token opens a function's head rather than the parameters after its name."""
    inside = before[0].text == "<" or (len(before) == 1 and (after is None or after.text not in HEAD_KEYS))
    return token.text == "<" and not inside


def _key(comment: str, line: int, start: int) -> Key | None:
    """The header line that a comment is, or is meant to be."""
    if (key := _KEY.match(comment)) is not None:
        return Key(key[1], key[2], line, start + key.start(2) + 1)
    meant = _MEANT.match(comment)
    if meant is None:
        return None
    word = meant[1].lower().replace("_", "-")
    written = word in KEYS if meant[2] else word in _VALUES and _VALUES[word].search(meant[3]) is not None
    return Key(meant[1], meant[3], line, start + meant.start(3) + 1, word) if written else None


def _tokens(line: str, number: int) -> tuple[list[Token], int]:
    """The tokens of one line and where its comment starts (-1: it has none)."""
    found: list[Token] = []
    for match in _TOKEN.finditer(line):
        if match[0].startswith("#"):
            return found, match.start()
        found.append(Token(match[0], number, match.start() + 1))
    return found, -1
