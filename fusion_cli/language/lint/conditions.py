"""Conditions of a rule: whether they parse, what is meant where they do not, and whether they can hold."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import accumulate

from jinja2 import TemplateError
from jinja2.parser import Parser

from fusion_cli.language.lint.expressions import Check, Problem
from fusion_cli.language.lint.kinds import Kind
from fusion_cli.language.predicates import ENVIRONMENT

_MOST_WORDS = 200
_MOST_DEPTH = 20
"""Jinja reads and compiles an expression by recursion."""
_SPELLED = {"=": "'=='", "&": "'and'", "&&": "'and'", "!": "'not'", "AND": "'and'", "OR": "'or'", "NOT": "'not'"}
_SPELLED |= {"|": "'or'", "||": "'or'", "And": "'and'", "Or": "'or'", "Not": "'not'", "≥": "'>='", "≤": "'<='"}
_SPELLED |= {"≠": "'!='", "<>": "'!='"}


def problems(expression: str, kinds: Mapping[str, Kind], numbers: frozenset[str]) -> Iterator[Problem]:
    """What is wrong with a condition over names of these kinds; `numbers` are the rule's own constants."""
    if len(re.findall(r"\w+|[^\w\s]", expression)) > _MOST_WORDS:
        yield "FUS032", 0, "the condition is too long; several lines `# where:` must all hold"
        return
    if _depth(expression) > _MOST_DEPTH:
        yield "FUS032", 0, "the condition is nested too deep"
        return
    parser = None
    try:
        parser = Parser(ENVIRONMENT, expression, state="variable")
        tree = parser.parse_expression()
        if not parser.stream.eos:
            parser.fail("there is more after the expression")
    except TemplateError as e:
        yield "FUS032", *_syntax(expression, parser, e)
        return
    check = Check(expression, kinds, numbers)
    check.condition(tree)
    yield from dict.fromkeys(check.found)


def _depth(expression: str) -> int:
    """How deep its brackets are nested."""
    return max(accumulate((c in "([{") - (c in ")]}") for c in expression), default=0)


def _syntax(expression: str, parser: Parser | None, error: TemplateError) -> tuple[int, str]:
    """Where the expression ends to be one, and what is meant there."""
    reason = (error.message or str(error)).rstrip(".")
    if (unexpected := re.fullmatch(r"unexpected char .* at (\d+)", reason)) is not None:
        offset = int(unexpected[1])
    elif (spelled := re.search(r"(?<![=!<>])=(?!=)|<>|&&|\|\||!(?!=)", expression)) is not None:
        offset = spelled.start()
    else:
        offset = _read(expression, parser)
    rest = expression[offset:]
    word = next((w for w in sorted(_SPELLED, key=len, reverse=True) if rest.startswith(w)), "")
    if rest.startswith("#"):
        return offset, "the condition does not parse: a comment needs a line of its own"
    if expression.startswith(("{{", "{%")):
        return 0, "the condition does not parse: it is written without the braces of a template"
    if word:
        return offset, f"the condition does not parse: write {_SPELLED[word]} for '{word}'"
    if not rest:
        return len(expression), "the condition does not parse: it has no end; it goes on within its line only"
    return offset, f"the condition does not parse: {reason}"


def _read(expression: str, parser: Parser | None) -> int:
    """How far the parser came."""
    if parser is None:
        return 0
    left = 0
    while not parser.stream.eos:
        next(parser.stream)
        left += 1
    starts: list[int] = []
    at = 0
    for _, kind, text in ENVIRONMENT.lexer.tokeniter(expression, None, state="variable"):
        at = expression.index(text, at)
        starts += [] if kind == "whitespace" else [at]
        at += len(text)
    return starts[-left] if left else len(expression)
