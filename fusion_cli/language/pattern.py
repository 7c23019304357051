"""A rule's text as data: patterns are small graphs of operator calls over named values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any

from fusion_cli.operators.registry import COMMUTATIVE
from fusion_cli.resources import resource_dir

PATTERN_DOMAIN = "pattern"
GROWING_ATTRIBUTES = {
    "Pointwise": ("min_ops", "max_ops", "reshapes", "closed", "factors"),
    "Rowwise": ("min_ops", "max_ops"),
    "Move": ("min_ops", "max_ops", "scalars"),
    "Convolutions": ("min_ops", "max_ops", "mixers"),
}
GROWING = frozenset(GROWING_ATTRIBUTES)
"""Built-in patterns that match a connected set of nodes rather than one (see match/grow.py)."""
REST = "rest"
"""As a call's last input: any further inputs, present or not."""


@dataclass(frozen=True)
class Parameter:
    """An attribute of the rule itself, `@name`: the same name in two places is the same value."""

    name: str

    def __str__(self) -> str:
        return f"@{self.name}"


@dataclass(frozen=True, eq=False)
class Call:
    """One line of a rule: `outputs = domain.op <attributes> (inputs)`. `inputs` may hold "" for an omitted one."""

    index: int
    domain: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    line: int = 0
    """Where it stands in the rule's file."""

    @cached_property
    def is_pattern(self) -> bool:
        return self.domain == PATTERN_DOMAIN

    @cached_property
    def is_growing(self) -> bool:
        return self.is_pattern and self.op in GROWING

    @cached_property
    def takes_more(self) -> bool:
        return self.inputs[-1:] == (REST,)

    @cached_property
    def named_inputs(self) -> tuple[str, ...]:
        return self.inputs[:-1] if self.takes_more else self.inputs

    @cached_property
    def orders(self) -> Sequence[tuple[int, ...]]:
        """The orders in which its named inputs are compared with the operands that are there."""
        places = tuple(range(len(self.named_inputs)))
        return tuple(permutations(places)) if self.op in COMMUTATIVE and not self.domain else (places,)

    def __str__(self) -> str:
        prefix = f"{self.domain}." if self.domain else ""
        return f"{', '.join(self.outputs)} = {prefix}{self.op}({', '.join(self.inputs)})"


@dataclass(frozen=True, eq=False)
class Pattern:
    """One function of a rule file. `constants` are the names bound to literal scalars (Constant calls)."""

    rule: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    calls: tuple[Call, ...]
    constants: Mapping[str, float]
    where: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    """Attributes of the function, which calls of it may ask for and its own calls and conditions speak of."""
    line: int = 0
    """Where the function starts in the rule's file, and where its conditions stand."""
    where_lines: tuple[int, ...] = ()
    opsets: Mapping[str, int] = field(default_factory=dict)
    """By domain: the version that the function imports."""

    def is_open(self, name: str) -> bool:
        """Whether only growing calls, if any, lie between this name and an input of the pattern."""
        producer = next((c for c in self.calls if name in c.outputs), None)
        return producer is None or (producer.is_growing and self.is_open(producer.inputs[0]))

    @cached_property
    def operators(self) -> frozenset[tuple[str, str]]:
        """The operators that it names, by domain and name."""
        return frozenset((c.domain, c.op) for c in self.calls if not c.is_pattern)

    @cached_property
    def references(self) -> frozenset[str]:
        """The idioms this pattern is written in terms of."""
        return frozenset(c.op for c in self.calls if c.is_pattern and not c.is_growing)


@dataclass(frozen=True, eq=False)
class Rule:
    """All overloads of one name: an idiom (a meaning to recognise) or a fusion (a region worth one kernel)."""

    name: str
    kind: str
    summary: str
    path: Path
    text: str
    opt_level: int
    kernel: str
    unless: tuple[str, ...]
    """Idioms: a match that lies within one of these is not this. (A LayerNorm holds what looks like an RMSNorm.)"""
    counted: bool
    """Whether the idiom is a meaning to report, or only a piece of others."""
    patterns: tuple[Pattern, ...]
    targets: frozenset[str] = frozenset()
    """Fusions: the only targets that they are for; all if empty."""
    by_value: bool = False
    """Whether the rule is a definition to compare functions with, not a graph to find (see match/values.py)."""
    channels_last: bool = False
    """Fusions: whether kernels keep images with the channels last."""

    @cached_property
    def source(self) -> str:
        """The rule's file, for bundled rules from `rules/` on."""
        try:
            return f"rules/{self.path.relative_to(resource_dir('rules')).as_posix()}"
        except ValueError:
            return str(self.path)

    @cached_property
    def references(self) -> frozenset[str]:
        return frozenset(self.unless).union(*(p.references for p in self.patterns))


@dataclass(frozen=True, eq=False)
class RuleSet:
    """Idioms in an order in which each comes after those it refers to, and the fusions to look for."""

    idioms: tuple[Rule, ...]
    fusions: tuple[Rule, ...]

    @cached_property
    def users(self) -> Mapping[str, tuple[str, ...]]:
        """By idiom: the idioms and fusions that are written with it, through mere parts too, nearest first."""
        direct: dict[str, list[Rule]] = defaultdict(list)
        for rule in (*self.idioms, *self.fusions):
            for name in sorted(set().union(*(p.references for p in rule.patterns))):
                direct[name].append(rule)

        def named(name: str, seen: frozenset[str]) -> list[str]:
            found: list[str] = []
            for user in direct.get(name, ()):
                if user.counted:
                    found.append(user.name)
                elif user.name not in seen:
                    found += named(user.name, seen | {user.name})
            return list(dict.fromkeys(found))

        return {rule.name: tuple(named(rule.name, frozenset({rule.name}))) for rule in self.idioms}

    def find(self, name: str) -> Rule | None:
        return next((r for r in (*self.fusions, *self.idioms) if r.name == name), None)
