"""Read rule files: ONNX function text with `# key: value` comments, parsed by `onnx.parser`."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from fusion_cli.errors import RuleError, did_you_mean
from fusion_cli.match.pattern import GROWING, PATTERN_DOMAIN, Call, Pattern, Rule, RuleSet
from fusion_cli.match.predicates import compile_predicate
from fusion_cli.resources import resource_dir

# The parser silently ignores text after a lone function, so the file is read as a model with an empty graph.
_PREFIX = '<ir_version: 8, opset_import: ["": 23]> none () => () {} '
_KEY = re.compile(r"^#\s*(summary|opt-level|kernel|where|unless|counted|match):\s*(.*?)\s*$")
_POSITION = re.compile(r"line: (\d+) column: (\d+)")


@dataclass(frozen=True)
class Finding:
    """Something wrong at a place in a rule file."""

    path: Path
    line: int
    column: int
    message: str
    source: str

    def __str__(self) -> str:
        caret = " " * (self.column - 1) + "^"
        return f"{self.path}:{self.line}:{self.column}: {self.message}\n    {self.source}\n    {caret}"


def load_rules(names: Sequence[str] = (), rule_paths: Sequence[Path] = (), opt_level: int = 3) -> RuleSet:
    """The bundled rules and those of `rule_paths`, with fusions limited to `names` (all if empty) and `opt_level`.

    A folder holds `idioms/*.rule` and `fusions/*.rule`; files directly in it are fusions. A user's rule replaces a
    bundled one of the same name. Raises RuleError for a folder or rule that does not exist or does not hold.
    """
    rules: dict[str, Rule] = {}
    for folder in (resource_dir("rules"), *rule_paths):
        if not folder.is_dir():
            raise RuleError("no such rule folder", where=str(folder))
        for kind, files in (
            ("idiom", folder.glob("idioms/*.rule")),
            ("fusion", [*folder.glob("fusions/*.rule"), *folder.glob("*.rule")]),
        ):
            for path in sorted(files):
                rules |= {r.name: r for r in parse_rules(path, kind)}
    findings = check_references(rules.values())
    if findings:
        raise _as_error(findings[0])
    idioms = _in_dependency_order([r for r in rules.values() if r.kind == "idiom"])
    fusions = [r for r in rules.values() if r.kind == "fusion"]
    for name in names:
        if name not in {r.name for r in fusions}:
            raise RuleError(
                f"no fusion rule '{name}'",
                hint=did_you_mean(name, [r.name for r in fusions]) or "see `fusion-cli rules list`",
            )
    chosen = [r for r in fusions if r.name in names] if names else [r for r in fusions if r.opt_level <= opt_level]
    return RuleSet(tuple(idioms), tuple(sorted(chosen, key=lambda r: r.name)))


def parse_rules(path: Path, kind: str) -> list[Rule]:
    """The rules of one file, in order. Raises RuleError with line, column and caret."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise RuleError(f"cannot be read: {e}", where=str(path)) from e
    try:
        model = onnx.parser.parse_model(_PREFIX + text)
    except onnx.parser.ParseError as e:
        raise _as_error(_syntax_finding(str(e), text, path)) from e
    keys = _keys_by_function(text)
    overloads: dict[str, list[Pattern]] = defaultdict(list)
    settings: dict[str, dict[str, list[str]]] = {}
    for i, function in enumerate(model.functions):
        own = keys[min(i, len(keys) - 1)] if keys else {}
        settings.setdefault(function.name, {**keys[0], **own} if keys else {})
        findings = check_function(function, text, path)
        if findings:
            raise _as_error(findings[0])
        overloads[function.name].append(_pattern(function, tuple(own.get("where", ())), text, path))
    if not overloads:
        raise RuleError("the file holds no rule", where=str(path))
    return [_rule(name, kind, settings[name], patterns, path, text) for name, patterns in overloads.items()]


def check_function(function: onnx.FunctionProto, text: str, path: Path) -> list[Finding]:
    """What the parser lets through: undefined or repeated names, outputs never made, undeclared domains, attributes
    taken from parameters."""
    findings: list[Finding] = []
    defined = set(function.input)
    domains = {o.domain for o in function.opset_import} | {""}

    def found(line: int, word: str, message: str) -> None:
        source = text.splitlines()[line - 1] if line else ""
        findings.append(Finding(path, line, max(source.find(word), 0) + 1, message, source))

    start = _function_line(text, function.name)
    for node in function.node:
        line = _call_line(text, node, start)
        for name in node.input:
            if name and name not in defined:
                found(line, name, f"'{name}' is not defined{_maybe(name, defined)}")
        for name in node.output:
            if name in defined:
                found(line, name, f"'{name}' is defined twice")
            defined.add(name)
        if node.domain not in domains:
            found(line, node.domain, f"domain '{node.domain}' is missing from opset_import")
        elif node.domain == "" and not onnx.defs.has(node.op_type):
            known = {s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}
            found(line, node.op_type, f"no ONNX operator '{node.op_type}'{_maybe(node.op_type, known)}")
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                found(line, f"@{attribute.ref_attr_name}", "rules take no attribute parameters")
    for name in function.output:
        if name not in defined:
            found(start, name, f"output '{name}' is never produced{_maybe(name, defined)}")
    return findings


def check_references(rules: Iterable[Rule]) -> list[Finding]:
    """Calls of idioms that do not exist."""
    rules = list(rules)
    known = {r.name for r in rules if r.kind == "idiom"} | GROWING
    findings = []
    for rule in rules:
        for name in sorted(rule.references() - known):
            word = re.compile(rf"(?:{PATTERN_DOMAIN}\.|unless:.*\b){re.escape(name)}\b")
            number, source, place = next(
                (n, s, m) for n, s in enumerate(rule.text.splitlines(), 1) if (m := word.search(s)) is not None
            )
            message = f"no idiom '{name}'{_maybe(name, known)}"
            findings.append(Finding(rule.path, number, place.start() + 1, message, source))
    return findings


def _pattern(function: onnx.FunctionProto, where: tuple[str, ...], text: str, path: Path) -> Pattern:
    constants: dict[str, float] = {}
    calls: list[Call] = []
    for node in function.node:
        attributes = {a.name: _attribute(a) for a in node.attribute}
        if node.op_type == "Constant" and not node.domain:
            constants[node.output[0]] = float(np.asarray(next(iter(attributes.values()))).ravel()[0])
        else:
            call = Call(len(calls), node.domain, node.op_type, tuple(node.input), tuple(node.output), attributes)
            calls.append(call)
    for condition in where:
        try:
            compile_predicate(condition)
        except RuleError as e:
            number = next((n for n, s in enumerate(text.splitlines(), 1) if condition in s), 1)
            source = text.splitlines()[number - 1]
            column = max(source.find(condition), 0) + 1
            message = f"{e.message} ({e.hint})" if e.hint else e.message
            raise _as_error(Finding(path, number, column, message, source)) from e
    return Pattern(function.name, tuple(function.input), tuple(function.output), tuple(calls), constants, where)


def _rule(name: str, kind: str, keys: dict[str, list[str]], patterns: list[Pattern], path: Path, text: str) -> Rule:
    level = keys.get("opt-level", ["1"])[-1]
    if level not in ("0", "1", "2", "3"):
        raise RuleError(f"opt-level must be 0 to 3, not '{level}'", where=str(path))
    kernel = keys.get("kernel", ["auto"])[-1]
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", kernel):
        raise RuleError(f"kernel '{kernel}' is not a template name (letters, digits, underscores)", where=str(path))
    unless = tuple(n.strip() for line in keys.get("unless", []) for n in line.split(","))
    return Rule(
        name,
        kind,
        keys.get("summary", [""])[-1],
        path,
        text,
        int(level),
        kernel,
        unless,
        keys.get("counted", ["yes"])[-1] != "no",
        tuple(patterns),
        keys.get("match", ["graph"])[-1] == "values",
    )


def _keys_by_function(text: str) -> list[dict[str, list[str]]]:
    """The `# key: value` comments before each function, in order."""
    blocks: list[dict[str, list[str]]] = []
    pending: dict[str, list[str]] = {}
    for line in text.splitlines():
        if (match := _KEY.match(line)) is not None:
            pending.setdefault(match[1], []).append(match[2])
        elif line.startswith("<"):
            blocks.append(pending)
            pending = {}
    return blocks


def _attribute(attribute: onnx.AttributeProto) -> object:
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode()
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [text.decode() for text in value]
    return list(value) if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) else value


def _in_dependency_order(rules: list[Rule]) -> list[Rule]:
    by_name = {r.name: r for r in rules}
    done: dict[str, Rule] = {}

    def visit(rule: Rule, above: tuple[str, ...]) -> None:
        if rule.name in above:
            raise RuleError(
                f"idioms refer to each other in a circle: {' -> '.join((*above, rule.name))}", where=str(rule.path)
            )
        if rule.name not in done:
            for name in sorted(rule.references()):
                visit(by_name[name], (*above, rule.name))
            done[rule.name] = rule

    for rule in sorted(rules, key=lambda r: r.name):
        visit(rule, ())
    return list(done.values())


def _syntax_finding(message: str, text: str, path: Path) -> Finding:
    position = _POSITION.search(message)
    line, column = (int(position[1]), int(position[2])) if position else (1, 1)
    if line == 1:
        column = max(column - len(_PREFIX), 1)
    reason = message.replace("\\n", "\n").splitlines()[-1].rstrip("'\"")
    lines = text.splitlines() or [""]
    return Finding(path, line, column, reason, lines[min(line, len(lines)) - 1])


def _function_line(text: str, name: str) -> int:
    return next((n for n, s in enumerate(text.splitlines(), 1) if re.match(rf"\s*{re.escape(name)}\s*\(", s)), 1)


def _call_line(text: str, node: onnx.NodeProto, start: int) -> int:
    pattern = re.compile(r"\s*" + r"\s*,\s*".join(map(re.escape, node.output)) + r"\s*=")
    lines = text.splitlines()
    return next((n for n in range(start, len(lines) + 1) if pattern.match(lines[n - 1])), start)


def _as_error(finding: Finding) -> RuleError:
    return RuleError(str(finding))


def _maybe(name: str, known: Iterable[str]) -> str:
    hint = did_you_mean(name, known, 0.6)
    return f"; {hint}" if hint else ""
