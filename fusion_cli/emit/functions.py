"""Which functions a generated file needs: stages that are equal but for their tensors call one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from fusion_cli.codegen.cpu_parts import CpuStage
from fusion_cli.codegen.cuda_parts import CudaStage

View = TypeVar("View", bound=CpuStage | CudaStage)


def named(views: Sequence[View]) -> tuple[list[View], list[View]]:
    """The distinct functions, with the nodes of all stages that call them; and every stage with its function's name."""
    functions: list[View] = []
    calls: list[View] = []
    for view in views:
        if view not in functions:
            functions.append(replace(view, name=f"stage_{len(functions)}", nodes=()))
        place = functions.index(view)
        nodes = tuple(dict.fromkeys([*functions[place].nodes, *view.nodes]))
        functions[place] = replace(functions[place], nodes=nodes)
        calls.append(replace(view, name=functions[place].name))
    return functions, calls
