"""Faults that show only beside other rules: idioms that do not exist, circles, overloads that say the same."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import onnx

from fusion_cli.language.lint.source import Finding, RuleFile
from fusion_cli.language.lint.tokens import CallText, FunctionText, Key, Token, nearest
from fusion_cli.language.pattern import GROWING, PATTERN_DOMAIN, REST
from fusion_cli.operators.registry import COMMUTATIVE, CONTRIBUTED

Overload = tuple[RuleFile, FunctionText]


def check_references(files: Sequence[RuleFile]) -> Iterator[Finding]:
    """Idioms that rules call or exclude, against those that there are."""
    idioms = _overloads(files, "idiom")
    fusions = _overloads(files, "fusion")
    for file in files:
        for function in file.functions:
            for call in function.calls:
                domain, name = call.node.domain, call.node.op_type
                if domain == PATTERN_DOMAIN and name not in GROWING:
                    yield from _idiom_call(file, call, idioms, fusions)
                elif not domain and name not in CONTRIBUTED and not onnx.defs.has(name):
                    yield file.finding("FUS020", call.op, f"no ONNX operator '{name}'{_operator_meant(name, idioms)}")
            for key in function.said("unless"):
                for part in re.finditer(r"[^,\s][^,]*[^,\s]|[^,\s]", key.value):
                    if part[0] not in idioms:
                        message = f"no idiom '{part[0]}'{nearest(part[0], idioms)}"
                        yield file.finding("FUS036", key, message, offset=part.start())
    yield from _circles(idioms)


def check_kinds(files: Sequence[RuleFile]) -> Iterator[Finding]:
    """A fusion and an idiom of one name: one would take the other's place, and what refers to it would be lost."""
    first: dict[str, RuleFile] = {}
    for file in files:
        for name, functions in file.by_name.items():
            other = first.setdefault(name, file)
            if other.kind != file.kind:
                kind = "an idiom" if other.kind == "idiom" else "a fusion"
                message = f"'{name}' is {kind} ({other.path.name}), so this {file.kind} needs another name"
                yield file.finding("FUS043", functions[0].name, message)


def check_duplicates(files: Sequence[RuleFile]) -> Iterator[Finding]:
    """Overloads of one rule that describe the same graphs."""
    for file in files:
        exact: dict[object, FunctionText] = {}
        commuted: dict[object, FunctionText] = {}
        for function in file.functions:
            same = exact.setdefault(_shape(function, commuted=False), function)
            alike = commuted.setdefault(_shape(function, commuted=True), function)
            if same is not function:
                message = f"says the same as the overload in line {same.name.line}"
                yield file.finding("FUS040", function.name, message, "warning")
            elif alike is not function:
                message = f"is the overload in line {alike.name.line} with operands swapped, which matches both"
                yield file.finding("FUS041", function.name, message, "warning")


def check_shadows(files: Sequence[RuleFile], bundled: Path) -> Iterator[Finding]:
    """Rules that take the place of others: of a bundled one on purpose, of one of the same folder by mistake."""
    known: dict[str, RuleFile] = {}
    for file in files:
        for name, functions in file.by_name.items():
            before = known.get(name, file)
            if before.kind != file.kind:
                continue  # FUS043
            known[name] = file
            if before.path.is_relative_to(bundled) and not file.path.is_relative_to(bundled):
                message = f"takes the place of the bundled rule '{name}' ({before.path.name})"
                yield file.finding("FUS042", functions[0].name, message, "note")
            elif before is not file:
                message = f"takes the place of the rule '{name}' of {before.path}"
                yield file.finding("FUS042", functions[0].name, message, "warning")


def _overloads(files: Sequence[RuleFile], kind: str) -> Mapping[str, list[Overload]]:
    """By name; a later file's take the place of an earlier one's."""
    of_kind = (file for file in files if file.kind == kind)
    return {name: [(file, f) for f in functions] for file in of_kind for name, functions in file.by_name.items()}


def _operator_meant(name: str, idioms: Collection[str]) -> str:
    """An idiom of this name rather than an operator of one that is like it."""
    same = [idiom for idiom in (*idioms, *GROWING) if idiom.lower() == name.lower()]
    if same:
        return f"; the idiom is called as {PATTERN_DOMAIN}.{same[0]}"
    return nearest(name, {s.name for s in onnx.defs.get_all_schemas() if not s.domain})


def _idiom_meant(name: str, idioms: Collection[str], fusions: Collection[str]) -> str:
    if name in fusions:
        return f"; '{name}' is a fusion, and rules are written in idioms only"
    if onnx.defs.has(name):
        return f"; {name} is an operator, called without '{PATTERN_DOMAIN}.'"
    return nearest(name, {*idioms, *GROWING})


def _idiom_call(
    file: RuleFile, call: CallText, idioms: Mapping[str, list[Overload]], fusions: Collection[str]
) -> Iterator[Finding]:
    name = call.node.op_type
    if name not in idioms:
        message = f"no idiom '{name}'{_idiom_meant(name, idioms, fusions)}"
        yield file.finding("FUS025", call.op, message, offset=len(f"{PATTERN_DOMAIN}."))
        return
    functions = [f for _, f in idioms[name]]
    parameters = {p for f in functions for p in f.proto.attribute}
    for attribute in call.node.attribute:
        if attribute.name not in parameters:
            message = f"no overload of '{name}' has a parameter '{attribute.name}'{nearest(attribute.name, parameters)}"
            yield file.finding("FUS021", call.attributes[attribute.name], message)
    inputs = max(len(f.inputs) for f in functions)
    found = len([n for n in call.node.input if n != REST])
    if found > inputs:
        yield file.finding("FUS026", call.op, f"no overload of '{name}' has {found} inputs, {inputs} at most")
    outputs = max(len(f.outputs) for f in functions)
    if len(call.node.output) > outputs:
        message = f"no overload of '{name}' has {len(call.node.output)} outputs, {outputs} at most"
        yield file.finding("FUS026", call.outputs[-1], message)


def _circles(idioms: Mapping[str, list[Overload]]) -> Iterator[Finding]:
    """Each circle once, at a call (or exclusion) that closes it."""
    calls = {name: _called(overloads, idioms) for name, overloads in idioms.items()}
    done: set[str] = set()

    def visit(name: str, above: tuple[str, ...]) -> Iterator[Finding]:
        for called, (file, place) in calls[name].items():
            if called in (*above, name):
                path = [*above, name]
                circle = " -> ".join([*path[path.index(called) :], called])
                yield file.finding("FUS027", place, f"idioms refer to each other in a circle: {circle}")
            elif called not in done:
                yield from visit(called, (*above, name))
        done.add(name)

    for name in sorted(idioms):
        if name not in done:
            yield from visit(name, ())


def _called(overloads: Sequence[Overload], known: Collection[str]) -> dict[str, tuple[RuleFile, Token | Key]]:
    found: dict[str, tuple[RuleFile, Token | Key]] = {}
    for file, function in overloads:
        for call in function.calls:
            if call.node.domain == PATTERN_DOMAIN and call.node.op_type in known:
                found.setdefault(call.node.op_type, (file, call.op))
        for key in function.said("unless"):
            for name in (n.strip() for n in key.value.split(",")):
                if name in known:
                    found.setdefault(name, (file, key))
    return found


# ---- what an overload says, whatever its names


def _shape(function: FunctionText, commuted: bool) -> object:
    """Equal for functions that differ in names only (and, if `commuted`, in the order of operands)."""
    words: dict[str, str] = {t.text: f"input {i}" for i, t in enumerate(function.inputs)}
    for call in function.calls:
        node = call.node
        operands = [words.get(name, name) for name in node.input]
        if commuted and node.op_type in COMMUTATIVE and not node.domain:
            operands.sort()
        attributes = sorted(a.SerializeToString(deterministic=True).hex() for a in node.attribute)
        word = f"{node.domain}.{node.op_type}({', '.join(operands)}; {' '.join(attributes)})/{len(node.output)}"
        words |= {name: f"{word}[{i}]" for i, name in enumerate(node.output)}
    conditions = (re.sub(r"[A-Za-z_]\w*", lambda m: words.get(m[0], m[0]), k.value) for k in function.said("where"))
    results = tuple(words.get(t.text, "") for t in function.outputs)
    return function.name.text, len(function.inputs), len(function.calls), results, tuple(sorted(conditions))
