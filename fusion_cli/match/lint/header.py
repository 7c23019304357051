"""Header lines: unknown keys, values that mean nothing, and conditions that cannot hold."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jinja2 import TemplateError, nodes
from jinja2.parser import Parser
from jinja2.sandbox import SandboxedEnvironment

from fusion_cli.match.lint.body import is_constant, nearest
from fusion_cli.match.lint.layout import FunctionText
from fusion_cli.match.lint.text import KEYS, Finding, RuleFile, rule_folder
from fusion_cli.match.lint.tokens import Key
from fusion_cli.match.pattern import REST
from fusion_cli.match.predicates import DTYPES, PREDICATES

_VALUES = {"opt-level": ("0", "1", "2", "3"), "counted": ("yes", "no"), "match": ("graph", "values")}
_ONCE = frozenset(KEYS) - {"where", "unless"}
_TEMPLATES = (".cc.jinja", ".cu.jinja")
_ENVIRONMENT = SandboxedEnvironment()


def check_header(file: RuleFile, function: FunctionText) -> Iterator[Finding]:
    """The header lines right before one function."""
    seen: set[str] = set()
    for key in function.keys:
        if key.name not in KEYS:
            message = f"no header line '# {key.name}:'{nearest(key.name, KEYS)} (there are {', '.join(KEYS)})"
            yield file.finding("FUS030", key, message)
        elif not key.value:
            yield file.finding("FUS031", key, f"'# {key.name}:' says nothing")
        elif key.name in seen & _ONCE:
            yield file.finding("FUS031", key, f"'# {key.name}:' is said twice", "warning")
        elif key.name in _VALUES and key.value not in _VALUES[key.name]:
            yield file.finding("FUS031", key, f"{key.name} is {_one_of(_VALUES[key.name])}, not '{key.value}'")
        elif key.name == "match" and key.value == "values" and file.kind == "fusion":
            yield file.finding("FUS031", key, "only idioms are matched by value")
        elif key.name == "kernel":
            yield from _kernel(file, key)
        elif key.name == "where":
            yield from _condition(file, function, key)
        seen.add(key.name)


def _one_of(values: tuple[str, ...]) -> str:
    return f"{', '.join(values[:-1])} or {values[-1]}"


def _kernel(file: RuleFile, key: Key) -> Iterator[Finding]:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key.value):
        message = f"kernel '{key.value}' is not a template name: letters, digits and underscores"
        yield file.finding("FUS035", key, message)
        return
    folder = rule_folder(file.path)
    known = {p.name.removesuffix(s) for s in _TEMPLATES for p in folder.glob(f"*{s}")} | {"auto"}
    if key.value not in known:
        message = f"no template {key.value}.cc.jinja or {key.value}.cu.jinja in {folder}{nearest(key.value, known)}"
        yield file.finding("FUS035", key, message)


def _condition(file: RuleFile, function: FunctionText, key: Key) -> Iterator[Finding]:
    try:
        parser = Parser(_ENVIRONMENT, key.value, state="variable")
        tree = nodes.Output([parser.parse_expression()])
        if not parser.stream.eos:
            parser.fail("there is more after the expression")
    except TemplateError as e:
        yield file.finding("FUS032", key, f"the condition does not parse: {e.message or e}")
        return
    called = {id(c.node) for c in tree.find_all(nodes.Call)}
    for call in tree.find_all(nodes.Call):
        name = call.node.name if isinstance(call.node, nodes.Name) else ""
        if name not in PREDICATES:
            what = f"no predicate '{name}'{nearest(name, PREDICATES)}" if name else "only predicates can be called"
            message = f"{what} (there are {', '.join(PREDICATES)})"
            yield file.finding("FUS033", key, message, offset=_offset(key.value, name))
    bound = ({t.text for t in function.inputs} - {REST}) | set(function.proto.attribute)
    bound |= {n for c in function.calls if not is_constant(c) for n in c.node.output}
    numbers = {n for c in function.calls if is_constant(c) for n in c.node.output}
    local = {n.name for n in tree.find_all(nodes.Name) if n.ctx != "load"}
    names = [n.name for n in tree.find_all(nodes.Name) if id(n) not in called]
    for name in dict.fromkeys(n for n in names if n not in bound | local and n not in DTYPES):
        message = (
            f"'{name}' is a number of the rule; conditions speak of what was matched"
            if name in numbers
            else f"'{name}' is not a value of this function, so the condition never holds"
            f"{nearest(name, bound | set(DTYPES))}"
        )
        yield file.finding("FUS034", key, message, offset=_offset(key.value, name))


def _offset(expression: str, name: str) -> int:
    place = re.search(rf"\b{re.escape(name)}\b", expression) if name else None
    return place.start() if place is not None else 0
