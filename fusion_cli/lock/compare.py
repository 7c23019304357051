"""What of a lock does not hold any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from fusion_cli.lock import Lock, LockedFusion
from fusion_cli.report.readable import counted

Kind = Literal["fusion-lost", "near-miss", "error", "slower"]
TITLES: Mapping[Kind, str] = {
    "fusion-lost": "a fusion is lost",
    "near-miss": "a rule nearly matches where none did",
    "error": "an output is less exact than allowed",
    "slower": "the model is slower than allowed",
}


@dataclass(frozen=True)
class Limits:
    """What may change. `slowdown`: how many times slower, against the original, than locked; `fused`: how many of the
    locked places must be fused, all if None; `error`: of outputs and kernels, by their own tolerances if None."""

    slowdown: float = 1.1
    fused: int | None = None
    error: float | None = None


@dataclass(frozen=True)
class Finding:
    """Something that does not hold: of which rule, or "" where of none; what and why; and at which nodes."""

    kind: Kind
    subject: str
    text: str
    rule: str = ""
    nodes: tuple[str, ...] = ()
    reason: str = ""


def lost_places(locked: Lock, found: Lock) -> Iterator[tuple[LockedFusion, tuple[str, ...]]]:
    """The places that were fused and are not, for one of the targets at least. One is the same where its rule and nodes
    are, or if nodes are called differently, where as many are of the same operator."""
    by_operator = {(f.operator, t): len(f.places) for f in found.fusions for t in f.kernels}
    same = {(f.rule, nodes, t) for f in found.fusions for nodes in f.places for t in f.kernels}
    for fusion in locked.fusions:
        lost: dict[tuple[str, ...], None] = {}
        for target in fusion.kernels:
            gone = [nodes for nodes in fusion.places if (fusion.rule, nodes, target) not in same]
            missing = len(fusion.places) - by_operator.get((fusion.operator, target), 0)
            lost |= dict.fromkeys(gone[: max(0, missing)])
        yield from ((fusion, nodes) for nodes in lost)


def compare(
    locked: Lock, found: Lock, limits: Limits, reasons: Mapping[tuple[str, ...], str]
) -> tuple[list[Finding], list[str]]:
    """What is out of its limits, and what else is to be known. `reasons` say of lost places, by their nodes, why they
    are."""
    lost = list(lost_places(locked, found))
    fused = locked.places - len(lost)
    findings = [_lost(fusion, nodes, reasons.get(nodes, "")) for fusion, nodes in lost]
    notes = []
    if findings and limits.fused is not None and fused >= limits.fused:
        notes += [f"{f.text}: {f.reason}" for f in findings]
        findings = []
    gone = {name for _, nodes in lost for name in nodes}
    findings += [*_near_misses(locked, found, gone), *_errors(found, limits), *_slower(locked, found, limits)]
    return findings, [*notes, *_changes(locked, found)]


def _lost(fusion: LockedFusion, nodes: tuple[str, ...], reason: str) -> Finding:
    text = f"{fusion.rule} no longer takes {counted(len(nodes), 'node')} at {nodes[-1]}"
    return Finding("fusion-lost", f"{fusion.operator} at {nodes[-1]}", text, fusion.rule, nodes, reason)


def _near_misses(locked: Lock, found: Lock, gone: set[str]) -> Iterator[Finding]:
    """Those of lost places are told with them."""
    known = {miss.kind: miss.places for miss in locked.near_misses}
    for miss in found.near_misses:
        more = miss.places - known.get(miss.kind, 0)
        if more > 0 and miss.node not in gone:
            text = f"{miss.rule} nearly matches at {miss.node} ({counted(more, 'place')} more than locked)"
            reason = f"{miss.code} expected {miss.expected}, found {miss.found}"
            yield Finding("near-miss", f"{miss.rule} at {miss.node}", text, miss.rule, (miss.node,), reason)


def _errors(found: Lock, limits: Limits) -> Iterator[Finding]:
    """Beyond their own tolerances nothing is written; here they may have to be smaller."""
    if limits.error is None:
        return
    kernels = {f"{f.operator} on {t}": k.error for f in found.fusions for t, k in f.kernels.items()}
    for name, error in {**{f"output {name}": e for name, e in found.errors.items()}, **kernels}.items():
        if error is not None and error > limits.error:
            text = f"{name} has an error of {error:.1e}, {limits.error:.1e} is allowed"
            yield Finding("error", name, text)


def _slower(locked: Lock, found: Lock, limits: Limits) -> Iterator[Finding]:
    """Slower by more than is allowed, and than the times vary."""
    if locked.speed is None or found.speed is None or locked.speed.device != found.speed.device:
        return
    least = locked.speed.ratio / limits.slowdown
    if found.speed.high < least:
        now = f"{found.speed.ratio:.2f}x ({found.speed.low:.2f} to {found.speed.high:.2f}) of the original's speed"
        text = f"{now}, it was {locked.speed.ratio:.2f}x; at least {least:.2f}x is allowed"
        yield Finding("slower", f"speed on {found.speed.device}", text)


def _changes(locked: Lock, found: Lock) -> Iterator[str]:
    """What is different and may be so."""
    if found.model_sha256 != locked.model_sha256:
        counts = {op: found.operators.get(op, 0) - n for op, n in locked.operators.items()}
        counts |= {op: n for op, n in found.operators.items() if op not in locked.operators}
        changed = ", ".join(f"{n:+d} {op}" for op, n in sorted(counts.items()) if n)
        yield f"the model changed: {changed or 'the same operators, other weights, names or attributes'}"
    both = locked.versions.keys() & found.versions.keys()  # nothing may be left for a compiler to do
    for name in sorted(v for v in both if locked.versions[v] != found.versions[v]):
        yield f"{name}: {locked.versions[name]} -> {found.versions[name]}"
    if locked.machine != found.machine:
        yield f"another machine: {locked.machine} -> {found.machine}"
    if locked.speed is not None and found.speed is None:
        yield "not timed here, so nothing is said of the speed"
    before = {(f.operator, t): k.source for f in locked.fusions for t, k in f.kernels.items()}
    for fusion in found.fusions:
        for target, kernel in fusion.kernels.items():
            if before.get((fusion.operator, target), kernel.source) != kernel.source:
                yield f"the source of {fusion.operator} for {target} changed"
            elif (fusion.operator, target) not in before:
                yield f"{fusion.rule} is now operator {fusion.operator} for {target}"
