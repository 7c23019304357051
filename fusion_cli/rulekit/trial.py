"""Rules tried on graphs made from them: matched in every order of operands, outlined, compiled, compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Literal

import onnx

from fusion_cli.errors import RuleError, did_you_mean
from fusion_cli.explain.near_misses import near_misses
from fusion_cli.language.pattern import PATTERN_DOMAIN, REST, Call, Pattern
from fusion_cli.language.rule_files import rules_of
from fusion_cli.match import Rule, RuleSet, find_regions
from fusion_cli.rulekit.arrangements import arrangements
from fusion_cli.rulekit.components import Component, as_written, model_of, orders
from fusion_cli.rulekit.execute import Executor
from fusion_cli.rulekit.find import ready, region_of
from fusion_cli.rulekit.findings import read_all
from fusion_cli.rulekit.kernels import Kernel, try_kernels
from fusion_cli.rulekit.realise import LONG, MAX_TRIES, MORE_TRIES, Concrete, Stuck, realise
from fusion_cli.rulekit.sketch import Impossible, Sketcher
from fusion_cli.rulekit.witnesses import witnessed

NEWEST_OPSET = 23
"""Graphs are made in the rule's own opset, at least in this one."""
_ATTEMPTS, _VARIATIONS = 4, 6
Status = Literal["ok", "matched", "failed", "no graph"]


@dataclass(frozen=True)
class Limits:
    """How much is tried: graphs of an overload, orders of operands of a graph, kernels of a rule."""

    graphs: int = 6
    orders: int = 8
    kernels: int = 4


@dataclass(frozen=True)
class Outcome:
    """What became of one overload (counted from 1, at `line` of its file), or of one witness of a rule of algebra, of
    which `kind` is "algebra".

    "ok": every graph was recognised, and where a kernel was built its numbers agree. "matched": recognised, but there
    is no kernel (`detail` says why). "failed": not recognised, or other numbers. "no graph": no graph was found.
    """

    rule: str
    kind: str
    overload: int
    path: Path
    line: int
    status: Status
    graphs: int
    orders: int
    kernel: str
    """"ok", "-" where none was tried, or a reason code."""
    error: float | None
    detail: str = ""


def rules_to_try(which: Sequence[str], rule_paths: Sequence[Path] = ()) -> tuple[list[Rule], RuleSet]:
    """The rules of fusion in files, folders and of names (all bundled ones, and those of `rule_paths`, if none are
    given), and all there are. Raises RuleError for what neither they nor the rules of algebra have, and with the first
    error of a file."""
    files = [Path(w) for w in which if w.endswith(".rule") or Path(w).is_dir()]
    everything, asked = read_all([*rule_paths, *files])
    known = rules_of(everything)
    by_name = {r.name: r for r in (*known.idioms, *known.fusions)}
    if not which:
        return list(by_name.values()), known
    paths = {f.path for f in asked if any(f.path == file or file in f.path.parents for file in files)}
    names = [w for w in which if Path(w) not in files]
    everywhere = by_name.keys() | witnessed().keys()
    for name in names:
        if name not in everywhere:
            raise RuleError(f"no rule or rule file '{name}'", hint=did_you_mean(name, everywhere))
    return [r for r in by_name.values() if r.path in paths or r.name in names], known


def failures(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Overloads that failed, and those of fusions of which no overload has a kernel."""
    compiled = {o.rule for o in outcomes if o.status == "ok"}
    without = [o for o in outcomes if o.status == "matched" and o.kind == "fusion" and o.rule not in compiled]
    return [o for o in outcomes if o.status in ("failed", "no graph") or o in without]


def try_rules(
    rules: Sequence[Rule],
    known: RuleSet,
    limits: Limits,
    *,
    keep: Path | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Outcome]:
    """Try each overload of these rules, file by file. `known` holds all rules there are. `keep` is where models are
    left: the graphs of a rule, and each graph in which it was not found.

    Raises CannotRun without ONNX Runtime, BuildError where a kernel does not compile.
    """
    idioms = {r.name: r for r in known.idioms}
    for path in dict.fromkeys(r.path for r in rules):
        for rule in (r for r in rules if r.path == path):
            say(rule.name)
            yield from Trial(rule, idioms, limits, keep).run()


class Trial:
    """One rule."""

    def __init__(self, rule: Rule, idioms: Mapping[str, Rule], limits: Limits, keep: Path | None = None) -> None:
        self.rule = rule
        self.limits = limits
        self.keep = keep
        self.idioms = idioms
        self.rules = alone(rule, idioms)
        opsets: dict[str, int] = {"": NEWEST_OPSET}
        for pattern in (p for r in (rule, *self.rules.idioms) for p in r.patterns):
            opsets |= {d: max(v, opsets.get(d, 1)) for d, v in pattern.opsets.items() if d != PATTERN_DOMAIN}
        self.executor = Executor(opsets)

    def run(self) -> list[Outcome]:
        made: list[list[list[Component]]] = []
        stuck: list[str] = []
        for i, pattern in enumerate(self.rule.patterns, 1):
            found, reason = self.graphs(pattern)
            stuck.append(reason)
            ordered = [(j, g, enumerate(orders(g, self.limits.orders))) for j, g in enumerate(found, 1)]
            made.append([[Component(f"o{i}g{j}s{k}_", g, o) for k, o in ways] for j, g, ways in ordered])
        everything = [c for overload in made for graph in overload for c in graph]
        faults: dict[str, str] = {}
        kernels: dict[str, Kernel] = {}
        for fold in (True, False):
            faults |= self._match([c for c in everything if c.graph.folds != fold], fold)
        # A different order of operands for each graph that is compiled.
        rows = [[graph[j % len(graph)] for j, graph in enumerate(overload)] for overload in made]
        chosen = [c for column in zip_longest(*rows) for c in column if c is not None]
        fit = [c for c in chosen if c.graph.runs and not c.graph.folds and c.prefix not in faults]
        if self.limits.kernels and fit:
            kernels = try_kernels(fit, self.rules, self.rule, self.limits.kernels)
        return [self._outcome(i, overload, stuck[i], faults, kernels) for i, overload in enumerate(made)]

    def graphs(self, pattern: Pattern) -> tuple[list[Concrete], str]:
        """Graphs that an overload describes, and what was in the way of those that were tried in vain. Where nothing
        comes of as many as are asked for, others are tried until one is found."""
        if self.rule.by_value:
            return arrangements(pattern, self.executor), "its operators take no value that was tried"
        sketcher = Sketcher(self.idioms)
        found: list[Concrete] = []
        stuck = Stuck(-1, "its calls fit no overload of the idioms")
        for number, variation in enumerate(sketcher.variations(pattern)[: max(self.limits.graphs, _VARIATIONS)]):
            if found and number >= self.limits.graphs:
                break
            for graph in self._attempts(sketcher, pattern, variation):
                if isinstance(graph, Concrete):
                    found.append(graph)
                    break
                stuck = max(stuck, graph, key=lambda s: s.step)
        return found, stuck.reason

    def _attempts(
        self, sketcher: Sketcher, pattern: Pattern, variation: Mapping[int, int]
    ) -> Iterator[Concrete | Stuck]:
        """Other shapes each time, of every sketch a few before many of any."""
        for most in (MAX_TRIES, MORE_TRIES):
            for turn in range(_ATTEMPTS):
                try:
                    sketch = sketcher.sketch(pattern, variation, turn // 2)
                except Impossible:
                    continue
                if most == MAX_TRIES or len(sketch.steps) > LONG:
                    yield realise(sketch, self.executor, turn, most)

    def _match(self, components: Sequence[Component], fold: bool) -> dict[str, str]:
        """Why the rule was not found where it should be, by the components' prefixes."""
        if not components:
            return {}
        model = ready(model_of(components), fold)
        found = find_regions(model, self.rules)
        missed = near_misses(found).rejections
        faults: dict[str, str] = {}
        for component in components:
            region = region_of(model, found, missed, self.rule.name, component.outputs)
            if isinstance(region, str):
                faults[component.prefix] = f"{'; '.join(component.graph.sketch.choices) or 'as written'}: {region}"
            if self.keep is not None and (isinstance(region, str) or component.order == as_written(component.graph)):
                self.keep.mkdir(parents=True, exist_ok=True)
                path = self.keep / f"{self.rule.name}-{component.prefix.rstrip('_')}.onnx"
                onnx.save(model_of([component]), path)
        return faults

    def _outcome(
        self,
        index: int,
        graphs: Sequence[Sequence[Component]],
        stuck: str,
        faults: Mapping[str, str],
        kernels: Mapping[str, Kernel],
    ) -> Outcome:
        components = [c for graph in graphs for c in graph]
        missed = [faults[c.prefix] for c in components if c.prefix in faults]
        tried = [kernels[c.prefix] for c in components if c.prefix in kernels]
        wrong = [k for k in tried if not k.ok and (k.error is not None or k.code == "error")]
        refused = [k for k in tried if k.code not in ("", "-", "error")]
        compiled = [k for k in tried if k.ok]
        status: Status = "matched" if refused and len(refused) == len(tried) else "ok"
        detail = refused[0].detail if status == "matched" else ""
        if not components:
            status, detail = "no graph", stuck
        if missed:
            status, detail = "failed", f"not found in {len(missed)} of {len(components)}: {missed[0]}"
        elif wrong:
            status, detail = "failed", wrong[0].detail or f"numbers differ by {wrong[0].error:.2g}"
        rule, line = self.rule, self.rule.patterns[index].line
        kernel = "ok" if compiled else refused[0].code if status == "matched" else "-"
        error = max((k.error for k in compiled if k.error is not None), default=None)
        counts = len(graphs), len(components)
        return Outcome(rule.name, rule.kind, index + 1, rule.path, line, status, *counts, kernel, error, detail)


def alone(rule: Rule, idioms: Mapping[str, Rule]) -> RuleSet:
    """The rule alone with the idioms it is written in. An idiom is tried as the fusion that is nothing else. Idioms
    by value are all there: a function is given to the nearest of them."""
    needed: dict[str, None] = {}
    waiting = [rule.name] if rule.kind == "idiom" else sorted(rule.references)
    waiting += [name for name, r in idioms.items() if r.by_value]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = None
            waiting += sorted(idioms[name].references)
    fusion = rule if rule.kind == "fusion" else _as_fusion(rule)
    return RuleSet(tuple(r for r in idioms.values() if r.name in needed), (fusion,))


def _as_fusion(idiom: Rule) -> Rule:
    inputs = min((tuple(n for n in p.inputs if n != REST) for p in idiom.patterns), key=len)
    outputs = min((p.outputs for p in idiom.patterns), key=len)
    call = Call(0, PATTERN_DOMAIN, idiom.name, inputs, outputs)
    pattern = Pattern(idiom.name, inputs, outputs, (call,), {}, ())
    return replace(idiom, kind="fusion", unless=(), patterns=(pattern,), by_value=False)
