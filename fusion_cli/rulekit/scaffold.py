"""`rules new`: the text of a first rule, from nothing or from nodes of a model."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir

from fusion_cli.errors import ModelError, RuleError, did_you_mean
from fusion_cli.graph.convexity import is_convex
from fusion_cli.graph.index import GraphIndex
from fusion_cli.language.lint import lint_files, read_rule_file
from fusion_cli.language.lint.source import USUAL_OPSET, Kind
from fusion_cli.operators.registry import CONTRIBUTED, is_elementwise
from fusion_cli.rulekit.schemas import find_schema
from fusion_cli.types import label

NEIGHBOURS = 12
"""Most operators that `around` takes in."""
_MEANT = frozenset("alpha approximate axes axis beta equation keepdims mode perm to transA transB".split())
"""Attributes that say what is computed; others (sizes, strides, epsilons) are left open, and match any."""
_WORDS = frozenset(
    "bfloat16 bool double float float16 int8 int16 int32 int64 map optional seq string uint8 rest".split()
)
"""Words that the parser does not take for names, or that mean something in a rule."""

_BLANK = {
    "fusion": """# summary: {name}: what becomes one operator, in one line
# opt-level: 1
# where: rank(x) >= 1
{name} (x) => (y) {{
    h = pattern.Linear (x)
    y = Tanh (h)
}}
""",
    "idiom": """# summary: {name}: what the operators mean, in one line
{name} (x) => (y) {{
    half = Constant <value_float = 0.5> ()
    t = Tanh (x)
    y = Mul (t, half)
}}
""",
}


def write_rule(folder: Path, name: str, kind: Kind, text: str) -> Path:
    """Write a new rule file and return its path. Raises RuleError if there is one, or if the text does not hold."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    path = (folder / "idioms" if kind == "idiom" else folder) / f"{words.lower()}.rule"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with open(path, "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise RuleError("there is such a file; nothing was written", where=str(path)) from None
    faults = [f for f in lint_files([read_rule_file(path, kind)]) if f.severity != "note"]
    if faults:
        os.unlink(path)
        raise RuleError(f"these nodes make no rule: {faults[0].message}", hint="choose nodes that are connected")
    return path


def blank(name: str, kind: Kind) -> str:
    """A small rule to be changed."""
    return _BLANK[kind].format(name=checked_name(name))


def checked_name(name: str) -> str:
    """A rule's name; operators are named after it. Raises RuleError."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,60}", name) or "__" in name:
        raise RuleError(f"'{name}' cannot be the name of a rule", hint="letters, digits and single underscores")
    return name


def from_nodes(model: ir.Model, names: Sequence[str], name: str, source: str) -> str:
    """The rule that describes these nodes of a (simplified) model; `source` is where they come from, for the summary.

    Single numbers become constants of the rule, other constants inputs with a condition. Raises ModelError for a node
    that is not there.
    """
    index = GraphIndex(model.graph)
    nodes = sorted({_find(index, n) for n in names}, key=index.position.__getitem__)
    return _Writer(index, nodes).text(checked_name(name), source)


def around(model: ir.Model, name: str) -> list[str]:
    """The names of a node and of the elementwise operators connected with it, nearest first. Raises ModelError."""
    index = GraphIndex(model.graph)
    chosen = [_find(index, name)]
    for node in chosen:
        above = [p for v in node.inputs if (p := index.producer(v)) is not None]
        below = [c for v in node.outputs for c in index.consumers(v)]
        for other in filter(is_elementwise, (*above, *below)):
            if other not in chosen and len(chosen) < NEIGHBOURS and is_convex(index, [*chosen, other]):
                chosen.append(other)
    return [label(n) for n in chosen]


def _find(index: GraphIndex, name: str) -> ir.Node:
    known = {label(n): n for n in index.nodes}
    if name not in known:
        hint = did_you_mean(name, known, 0.6) or "`fusion-cli explain` names nodes; clean-ups may have removed this one"
        raise ModelError(f"no node '{name}' in the model that is matched", hint=hint)
    return known[name]


class _Writer:
    """Nodes as the lines of a rule."""

    def __init__(self, index: GraphIndex, nodes: Sequence[ir.Node]) -> None:
        self.index = index
        # Patterns see through casts between floats: the operators around them are what counts.
        self.nodes = [n for n in nodes if not index.is_transparent(n)]
        self.made = {v for n in self.nodes for v in n.outputs}
        self.names: dict[ir.Value, str] = {}
        self.numbers: dict[float, str] = {}
        self.inputs: dict[ir.Value, str] = {}
        self.lines: list[str] = []
        self.conditions: list[str] = []
        self.taken: set[str] = set()

    def text(self, name: str, source: str) -> str:
        for node in self.nodes:
            if any(a.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) for a in node.attributes.values()):
                raise ModelError(f"'{label(node)}' ({node.op_type}) holds a graph of its own; rules cannot say that")
            self._line(node)
        outputs = [self.names[v] for n in self.nodes for v in n.outputs if v in self.names and self._is_read(v)]
        constants = [f"    {n} = Constant <value_float = {number!r}> ()" for number, n in self.numbers.items()]
        return "\n".join(
            [
                f"# summary: {name}, as in {''.join(c if c.isprintable() else '?' for c in source)}",
                *(f"# where: {c}" for c in self.conditions),
                *self._head(),
                f"{name} ({', '.join(self.inputs.values())}) => ({', '.join(outputs)}) {{",
                *constants,
                *self.lines,
                "}",
                "",
            ]
        )

    def _head(self) -> list[str]:
        """A head, where the nodes have operators that a function without one does not know."""
        domains = dict.fromkeys(n.domain for n in self.nodes if n.domain)
        standard = [n.op_type for n in self.nodes if not n.domain]
        if {*domains} <= {"com.microsoft"} and all(_is_current(op) for op in standard):
            return []
        opsets = {"": max(self.index.opset, 13), **dict.fromkeys(domains, 1)}
        imports = ", ".join(f'"{domain}": {version}' for domain, version in opsets.items())
        return [f'<domain: "fusion.rules", opset_import: [{imports}]>']

    def _line(self, node: ir.Node) -> None:
        inputs = ", ".join(self._input(v) for v in self.index.inputs(node))
        for value in node.outputs:
            self.names[value] = self._new(_plain(node.op_type.lower(), "y"))
        outputs = ", ".join(self.names[v] for v in node.outputs)
        written = ", ".join(f"{k} = {_literal(v)}" for k, v in self._attributes(node))
        op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        self.lines.append(f"    {outputs} = {op} {f'<{written}> ' if written else ''}({inputs})")

    def _attributes(self, node: ir.Node) -> list[tuple[str, Any]]:
        """Those that the node gives, in the form in which they are matched."""
        schema = find_schema(node.domain, node.op_type, self.index.graph.opset_imports)
        given = {*node.attributes, *schema.moved.values()} & _MEANT
        found = self.index.attributes(node)
        return [(k, found[k]) for k in sorted(given) if _is_literal(found.get(k))]

    def _input(self, value: ir.Value | None) -> str:
        if value is None:
            return ""
        value = self.index.root(value)[0]
        if value in self.made:
            return self.names[value]
        number = self.index.scalar(value)
        if number is not None:
            if number not in self.numbers:
                self.numbers[number] = self._new(_NUMBERS.get(number, "number"))
            return self.numbers[number]
        if value not in self.inputs:
            constant = self.index.is_constant(value)
            self.inputs[value] = self._new(_plain(value.name or "", "w") if constant else "x")
            if constant:
                rank = f" and rank({self.inputs[value]}) == {len(value.shape)}" if value.shape is not None else ""
                self.conditions.append(f"is_constant({self.inputs[value]}){rank}")
        return self.inputs[value]

    def _is_read(self, value: ir.Value) -> bool:
        """Whether anything but these nodes reads the value; the last value counts in any case."""
        readers = self.index.readers(value)
        return not readers or self.index.escapes(value) or any(n not in self.nodes for n in readers)

    def _new(self, name: str) -> str:
        fresh = next(n for n in chain([name], (f"{name}{i}" for i in count(2))) if n not in self.taken)
        self.taken.add(fresh)
        return fresh


_NUMBERS = {0.0: "zero", 0.5: "half", 1.0: "one", 2.0: "two", 3.0: "three", -1.0: "minus_one"}


def _is_current(op: str) -> bool:
    """Whether the usual operator set has this operator of ONNX."""
    return op in CONTRIBUTED or (
        onnx.defs.has(op, max_inclusive_version=USUAL_OPSET) and not onnx.defs.get_schema(op, USUAL_OPSET).deprecated
    )


def _plain(name: str, otherwise: str) -> str:
    """The last part of a model's name as a name of a rule."""
    word = re.sub(r"[^A-Za-z0-9_]+", "_", re.split(r"[./:]", name.rstrip("./:"))[-1]).strip("_").lower()[:30]
    return word if re.match(r"[a-z]", word) and word not in _WORDS else otherwise


def _is_literal(value: Any) -> bool:
    """Whether it can be written down; a bound that is computed at run time cannot."""
    return all(map(_is_literal, value)) if isinstance(value, (list, tuple)) else isinstance(value, (int, float, str))


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return '"' + re.sub(r'[^ -~]|["\\]', "?", value) + '"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_literal(v) for v in value) + "]"
    return repr(float(value)) if isinstance(value, float) else str(int(value))
