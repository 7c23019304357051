"""Kernel families: one module each, asked by the score, by emit and by `explain` alike.

A new family is a module here, a template in `templates/`, the headers that it includes, and a line in `FAMILIES`.
"""

from __future__ import annotations

from fusion_cli.kernels.attention import AttentionFamily
from fusion_cli.kernels.columns import ColumnsFamily
from fusion_cli.kernels.conv_last import ChannelsLastFamily
from fusion_cli.kernels.conv_rows import RowsFamily
from fusion_cli.kernels.convolution import ConvolutionFamily
from fusion_cli.kernels.depthwise import DepthwiseFamily
from fusion_cli.kernels.family import Family, Kind, Schedule, Sized
from fusion_cli.kernels.linear import LinearFamily
from fusion_cli.kernels.moments import MomentsFamily
from fusion_cli.kernels.pointwise import PointwiseFamily
from fusion_cli.kernels.pool import PoolFamily
from fusion_cli.kernels.rowwise import RowwiseFamily
from fusion_cli.kernels.transpose import TransposeFamily
from fusion_cli.planir.stages import Plan, Stage

__all__ = ["FAMILIES", "Family", "Kind", "Schedule", "Sized", "family_of", "kind_of"]

FAMILIES: tuple[Family, ...] = (
    TransposeFamily(),
    PointwiseFamily(),
    ColumnsFamily(),
    RowwiseFamily(),
    RowsFamily(),
    LinearFamily(),
    AttentionFamily(),
    DepthwiseFamily(),
    ChannelsLastFamily(),
    PoolFamily(),
    MomentsFamily(),
    ConvolutionFamily(),
)


def family_of(plan: Plan, stage: Stage, kind: Kind) -> Family:
    """The family that runs a stage."""
    return next(f for f in FAMILIES if f.accepts(plan, stage, kind))


def kind_of(target: str) -> Kind | None:
    """The kind of kernels that a target of this name has; None for the portable one, which has none."""
    return None if target == "portable" else "cpu" if target.startswith(("cpu", "amx")) else "cuda"
