"""Source code for operators: a plan (or a user's own template) rendered for one target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fusion_cli.codegen import text as common
from fusion_cli.codes import emit as codes
from fusion_cli.emit.generated import from_plan
from fusion_cli.errors import Unsupported
from fusion_cli.kernels.user_template import SUFFIX, find_template, variables_of
from fusion_cli.types import FusedOp, Source, Target
from fusion_cli.version import DOMAIN

__all__ = ["emit", "emit_registration"]

_PROVIDER = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def emit(op: FusedOp, target: Target, *, debug: bool = False, template_paths: Sequence[Path] = ()) -> Source:
    """The source file of `op` for `target`.

    An operator whose kernel is "auto" is generated from its plan; any other kernel, which has none, is the template of
    that name in one of `template_paths`. Raises Unsupported where the target has no code for it, TemplateError for a
    template that does not render.
    """
    suffix = _suffix(target)
    variables = _common(op, target, debug)
    name = f"region{suffix}.jinja"
    if op.kernel == "auto":
        if op.plan is None:
            raise Unsupported(codes.NO_PLAN, "a region with a plan", op.rule)
        variables |= from_plan(op.plan, target)
    else:
        name = find_template(op.kernel, target, template_paths)
        variables |= variables_of(op)
    text = common.render(target.kind, template_paths, name, variables)
    return Source(target.name, op.name, op.name + suffix, text, len(variables.get("parts", ())) or 1)


def emit_registration(target: Target, ops: Sequence[FusedOp], *, template_paths: Sequence[Path] = ()) -> Source:
    """The registration file of a library that implements `ops` (in order, each once)."""
    _suffix(target)
    variables: dict[str, Any] = {
        "target": common.comment(target.name),
        "arch": target.arch,
        "backend": target.kind,
        "domain": DOMAIN,
        "ops": [common.identifier(op.name) for op in ops],
    }
    if target.kind == "cuda":
        # The compute capability that the library's code is for: variables of templates/cuda/guard.inc.jinja.
        number = target.arch.removeprefix("sm_")
        digits = number.rstrip("a")
        variables |= {"major": int(digits[:-1]), "minor": int(digits[-1]), "exact": number.endswith("a")}
    text = common.render(target.kind, template_paths, "ort/register.cc.jinja", variables)
    return Source(target.name, "", f"register_{target.kind}.cc", text)


def _suffix(target: Target) -> str:
    if target.kind not in SUFFIX:
        raise Unsupported(codes.NO_PLAN, "a target with kernels", target.name)
    return SUFFIX[target.kind]


def _common(op: FusedOp, target: Target, debug: bool) -> dict[str, Any]:
    host = op.plan.host_inputs if op.plan is not None else ()
    names = [n for call in op.calls[:1] for n in call.region.node_names]
    return {
        "op": common.identifier(op.name),
        "rule": common.comment(op.rule),
        "nodes": [common.comment(n) for n in names],
        "ep": _PROVIDER[target.kind],
        "arch": target.arch,
        "inputs": common.ports(op.inputs, host),
        "outputs": common.ports(op.outputs),
        "plan": op.plan,
        "debug": debug,
        "host_program": common.host_lines(op.plan) if op.plan is not None else [],
    }
