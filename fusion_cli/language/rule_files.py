"""Rule files as rules: ONNX functions with `# key: value` header lines, checked before use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from fusion_cli.errors import RuleError, did_you_mean
from fusion_cli.graph.attributes import canonical_equation
from fusion_cli.language.lint import Finding, RuleFile, check_targets, lint_files, lint_together, read_rule_file
from fusion_cli.language.lint.source import Kind
from fusion_cli.language.lint.tokens import FunctionText
from fusion_cli.language.pattern import Call, Parameter, Pattern, Rule, RuleSet
from fusion_cli.resources import resource_dir


def load_rules(
    names: Sequence[str] = (),
    rule_paths: Sequence[Path] = (),
    opt_level: int = 3,
    targets: Sequence[str] = (),
    known_targets: Sequence[str] = (),
) -> RuleSet:
    """The bundled rules and those of `rule_paths`, with fusions limited to `names` (all if empty), `opt_level` and, if
    any are given, those for some of `targets`; `known_targets`, if any, are those that a rule can be for.

    A folder holds `idioms/*.rule` and `fusions/*.rule`; files directly in it are fusions. A user's rule replaces a
    bundled one of the same name. Raises RuleError for a folder or rule that does not exist, and with the first
    finding (line, column and caret) for one that does not hold.
    """
    files = rule_files([resource_dir("rules"), *rule_paths])
    rules = rules_of(files)
    _raise_first(check_targets(files if known_targets else (), known_targets))
    known = [r.name for r in rules.fusions]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known) or "see `fusion-cli rules list`"
            raise RuleError(f"no fusion rule '{name}'", hint=hint)
    chosen = (r for r in rules.fusions if (r.name in names if names else r.opt_level <= opt_level))
    fitting = (r for r in chosen if not (r.targets and targets) or r.targets.intersection(targets))
    return RuleSet(rules.idioms, tuple(fitting))


def parse_rules(path: Path, kind: Kind) -> list[Rule]:
    """The rules of one file, in order. Raises RuleError with line, column and caret."""
    file = read_rule_file(path, kind)
    _raise_first(lint_files([file]))
    return _rules(file)


def rule_files(folders: Iterable[Path]) -> list[RuleFile]:
    """The files of these folders, read but not checked. Raises RuleError for a folder that does not exist."""
    found: list[RuleFile] = []
    for folder in folders:
        if not folder.is_dir():
            raise RuleError("no such rule folder", where=str(folder))
        found += [read_rule_file(p, "idiom") for p in sorted(folder.glob("idioms/*.rule"))]
        fusions = [*folder.glob("fusions/*.rule"), *folder.glob("*.rule")]
        found += [read_rule_file(p, "fusion") for p in sorted(fusions)]
    return found


def rules_of(files: Sequence[RuleFile]) -> RuleSet:
    """All rules of these files, a later one in the place of an earlier one of its name. Raises RuleError with the first
    error in any of them."""
    return _rules_of(tuple(files))


@lru_cache(maxsize=8)
def _rules_of(files: tuple[RuleFile, ...]) -> RuleSet:
    """Once for the same files, which are so as long as their texts are."""
    _raise_first(lint_files(files))
    _raise_first(lint_together(files))
    rules = {r.name: r for file in files for r in _rules(file)}
    idioms = _in_dependency_order([r for r in rules.values() if r.kind == "idiom"])
    fusions = sorted((r for r in rules.values() if r.kind == "fusion"), key=lambda r: r.name)
    return RuleSet(tuple(idioms), tuple(fusions))


def _raise_first(findings: Iterable[Finding]) -> None:
    for finding in findings:
        if finding.severity == "error":
            raise RuleError(str(finding))


def _rules(file: RuleFile) -> list[Rule]:
    return [_rule(file, name, functions) for name, functions in file.by_name.items()]


def _rule(file: RuleFile, name: str, functions: Sequence[FunctionText]) -> Rule:
    said = file.keys_for(functions[0])
    keys = {k.name: k.value for k in said}
    unless = [n.strip() for k in said if k.name == "unless" for n in k.value.split(",")]
    return Rule(
        name,
        file.kind,
        keys.get("summary", ""),
        file.path,
        file.text,
        int(keys.get("opt-level", "1")),
        keys.get("kernel", "auto"),
        tuple(unless),
        keys.get("counted", "yes") != "no",
        tuple(_pattern(f) for f in functions),
        frozenset(keys.get("targets", "").split()),
        keys.get("match", "graph") == "values",
        keys.get("layout") == "channels-last",
    )


def _pattern(function: FunctionText) -> Pattern:
    constants: dict[str, float] = {}
    calls: list[Call] = []
    for text in function.calls:
        node = text.node
        attributes = {a.name: _attribute(a) for a in node.attribute}
        if text.is_constant:
            constants[node.output[0]] = float(np.asarray(next(iter(attributes.values()))).ravel()[0])
        else:
            names = tuple(node.input), tuple(node.output)
            calls.append(Call(len(calls), node.domain, node.op_type, *names, attributes, text.op.line))
    where = function.said("where")
    return Pattern(
        function.name.text,
        tuple(function.proto.input),
        tuple(function.proto.output),
        tuple(calls),
        constants,
        tuple(k.value for k in where),
        tuple(function.proto.attribute),
        function.name.line,
        tuple(k.line for k in where),
        function.opsets,
    )


def _attribute(attribute: onnx.AttributeProto) -> object:
    if attribute.ref_attr_name:
        return Parameter(attribute.ref_attr_name)
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    written = canonical_equation if attribute.name == "equation" else str
    if isinstance(value, bytes):
        return written(value.decode())
    if attribute.type == onnx.AttributeProto.STRINGS:
        return [written(text.decode()) for text in value]
    return list(value) if attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) else value


def _in_dependency_order(rules: Sequence[Rule]) -> list[Rule]:
    """Each after those it refers to; `lint_together` has seen to it that there is no circle."""
    by_name = {r.name: r for r in rules}
    done: dict[str, Rule] = {}

    def visit(names: Iterable[str]) -> None:
        for name in sorted(names):
            if name not in done:
                visit(by_name[name].references)
                done[name] = by_name[name]

    visit(by_name)
    return list(done.values())
