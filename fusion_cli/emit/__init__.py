"""Source code for operators: a plan (or a user's own template) rendered for one target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from fusion_cli.codegen import expr
from fusion_cli.codegen import text as common
from fusion_cli.codes import emit as codes
from fusion_cli.emit import cpu, cuda
from fusion_cli.errors import TemplateError, Unsupported
from fusion_cli.types import FusedOp, Source, Target

__all__ = ["emit", "emit_registration"]

_SUFFIX = {"cpu": ".cc", "cuda": ".cu"}
_PROVIDER = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}
DOMAIN = "fusion"


def emit(op: FusedOp, target: Target, *, debug: bool = False, template_paths: Sequence[Path] = ()) -> Source:
    """The source file of `op` for `target`.

    An operator whose kernel is "auto" is generated from its plan; any other kernel is the template of that name in
    one of `template_paths`. Raises Unsupported where the target has no code for it, TemplateError for a template
    that does not render.
    """
    suffix = _suffix(target)
    variables = _common(op, target, debug)
    name = "region"
    if op.kernel == "auto":
        if op.plan is None:
            raise Unsupported(codes.NO_PLAN, "a region with a plan", op.rule)
        variables |= _backend(target).context(op.plan)
    else:
        name = _template_name(op.kernel)
        variables |= _body(op)
    env = common.environment(target.kind, template_paths)
    return Source(target.name, op.name, op.name + suffix, common.render(env, f"{name}{suffix}.jinja", variables))


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
        variables |= cuda.registration(target)
    env = common.environment(target.kind, template_paths)
    text = common.render(env, "ort/register.cc.jinja", variables)
    return Source(target.name, "", f"register_{target.kind}.cc", text)


def _suffix(target: Target) -> str:
    if target.kind not in _SUFFIX:
        raise Unsupported(codes.NO_PLAN, "a target with kernels", target.name)
    return _SUFFIX[target.kind]


def _backend(target: Target) -> ModuleType:
    return cpu if target.kind == "cpu" else cuda


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


def _template_name(kernel: str) -> str:
    """A kernel's template name; only plain names, so that no rule reaches outside the template folders."""
    if not kernel.replace("_", "").replace("-", "").isalnum():
        raise TemplateError(f"{kernel!r} is not a template name", hint="letters, digits, - and _")
    return kernel


def _body(op: FusedOp) -> dict[str, Any]:
    """What a user's template sees of the operator's body, beside the common variables."""
    nodes = [
        {
            "op_type": common.comment(node.op_type),
            "attributes": {
                common.comment(a.name): _attribute(a.value) for a in node.attributes.values() if not a.is_ref()
            },
            "inputs": [None if v is None else common.comment(v.name or "") for v in node.inputs],
            "outputs": [common.comment(v.name or "") for v in node.outputs],
        }
        for node in op.function
    ]
    return {
        "input_specs": [{"dtype": s.dtype, "shape": s.shape, "type": expr.storage(s.dtype)} for s in op.inputs],
        "output_specs": [{"dtype": s.dtype, "shape": s.shape, "type": expr.storage(s.dtype)} for s in op.outputs],
        "body": nodes,
        "literal": expr.literal,
    }


def _attribute(value: object) -> object:
    """An attribute as a template may print it: numbers, number tuples, small tensors as number lists, safe text."""
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, str | bytes):
        return common.comment(value if isinstance(value, str) else value.decode("ascii", "replace"))
    if isinstance(value, tuple | list):
        return [_attribute(v) for v in value]
    numpy = getattr(value, "numpy", None)
    if numpy is None:
        return None
    array = numpy()
    return array.tolist() if array.size <= 1024 else None
