"""A cursor over the words of a function, which takes what it expects or says what is there instead."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

from fusion_cli.language.lint.tokens import Fault, Token

_Entry = TypeVar("_Entry")

OPEN, CLOSE = ("(", "[", "{", "<"), (")", "]", "}", ">")
NAME = re.compile(r"[A-Za-z_]\w*")


class Departure(Exception):
    """The text is not what it has to be; `fault` says where and why."""

    def __init__(self, code: str, token: Token, message: str) -> None:
        super().__init__(message)
        self.fault: Fault = code, token, message


class Cursor:
    """At first before the first of `tokens`. Raises Departure at what is not expected."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def next(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    @property
    def after(self) -> str:
        return self.tokens[self.at + 1].text if self.at + 1 < len(self.tokens) else ""

    def fail(self, message: str, code: str = "FUS001") -> NoReturn:
        raise Departure(code, self.tokens[min(self.at, len(self.tokens) - 1)], message)

    def take(self) -> Token:
        if self.at >= len(self.tokens):
            self.fail("the text of the rule ends here")
        self.at += 1
        return self.tokens[self.at - 1]

    def expect(self, text: str, where: str) -> Token:
        if self.next != text:
            self.fail(f"expected '{text}' {where}, found {shown(self.next)}")
        return self.take()

    def bracketed(
        self, opened: Token, entry: Callable[[], _Entry], hints: Callable[[], None] = lambda: None
    ) -> list[_Entry]:
        """The entries in the bracket that was taken; `hints` may say what stands in the place of its end."""
        closing = CLOSE[OPEN.index(opened.text)]
        found = self.listed(closing, entry)
        if self.next != closing:
            hints()
            if self.at >= len(self.tokens) or self.tokens[self.at].line > opened.line:
                raise Departure("FUS001", opened, f"this '{opened.text}' is not closed by '{closing}'")
            self.fail(f"expected ',' or '{closing}', found {shown(self.next)}")
        self.take()
        return found

    def listed(self, closing: str, entry: Callable[[], _Entry]) -> list[_Entry]:
        """Entries between commas, or none before `closing`, which is left."""
        if self.next == closing:
            return []
        found = [entry()]
        while self.next == ",":
            self.take()
            found.append(entry())
        return found

    def name(self, what: str) -> Token:
        """A name, called `what` where there is none."""
        word = self.next
        if word.startswith('"'):
            self.fail(f"{what} is written without quotes: letters, digits and underscores only", "FUS004")
        if not NAME.fullmatch(word):
            self.fail(f"expected {what}, found {shown(word)}")
        return self.take()

    def skip_bracketed(self) -> None:
        """What lies within the bracket that comes next, whatever it is."""
        opened = self.tokens[self.at]
        depth = 0
        while self.at < len(self.tokens):
            text = self.take().text
            depth += (text in OPEN) - (text in CLOSE)
            if not depth:
                return
        raise Departure("FUS001", opened, f"this '{opened.text}' is not closed")


def shown(text: str) -> str:
    return f"'{text}'" if text else "the end"
