"""The frozen values that pass between stages, as ARCHITECTURE.md has these one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import onnx_ir as ir

from fusion_cli.costs import Guard, Score
from fusion_cli.planir.stages import Plan
from fusion_cli.sizes.dims import symbol

Dim = int | str | None
"""One dimension: a number, a symbol (two equal symbols are equal sizes), or unknown."""


@dataclass(frozen=True)
class TensorSpec:
    """Name, element type ("float32", "float16", "bfloat16", "int64", "bool", ...) and shape of a value."""

    name: str
    dtype: str
    shape: tuple[Dim, ...]


@dataclass(frozen=True)
class Target:
    """What kernels are built for: `kind` "portable" (none), "cpu" or "cuda"; `arch` such as "sm_90a" or "amx"; and
    `platform`, such as "linux-aarch64", "" for this machine's."""

    name: str
    kind: Literal["portable", "cpu", "cuda"]
    arch: str = ""
    platform: str = ""


def label(node: ir.Node) -> str:
    """A node by its name, or by its operator and first output where it has none."""
    return node.name or f"{node.op_type}->{node.outputs[0].name}"


@dataclass(frozen=True)
class Rewrite:
    """A rule of algebra, and where it held before anything was fused: at how many places, and the names of the nodes
    that it took out or changed there."""

    rule: str
    nodes: tuple[str, ...]
    places: int


@dataclass(frozen=True, slots=True)
class AttentionRoles:
    """What the values of an attention inside a region are to it, as far as the idioms tell them apart: the scores are
    the product of queries and keys, the weights their softmax, the result the weighted values."""

    queries: ir.Value | None
    keys: ir.Value | None
    values: ir.Value | None
    scores: ir.Value | None
    weights: ir.Value | None
    result: ir.Value


@dataclass(frozen=True, eq=False, slots=True)
class Region:
    """A convex set of nodes that a rule proposes to run as one operator.

    `shape_nodes` compute shapes, and those of them that are `remade` masks of positions alone: copied, never moved.
    `inputs` and `outputs` are the operator's, in order, without constants small enough to specialise on; `positions`
    are inputs that count from 0 on along an axis (from the end), on the host or not: their sizes alone are read.
    """

    rule: str
    nodes: tuple[ir.Node, ...]
    shape_nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[ir.Value, ...]
    constants: tuple[ir.Value, ...] = ()
    kernel: str = "auto"
    opt_level: int = 1
    attentions: tuple[AttentionRoles, ...] = ()
    """Those that were recognised inside, whether this region's rule names them or not."""
    channels_last: bool = False
    """Whether its kernels keep images with the channels last, turned over where they come in and go out."""
    remade: tuple[ir.Node, ...] = ()
    positions: tuple[tuple[ir.Value, int, bool], ...] = ()

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(label(n) for n in self.nodes)


Fate = Literal["fused", "taken back", "turned down", "missed", "left"]
"""What became of a node: in a fusion; in one that was built and taken back; in a candidate that was not taken; near
what a rule describes; near none."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of the model as rules see it; `reads` are the positions of those it reads from, in the same list."""

    name: str
    operator: str
    fate: Fate
    reads: tuple[int, ...]


Stage = Literal["match", "plan", "score", "select", "emit", "build", "verify"]


@dataclass(frozen=True)
class Rejection:
    """Why a rule did not apply at a place, or a candidate was not taken."""

    rule: str
    node: str
    stage: Stage
    code: str
    expected: str
    found: str
    hint: str = ""
    progress: float = 0.0
    """How much of the rule held, 0 to 1: lines and conditions, lines by how rare in the model is what they name."""
    saving_us: float = 0.0
    """What it would save at all its places at most, beyond what is fused already; 0 where that cannot be said."""
    held: int = 0
    lines: int = 0
    """How many of its lines and conditions held, of how many; 0 for a rule that is not matched by them."""
    source: str = ""
    """File and line of the rule that was not met."""
    nodes: tuple[str, ...] = ()
    """What the rule would have taken at the first of its places: nodes that matched, and the one that did not."""
    matched: int = 0
    """How many of `nodes` had matched."""
    places: int = 1
    """At how many places the same stopped it."""
    part_of: tuple[str, ...] = ()
    """For a rule that is a mere part of others: those."""
    target: str = ""
    """The target it was turned down for, where the stage looks at targets."""
    covered_by: str = ""
    """The fusion, or the other meaning, that has these nodes already, or the nearer miss that concerns them too."""

    def __str__(self) -> str:
        target = f" on {self.target}" if self.target else ""
        return f"{self.rule} at {self.node}{target}: {self.code} expected {self.expected}, found {self.found}"

    @classmethod
    def of(cls, region: Region, stage: Stage, code: str, expected: str, found: str, hint: str, target: str) -> Self:
        """Why a region that matched wholly was not taken."""
        names = region.node_names
        return cls(
            region.rule,
            names[-1],
            stage,
            code,
            expected,
            found,
            hint,
            progress=1.0,
            nodes=names,
            matched=len(names),
            target=target,
        )


_OPERATOR_US = 0.1
"""What tips the scale where one operator is predicted to save as much as several: the host has less to do."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A region with its stages and its scores by target name; `targets` are those it pays on."""

    region: Region
    plan: Plan | None
    scores: Mapping[str, Score]
    targets: tuple[str, ...]
    forced: bool = False
    """Taken whatever the scores say, so as to leave as few operators as possible."""
    uncertain: bool = False
    """Not predicted to pay, by less than predictions are off."""

    def weight(self, target: str) -> float:
        """What the choice among overlapping candidates adds up."""
        if self.forced:
            return len(self.region.nodes) - 0.5
        if self.uncertain:
            return self.scores[target].gain_us + self.scores[target].uncertainty_us
        gain = max(self.scores[target].gain_us, 0.0)
        return max(gain - _OPERATOR_US, gain / 2)


@dataclass(frozen=True, eq=False)
class FusedOp:
    """One distinct operator of the output model: a model-local function, and the regions that call it."""

    name: str
    rule: str
    kernel: str
    function: ir.Function
    plan: Plan | None
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    calls: tuple[Candidate, ...]
    call_names: tuple[str, ...]
    """Names of the call nodes in the output model, in the order of `calls`."""
    targets: tuple[str, ...]

    @property
    def guards(self) -> Mapping[str, Guard]:
        """By the names of the calls that are under one."""
        calls = zip(self.call_names, self.calls, strict=True)
        return {name: s.guard for name, call in calls for s in call.scores.values() if s.guard is not None}


@dataclass(frozen=True)
class Source:
    """One generated file; `op` is the operator it implements, "" for a library's registration file."""

    target: str
    op: str
    filename: str
    text: str
    parts: int = 1
    """Of these FUSION_PART names the one that is compiled."""


@dataclass(frozen=True)
class Library:
    """A custom-op library on disk and the operators it implements."""

    target: str
    path: Path
    ops: tuple[str, ...]
    compiled: int = 0
    """How many sources had to be compiled (the rest came from the cache)."""
    seconds: float = 0.0
    compiler: str = ""
    """What the compiler says it is."""


@dataclass(frozen=True)
class Options:
    """What the user asked of `optimize`; the command line's options under the same names."""

    targets: tuple[str, ...] = ("auto",)
    rules: tuple[str, ...] = ()
    """Names of the fusion rules to use; empty means all."""
    rule_paths: tuple[Path, ...] = ()
    opt_level: int = 2
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dims: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Symbolic dimension -> (least, largest) value."""
    fixed_dims: Mapping[str, int] = field(default_factory=dict)
    """Symbolic dimension -> its size in the model that is written."""
    assume_constant: tuple[str, ...] = ()
    """Graph inputs that nobody overrides, so that their initializers are constants; "all" for every one that has."""
    inputs: Path | None = None
    """An .npz with an array per graph input (`NAME` or `in__NAME`), used to verify and to time."""
    decisions: Path | None = None
    """A report.json whose decisions are taken over: nothing is timed."""
    tuning: Path | None = None
    """A file of decisions that were measured, of which those for the model are taken over."""
    tune: bool = False
    """Whether to measure anew, and keep what is decided in `tuning`."""
    require_tuned: bool = False
    """Whether it is an error where `tuning` has nothing for the model."""
    remeasure: bool = False
    """Whether to time again what an earlier run on this machine has timed."""
    algebra: bool = True
    """Whether to write what a model computes with fewer stock operators, before anything is fused."""
    force: bool = False
    overwrite: bool = False
    """Whether an output may be replaced that was changed since it was written."""
    in_place: bool = False
    """Whether the output may take the place of the model that it is made from."""
    called: str = ""
    """What reports call the model where its path says nothing."""
    dry_run: bool = False
    debug: bool = False
    verify: bool = True
    require_verified: bool = False
    """Whether it is an error where the model, or a kernel, cannot be run here and compared."""
    jobs: int = 0
    """Compilers to run at once; 0 means one per core."""
    timeout: float | None = None
    """Seconds that a stage, a run of a model or of the compilers may take; by default what is plenty for the model."""
    max_memory: float | None = None
    """GiB of data that a process of ONNX Runtime or of a compiler may have; by default what the machine has."""

    @property
    def bounds(self) -> Mapping[str, tuple[int, int]]:
        """`dims`, by the names that the stages know sizes by."""
        return {symbol(name): ends for name, ends in self.dims.items()}
