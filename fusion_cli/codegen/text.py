"""What both back ends need to turn a plan into source: names, comments, the shape program, the template environment."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import jinja2

from fusion_cli.codegen.expr import onnx_type
from fusion_cli.errors import TemplateError
from fusion_cli.planir.host_op import ShapeOp
from fusion_cli.planir.stages import Plan, _Kernel
from fusion_cli.resources import resource_dir
from fusion_cli.types import TensorSpec

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,200}")


@dataclass(frozen=True)
class Port:
    """An input or output of an operator as the ABI sees it; `host` inputs stay in CPU memory on every provider."""

    dtype: str
    onnx_type: int
    host: bool


def identifier(text: str) -> str:
    """`text` if it can be a C identifier; names of operators come from rules, so this is checked, not trusted."""
    if not _IDENTIFIER.fullmatch(text) or "__" in text:
        raise TemplateError(f"{text!r} cannot be the name of an operator", hint="use letters, digits and _")
    return text


def comment(text: str) -> str:
    """`text` made harmless inside a C++ comment: printable ASCII, one line, no comment ends, no line splices."""
    plain = "".join(c if " " <= c <= "~" else "?" for c in text)
    return plain.replace("*/", "* /").replace("/*", "/ *").replace("\\", "/").replace("??", "? ?")[:200]


def ports(specs: Sequence[TensorSpec], host: Sequence[int] = ()) -> list[Port]:
    return [Port(s.dtype, onnx_type(s.dtype), i in host) for i, s in enumerate(specs)]


def ints(values: Sequence[int]) -> str:
    """A literal integer vector."""
    return "Ints{" + ", ".join("INT64_MIN" if v == -(2**63) else str(v) for v in values) + "}"


def int_lists(*lists: Sequence[int]) -> str:
    """Integer vectors as arguments, where the namespace is another."""
    return ", ".join(f"fusion::{ints(values)}" for values in lists)


def flag(value: bool) -> str:
    """A literal truth value."""
    return "true" if value else "false"


def host_lines(plan: Plan) -> list[str]:
    """The shape program as C++ statements defining h0, h1, ... Dimensions of inputs are held to what the plan knows of
    them: whoever writes the model again may have changed what the call reads."""
    known = {t.slot: [d if isinstance(d, int) else -1 for d in t.shape] for t in plan.tensors if t.role == "input"}
    return [f"const Ints h{i} = {_host_value(op, known)};" for i, op in enumerate(plan.shape_program)]


def _host_value(op: ShapeOp, known: Mapping[int, Sequence[int]]) -> str:
    if op.kind == "dims" and op.ints[0] in known:
        return f"run.dims({op.ints[0]}, {ints(known[op.ints[0]])})"
    if op.kind in ("dims", "read"):
        return f"run.{op.kind}({op.ints[0]})"
    if op.kind == "const":
        return ints(op.ints)
    args = [f"h{a}" for a in op.args]
    if op.kind in _WITH_LITERALS:
        args.append(ints(op.ints))
    return f"host::{op.kind}({', '.join(args)})"


_WITH_LITERALS = frozenset(
    ("gemm", "permute", "reshape", "reduce", "slice", "take", "put", "unsqueeze", "squeeze", "flatten", "conv", "fill")
)


def space_shape(plan: Plan, stage: _Kernel) -> tuple[int | str, ...]:
    """What is known at compile time of a pointwise or rowwise stage's iteration space (unknown entries: "?")."""
    shapes = [plan.viewed(o) for o in stage.operands] + [plan.tensors[s.tensor].shape for s in stage.stores]
    rank = max((len(s) for s in shapes), default=0)
    result: list[int | str] = []
    for axis in range(rank):
        dims = [s[axis - rank] for s in shapes if len(s) >= rank - axis]
        numbers = [d for d in dims if isinstance(d, int) and d != 1]
        symbols = [d for d in dims if isinstance(d, str)]
        result.append(numbers[0] if numbers else symbols[0] if symbols else 1)
    return tuple(result)


def ancestry(plan: Plan, tensors: Iterable[int]) -> list[int]:
    """These tensors and those in whose memory they lie; a tensor comes after what it is an alias or a view of."""
    found: set[int] = set()
    for tensor in tensors:
        found.add(tensor)
        while not plan.tensors[tensor].is_own:
            tensor = plan.tensors[tensor].slot
            found.add(tensor)
    return sorted(found)


def is_unit(plan: Plan, tensor: int, axis: int) -> bool:
    """Whether neighbours along an axis of a tensor are known to be neighbours in memory."""
    found = plan.tensors[tensor]
    if found.role == "view":
        step = plan.shape_program[found.steps]
        return step.kind == "const" and step.ints[axis] == 1 and is_unit(plan, found.slot, axis)
    last = all(d == 1 for d in found.shape[axis + 1 :])
    if found.role == "alias" and plan.tensors[found.slot].role == "view":
        return last and is_unit(plan, found.slot, len(plan.tensors[found.slot].shape) - 1)
    return last


@lru_cache(maxsize=16)
def _environment(folders: tuple[str, ...]) -> jinja2.Environment:
    """That of templates in these folders. It keeps them compiled, which takes longer than to render them, and compiles
    again those whose files have changed."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(backend: str, template_paths: Sequence[Path], name: str, variables: dict[str, object]) -> str:
    """A template of a back end ("cpu" or "cuda"), rendered; the user's folders come before the bundled ones. Raises
    TemplateError with the template's file and line."""
    bundled = resource_dir("templates")
    env = _environment((*map(str, template_paths), str(bundled / backend), str(bundled)))
    try:
        return env.get_template(name).render(variables)
    except jinja2.TemplateNotFound as e:
        raise TemplateError(f"there is no template {e.name}", hint="a rule's kernel names a template beside it") from e
    except jinja2.TemplateSyntaxError as e:
        raise TemplateError(e.message or "syntax error", where=f"{e.filename or e.name}:{e.lineno}") from e
    except (jinja2.TemplateRuntimeError, TypeError, ValueError, LookupError, ArithmeticError) as e:
        raise TemplateError(f"{type(e).__name__}: {e}", where=_place(e, name)) from e


def _place(error: BaseException, name: str) -> str:
    """The innermost template line of a traceback."""
    lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.endswith(".jinja")]
    return f"{lines[-1].filename}:{lines[-1].lineno}" if lines else name
