"""What makes two regions the same operator: equal bodies and equal kernels, whatever the names."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterable
from typing import Any

import onnx_ir as ir

from fusion_cli.plan import Plan
from fusion_cli.plan.memo import attribute_text
from fusion_cli.types import Candidate

DIGITS = 8


class Digests:
    """Names operators; the text of a plan that several regions share is made once."""

    def __init__(self) -> None:
        self._plans: dict[int, str] = {}

    def digest(self, candidate: Candidate, body: ir.Graph) -> str:
        """A short hexadecimal name for the operator."""
        region = candidate.region
        # A template may look at the results' shapes; a plan says what is known of them.
        results = _types(region.outputs) if candidate.plan is None else self._plan_text(candidate.plan)
        parts = [region.kernel, _body_text(body), results]
        return hashlib.sha256(_numbered("\n".join(parts)).encode()).hexdigest()[:DIGITS]

    def _plan_text(self, plan: Plan) -> str:
        if id(plan) not in self._plans:
            self._plans[id(plan)] = str(_anonymous(plan))
        return self._plans[id(plan)]


def _body_text(body: ir.Graph) -> str:
    lines = [_types(body.inputs)]
    for node in body:
        inputs = ",".join("" if v is None else str(v.name) for v in node.inputs)
        outputs = ",".join(str(v.name) for v in node.outputs)
        attributes = ";".join(f"{k}={attribute_text(a)}" for k, a in sorted(node.attributes.items()))
        lines.append(f"{outputs}={node.domain}.{node.op_type}({inputs}){attributes}")
    return "\n".join(lines)


def _types(values: Iterable[ir.Value]) -> str:
    return "\n".join(f"{v.dtype}{list(v.shape) if v.shape is not None else '?'}" for v in values)


def _anonymous(value: Any) -> Any:
    """The plan without what only names things for the reader of generated source."""
    if isinstance(value, tuple):
        return tuple(_anonymous(v) for v in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = sorted(f.name for f in dataclasses.fields(value) if f.name not in ("nodes", "name"))
        return (type(value).__name__, tuple((name, _anonymous(getattr(value, name))) for name in fields))
    return value


_SYMBOL = re.compile(r"'[^']*'|SymbolicDim\([^()]*\)")


def _numbered(text: str) -> str:
    """Symbols by order of appearance: layers whose dimensions are named differently are still equal."""
    seen: dict[str, str] = {}
    return _SYMBOL.sub(lambda m: seen.setdefault(m[0], f"s{len(seen)}"), text)
