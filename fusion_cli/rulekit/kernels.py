"""The regions of a rule as CPU kernels: planned, outlined, compiled into one library, compared with ONNX Runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import onnx_ir as ir

from fusion_cli.build import build, find_compiler
from fusion_cli.emit import emit, emit_registration
from fusion_cli.errors import BuildError, FusionError, Unsupported
from fusion_cli.explain.near_misses import near_misses
from fusion_cli.language.lint.source import rule_folder
from fusion_cli.match import Rule, RuleSet, find_regions
from fusion_cli.outline import inline_back, outline
from fusion_cli.plan import Planner
from fusion_cli.rulekit.components import Component, model_of
from fusion_cli.rulekit.find import ready, region_of
from fusion_cli.sessions import Array, CannotRun
from fusion_cli.sessions.process import Process
from fusion_cli.types import Candidate, FusedOp, Region, Source, Target
from fusion_cli.verify import largest_error, limit

_CPU = Target("cpu", "cpu")


@dataclass(frozen=True)
class Kernel:
    """What became of one component: `code` is "" for a kernel, "-" for one that was not built, or a reason; `error` is
    how far its numbers are off, relative to `allowed`."""

    code: str
    detail: str = ""
    error: float | None = None
    allowed: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.code and self.error is not None and self.error <= self.allowed


def try_kernels(components: Sequence[Component], rules: RuleSet, rule: Rule, most: int) -> dict[str, Kernel]:
    """By the components' prefixes: up to `most` distinct kernels are built (none without a compiler), the others only
    generated."""
    most = 0 if find_compiler(_CPU) is None else most
    proto = model_of(components)
    model = ready(proto, fold=True)
    found = find_regions(model, rules)
    missed = near_misses(found).rejections
    results: dict[str, Kernel] = {}
    candidates: dict[str, Candidate] = {}
    planner = Planner()
    for component in components:
        region = region_of(model, found, missed, rule.name, component.outputs)
        if isinstance(region, Region):
            try:
                candidates[component.prefix] = Candidate(region, planner.plan(region), {}, ("cpu",), forced=True)
            except Unsupported as e:
                results[component.prefix] = _unsupported(e)
    prefixes = {id(c): prefix for prefix, c in candidates.items()}
    built: dict[FusedOp, Source] = {}
    own: set[str] = set()
    for op in outline(model, list(candidates.values())):
        mine = [prefixes[id(c)] for c in op.calls]
        try:
            source = emit(op, _CPU, template_paths=[rule_folder(rule.path)])
        except Unsupported as e:
            results |= dict.fromkeys(mine, _unsupported(e))
        except FusionError as e:
            results |= dict.fromkeys(mine, Kernel("error", str(e)))
        else:
            if len(built) < most:
                built[op] = source
                own.update(mine)
            else:
                results |= dict.fromkeys(mine, Kernel("-"))
    names = {op.name for op in built}
    inline_back(model, lambda name: name not in names)
    if own:
        feeds = {name: array for c in components for name, array in c.feeds().items()}
        results |= _compared([c for c in components if c.prefix in own], proto, model, feeds, built)
    return results


def _unsupported(reason: Unsupported) -> Kernel:
    return Kernel(reason.code, f"expected {reason.expected}, found {reason.found}")


def _compared(
    components: Sequence[Component],
    proto: onnx.ModelProto,
    model: ir.Model,
    feeds: Mapping[str, Array],
    built: Mapping[FusedOp, Source],
) -> dict[str, Kernel]:
    """The fused model with its kernels against the model as it was made."""
    with tempfile.TemporaryDirectory(prefix="fusion-rules-") as folder, Process() as process:
        try:
            library = build([*built.values(), emit_registration(_CPU, list(built))], _CPU, Path(folder))
            reference = process.open(proto.SerializeToString(), use="reference").run(feeds)
            found = process.open(ir.to_proto(model).SerializeToString(), libraries=[library.path]).run(feeds)
        except (BuildError, CannotRun) as e:
            return dict.fromkeys((c.prefix for c in components), Kernel("error", str(e)))
    allowed = limit(str(v.dtype) for v in reference.values()).relative
    errors = {c.prefix: max(largest_error(reference[o], found[o]) for o in c.outputs) for c in components}
    return {prefix: Kernel("", "", error, allowed) for prefix, error in errors.items()}
