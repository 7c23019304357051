"""What viewers of the written model show beside a call and its function."""

from __future__ import annotations

from itertools import groupby

from fusion_cli.types import Candidate, Region

_SHOWN = 12


def of_function(candidate: Candidate) -> str:
    """What the operator is, and who runs it."""
    region, plan = candidate.region, candidate.plan
    stages = [region.kernel] if plan is None else [type(stage).__name__.lower() for stage in plan.stages]
    counts = [(name, len(list(same))) for name, same in groupby(stages)]
    kernels = ", ".join(f"{count} x {name}" if count > 1 else name for name, count in counts)
    return (
        f"A fusion of the rule {region.rule}; its kernels: {kernels}. They run with the library of fusion-cli that "
        f"goes with this model; without it ONNX Runtime runs the nodes of this function."
    )


def of_call(region: Region) -> str:
    """The nodes of the original model that the call stands for."""
    names = region.node_names
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"In place of {', '.join(names[:_SHOWN])}{more}"
