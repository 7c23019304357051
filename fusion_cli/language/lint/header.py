"""Header lines: unknown keys, values that mean nothing, and conditions that cannot hold."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from fusion_cli.language.lint.conditions import problems
from fusion_cli.language.lint.kinds import Kind
from fusion_cli.language.lint.source import Finding, RuleFile, rule_folder
from fusion_cli.language.lint.tokens import KEYS, OF_CALLS, FunctionText, Key, nearest
from fusion_cli.language.pattern import REST

_VALUES = {
    "opt-level": ("0", "1", "2", "3"),
    "counted": ("yes", "no"),
    "match": ("graph", "values"),
    "layout": ("channels-first", "channels-last"),
}
_ONCE = frozenset(KEYS) - {*OF_CALLS, "unless"}
_TEMPLATES = (".cc.jinja", ".cu.jinja")


def check_header(file: RuleFile, function: FunctionText) -> Iterator[Finding]:
    """The header lines right before one function."""
    seen: set[str] = set()
    for key in function.keys:
        if key.meant:
            yield file.finding("FUS030", key, f"this header line is written '# {key.meant}: ...'")
        elif key.name not in KEYS:
            message = f"no header line '# {key.name}:'{nearest(key.name, KEYS)} (there are {', '.join(KEYS)})"
            yield file.finding("FUS030", key, message)
        elif not key.value:
            yield file.finding("FUS031", key, f"'# {key.name}:' says nothing")
        elif key.name in seen & _ONCE:
            yield file.finding("FUS031", key, f"'# {key.name}:' is said twice", "warning")
        elif key.name in _VALUES and key.value not in _VALUES[key.name]:
            *others, last = _VALUES[key.name]
            yield file.finding("FUS031", key, f"{key.name} is {', '.join(others)} or {last}, not '{key.value}'")
        elif key.name == "match" and key.value == "values" and file.kind == "fusion":
            yield file.finding("FUS031", key, "only idioms are matched by value")
        elif key.name == "kernel":
            yield from _kernel(file, key)
        elif key.name == "where":
            yield from _condition(file, function, key)
        seen.add(key.name)


def check_targets(files: Iterable[RuleFile], known: Collection[str]) -> Iterator[Finding]:
    """Words of `# targets:` that are no names of targets, which are `known` to the caller alone."""
    for file in files:
        for key in (key for function in file.functions for key in function.keys if key.name == "targets"):
            for word in re.finditer(r"\S+", key.value):
                if word[0] not in known:
                    message = f"no target '{word[0]}'{nearest(word[0], known)} (there are {', '.join(known)})"
                    yield file.finding("FUS031", key, message, offset=word.start())


def _kernel(file: RuleFile, key: Key) -> Iterator[Finding]:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key.value):
        stem = re.fullmatch(r"(\w+)\.c[cu](?:\.jinja)?", key.value)
        meant = f"write '{stem[1]}', without what follows the first dot" if stem else "letters, digits and underscores"
        yield file.finding("FUS035", key, f"kernel '{key.value}' is not a template name: {meant}")
        return
    folder = rule_folder(file.path)
    known = {p.name.removesuffix(s) for s in _TEMPLATES for p in folder.glob(f"*{s}")} | {"auto"}
    if key.value not in known:
        message = f"no template {key.value}.cc.jinja or {key.value}.cu.jinja in {folder}{nearest(key.value, known)}"
        yield file.finding("FUS035", key, message)


def _condition(file: RuleFile, function: FunctionText, key: Key) -> Iterator[Finding]:
    kinds: dict[str, Kind] = {n: "value" for c in function.calls for n in c.node.output if not c.is_constant}
    kinds |= {t.text: "value" for t in function.inputs if t.text != REST}
    kinds |= dict.fromkeys(function.proto.attribute, "any")
    for code, offset, message in problems(key.value, kinds, function.numbers):
        yield file.finding(code, key, message, offset=offset)
