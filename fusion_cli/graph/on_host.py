"""Which nodes ONNX Runtime's CUDA provider leaves to the CPU.

It gives up nodes that work on what Shape and Size leave on the host and on nothing but graph inputs and small constants
besides, none of them of 16 bits, whether or not the CPU has a kernel for them (GetCpuPreferredNodes in its
core/framework/fallback_cpu_capability.cc).
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from fusion_cli.operators.dtypes import DTYPES, NARROW

_MADE_ON_HOST = ("Shape", "Size")
_SMALL = 100
"""Elements of a constant that does not keep a node on the GPU."""
_NARROW = frozenset(DTYPES[name].onnx for name in NARROW)
_FURTHEST = 24
"""Nodes between those and the one asked about, of which all work on such values."""


def is_on_host(value: ir.Value) -> bool:
    """Whether a value is computed on the host."""
    return _is_on_host(value, _FURTHEST, {})


def all_on_host(read: Sequence[ir.Value]) -> list[ir.Value]:
    """Those made on the host of what a node reads, if they take it there with them; else none."""
    return _all_on_host(read, _FURTHEST, {})


def _all_on_host(read: Sequence[ir.Value], left: int, known: dict[ir.Value, bool]) -> list[ir.Value]:
    made = [v for v in read if not _is_given(v)]
    is_narrow = any(v.dtype in _NARROW for v in read)
    return made if not is_narrow and all(_is_on_host(v, left, known) for v in made) else []


def _is_given(value: ir.Value) -> bool:
    constant = value.const_value
    return value.is_graph_input() if constant is None else constant.size <= _SMALL


def _is_on_host(value: ir.Value, left: int, known: dict[ir.Value, bool]) -> bool:
    if value not in known:
        node = value.producer()
        if node is None or left == 0:
            return False
        made = node.op_type in _MADE_ON_HOST and not node.domain
        known[value] = made or bool(_all_on_host([v for v in node.inputs if v is not None], left - 1, known))
    return known[value]
