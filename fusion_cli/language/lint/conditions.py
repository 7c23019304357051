"""Conditions of a rule: whether they parse, what is meant where they do not, and whether they can hold.

A condition that fails to evaluate does not hold, and says nothing; so what can be known of its parts is looked at here:
names and predicates that there are not, and kinds that never go together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import accumulate

from jinja2 import TemplateError, nodes
from jinja2.parser import Parser

from fusion_cli.errors import did_you_mean
from fusion_cli.language.lint.kinds import FILTERS, SHOWN, SIGNATURES, Kind, constant_kind, fits, may_be_equal
from fusion_cli.language.lint.tokens import nearest
from fusion_cli.language.predicates import DTYPES, ENVIRONMENT, PREDICATES, names_in

Problem = tuple[str, int, str]
"""Code, offset in the expression, and message."""
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
    if max(accumulate((c in "([{") - (c in ")]}") for c in expression), default=0) > _MOST_DEPTH:
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
    yield from dict.fromkeys(_Check(expression, kinds, numbers).condition(tree))


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


# ---- the parts of a condition


class _Check:
    """One walk over an expression: the kind of each part, and what cannot be meant."""

    def __init__(self, expression: str, kinds: Mapping[str, Kind], numbers: frozenset[str]) -> None:
        self.expression = expression
        self.kinds = kinds
        self.numbers = numbers
        self.found: list[Problem] = []

    def say(self, code: str, message: str, about: str | nodes.Node = "") -> None:
        """Keep a problem with the place of a word, or of a node where that is a name."""
        word = about if isinstance(about, str) else about.name if isinstance(about, nodes.Name) else ""
        place = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", self.expression) if word else None
        self.found.append((code, place.start() if place is not None else 0, message))

    def condition(self, tree: nodes.Expr) -> list[Problem]:
        """What is wrong with a whole condition."""
        self._truth(tree)
        if not self.found and self.kinds.keys().isdisjoint(names_in(self.expression)):
            self.say("FUS034", "the condition speaks of nothing that is matched, so it says the same everywhere")
        return self.found

    def kind(self, node: nodes.Node) -> Kind:
        """What the expression stands for, "any" where it is not known or already spoken of."""
        match node:
            case nodes.Name():
                return self._name(node.name)
            case nodes.Const():
                return constant_kind(node.value)
            case nodes.Call():
                return self._call(node)
            case nodes.List() | nodes.Tuple():
                for item in node.items:
                    self.kind(item)
                return "list"
            case nodes.Not() | nodes.And() | nodes.Or():
                for part in node.iter_child_nodes():
                    self._truth(part)
                return "truth"
            case nodes.Compare():
                return self._compare(node)
            case nodes.Test():
                self._test(node)
                return "truth"
            case nodes.Filter():
                return self._filter(node)
            case nodes.Getitem():
                return self._item(node)
            case nodes.CondExpr():
                for part in node.iter_child_nodes():
                    self.kind(part)
                return "any"
            case nodes.Add() | nodes.Sub() | nodes.Mul() | nodes.Div() | nodes.FloorDiv() | nodes.Mod():
                for part in node.iter_child_nodes():
                    self._number(part)
                return "number"
            case nodes.Neg() | nodes.Pos():
                self._number(node.node)
                return "number"
            case nodes.Getattr():
                self.kind(node.node)
                message = f"'.{node.attr}' is none of its parts: predicates ask about a value, such as dim(x, 0)"
                self.say("FUS033", message, node.attr)
                return "any"
            case _:
                self.say("FUS032", f"{type(node).__name__.lower()} is not part of a condition")
                return "any"

    def _name(self, name: str) -> Kind:
        if name in self.kinds:
            return self.kinds[name]
        if name in DTYPES:
            return "type"
        if name in self.numbers:
            self.say("FUS034", f"'{name}' is a number of the rule; conditions speak of what was matched", name)
        elif name in PREDICATES:
            asked = ", ".join("abc"[i] for i in range(SIGNATURES[name].least))
            self.say("FUS034", f"'{name}' is a predicate, and is asked about something: {name}({asked})", name)
        else:
            message = f"'{name}' is not a value of this function, so the condition never holds"
            self.say("FUS034", message + nearest(name, [*self.kinds, *DTYPES]), name)
        return "any"

    def _call(self, node: nodes.Call) -> Kind:
        name = node.node.name if isinstance(node.node, nodes.Name) else ""
        if name not in SIGNATURES:
            what = f"no predicate '{name}'{nearest(name, PREDICATES)}" if name else "only predicates can be called"
            self.say("FUS033", f"{what} (there are {', '.join(PREDICATES)})", name)
            return "any"
        signature = SIGNATURES[name]
        if node.kwargs or node.dyn_args is not None or node.dyn_kwargs is not None:
            self.say("FUS033", f"what {name} is asked about has no names: {name}({signature.example})", name)
        elif not signature.least <= len(node.args) <= len(signature.arguments):
            self.say("FUS033", f"{name} is asked as {name}({signature.example})", name)
        else:
            for argument, wanted in zip(node.args, signature.arguments, strict=False):
                self._argument(name, argument, wanted)
        return signature.result

    def _argument(self, name: str, argument: nodes.Node, wanted: Kind) -> None:
        before = len(self.found)
        kind = self.kind(argument)
        if len(self.found) == before and not fits(kind, wanted):
            message = f"{name} is asked about {SHOWN[wanted]}, not {SHOWN[kind]}"
            self.say("FUS033", f"{message}: {name}({SIGNATURES[name].example})", name)

    def _truth(self, node: nodes.Node) -> None:
        kind = self.kind(node)
        if kind in ("value", "type", "text", "list"):
            self.say("FUS038", f"{SHOWN[kind]} is neither true nor false", node)

    def _number(self, node: nodes.Node) -> None:
        kind = self.kind(node)
        if not fits(kind, "number"):
            self.say("FUS038", f"arithmetic is done with numbers, not with {SHOWN[kind]}", node)

    def _compare(self, node: nodes.Compare) -> Kind:
        left = self.kind(node.expr)
        for operand in node.ops:
            items = operand.expr.items if isinstance(operand.expr, (nodes.List, nodes.Tuple)) else None
            right = self.kind(operand.expr)
            if operand.op in ("in", "notin"):
                for item in items or ():
                    self._comparable(left, node.expr, self.kind(item), item)
            else:
                self._comparable(left, node.expr, right, operand.expr, operand.op not in ("eq", "ne"))
                left = right
        return "truth"

    def _comparable(self, left: Kind, a: nodes.Node, right: Kind, b: nodes.Node, ordered: bool = False) -> None:
        for kind, other in ((left, b), (right, a)):
            if kind == "type" and isinstance(other, nodes.Const) and other.value not in DTYPES:
                hint = did_you_mean(str(other.value), DTYPES) if isinstance(other.value, str) else ""
                listed = hint or f"there are {', '.join(DTYPES)}"
                self.say("FUS038", f"{other.value!r} is no element type; {listed}", str(other.value))
                return
        if {left, right} == {"list"} and any(isinstance(n, nodes.Tuple) for n in (a, b)):
            self.say("FUS038", "a list is written in square brackets, such as [2, 3]")
        elif ordered and "type" in (left, right):
            self.say("FUS038", "element types have no order")
        elif not may_be_equal(left, right) or (ordered and "none" in (left, right)):
            self.say("FUS038", f"{SHOWN[left]} is never compared with {SHOWN[right]}")

    def _test(self, node: nodes.Test) -> None:
        self.kind(node.node)
        if node.name not in ENVIRONMENT.tests:
            self.say("FUS033", f"no test 'is {node.name}'{nearest(node.name, ENVIRONMENT.tests)}", node.name)

    def _filter(self, node: nodes.Filter) -> Kind:
        if node.node is not None:
            self.kind(node.node)
        if node.name in FILTERS:
            return FILTERS[node.name]
        hint = nearest(node.name, FILTERS)
        self.say("FUS033", f"no filter '|{node.name}'{hint} (there are {', '.join(sorted(FILTERS))})", node.name)
        return "any"

    def _item(self, node: nodes.Getitem) -> Kind:
        kind = self.kind(node.node)
        if kind in ("value", "number", "truth", "type"):
            self.say("FUS038", f"{SHOWN[kind]} has no elements; a size is dim(x, 0)", node.node)
        return "list" if isinstance(node.arg, nodes.Slice) else "any"
