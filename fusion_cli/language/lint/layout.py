"""A parsed function beside its tokens: ONNX's parser says what its parts are, the tokens where they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from fusion_cli.language.lint.tokens import Key, Token

_OPEN, _CLOSE = "([{<", ")]}>"


@dataclass(frozen=True, eq=False)
class CallText:
    """One line of a function: the parsed node, and the tokens of its parts in the node's order."""

    node: onnx.NodeProto
    op: Token
    outputs: tuple[Token, ...]
    inputs: tuple[Token, ...]
    attributes: Mapping[str, Token]
    repeated: tuple[Token, ...]
    """Names of attributes that stood there before."""


@dataclass(frozen=True, eq=False)
class FunctionText:
    """One overload: the header lines before it, the parsed function, and its tokens."""

    keys: tuple[Key, ...]
    proto: onnx.FunctionProto
    name: Token
    inputs: tuple[Token, ...]
    outputs: tuple[Token, ...]
    calls: tuple[CallText, ...]


class _Walk:
    """A cursor over the tokens of a function that has parsed, so that what comes next is known."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def next(self) -> str:
        return self.tokens[self.at].text

    def take(self) -> Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def bracketed(self) -> list[Token]:
        """The tokens within the bracket that comes next."""
        start, depth = self.at, 0
        while True:
            token = self.take()
            depth += (token.text in _OPEN) - (token.text in _CLOSE)
            if not depth:
                return list(self.tokens[start + 1 : self.at - 1])

    def names(self) -> tuple[Token, ...]:
        """A list in parentheses, without the types before its names; an omitted name is an empty token."""
        inner = self.bracketed()
        return _names(inner, self.tokens[self.at - 1]) if inner else ()

    def maybe(self, bracket: str) -> list[Token]:
        return self.bracketed() if self.next == bracket else []


def lay_out(proto: onnx.FunctionProto, tokens: Sequence[Token], keys: tuple[Key, ...]) -> FunctionText:
    """The places of a function's parts: of `tokens`, which ONNX's parser has read as `proto`."""
    walk = _Walk(tokens)
    walk.maybe("<")
    name = walk.take()
    walk.maybe("<")
    inputs = walk.names()
    walk.take()
    outputs = walk.names()
    walk.maybe("<")
    walk.take()
    calls = [_call(node, walk) for node in proto.node]
    return FunctionText(keys, proto, name, inputs, outputs, tuple(calls))


def _call(node: onnx.NodeProto, walk: _Walk) -> CallText:
    walk.maybe("[")
    start = walk.at
    while walk.next != "=":
        walk.take()
    outputs = _names(walk.tokens[start : walk.at], walk.take())
    op = walk.take()
    before = _attributes(walk.maybe("<"))
    inputs = walk.names()
    names = [*before, *_attributes(walk.maybe("<"))]
    first = {t.text: t for t in reversed(names)}
    repeated = tuple(t for t in names if first[t.text] is not t)
    return CallText(node, op, outputs, inputs, first, repeated)


def _names(tokens: Sequence[Token], end: Token) -> tuple[Token, ...]:
    """The last word before each comma and before `end`."""
    found: list[Token] = []
    last: Token | None = None
    for token in (*tokens, end):
        if token.text == "," or token is end:
            found.append(last if last is not None else Token("", token.line, token.column))
            last = None
        else:
            last = token
    return tuple(found)


def _attributes(tokens: Sequence[Token]) -> list[Token]:
    """The names before `=` or `:`, outside of inner brackets."""
    found: list[Token] = []
    depth = 0
    expected = True
    for token in tokens:
        if expected and not depth:
            found.append(token)
        expected = token.text == "," and not depth
        depth += (token.text in _OPEN) - (token.text in _CLOSE)
    return found
