"""How long a whole model is predicted to take, with its fusions and without, node by node and as a CUDA graph."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from fusion_cli.costs import Device, Forecast, Terms
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.errors import Unsupported
from fusion_cli.score.baseline import at_run_time, for_model, total_work
from fusion_cli.score.prediction import own_work
from fusion_cli.score.spans import Span, nodes_span, operator_span
from fusion_cli.score.vendor_fusions import fused_kernels
from fusion_cli.types import Candidate


def forecasts(
    graph: ir.Graph, chosen: Collection[Candidate], profile: DeviceProfile, sizes: Mapping[str, int]
) -> tuple[Forecast, ...]:
    """The model as ONNX Runtime runs it and as it runs with the candidates that are for the profile's target, each way
    to run it on that device. None where a candidate has no prediction at these sizes, or the graph has bodies, for
    nobody knows how often they run, or the target has no kernels."""
    if profile.advisory or any(True for _ in graph.subgraphs()):
        return ()
    own = [c for c in chosen if profile.target in c.targets]
    try:
        spans = model_span(graph, (), profile, sizes), model_span(graph, own, profile, sizes)
    except Unsupported:
        return ()
    return tuple(
        Forecast(profile.target, device, *(_run(s, device, profile) for s in spans)) for device in _ways(profile)
    )


def model_span(graph: ir.Graph, fused: Collection[Candidate], profile: DeviceProfile, sizes: Mapping[str, int]) -> Span:
    """One run of the graph with these of its regions as operators of ours. Raises Unsupported where one cannot run."""
    gone = {n for c in fused for n in (*c.region.nodes, *_private(c))}
    profile = for_model(profile, graph)
    left = fused_kernels([n for n in at_run_time(graph) if n not in gone], profile)
    span = nodes_span(total_work(left, profile, sizes), profile)
    for candidate in fused:
        span += operator_span(own_work(candidate.region, candidate.plan, profile, sizes), profile)
    return span


def _private(candidate: Candidate) -> Sequence[ir.Node]:
    """Shape arithmetic that goes with the region."""
    own = {*candidate.region.nodes, *candidate.region.shape_nodes}
    return [n for n in candidate.region.shape_nodes if all(u in own for v in n.outputs for u, _ in v.uses())]


def _ways(profile: DeviceProfile) -> tuple[Device, ...]:
    return ("cuda", "cuda graph") if profile.overlapped else ("cpu",)


def _run(span: Span, device: Device, profile: DeviceProfile) -> Terms:
    host = profile.graph_us if device == "cuda graph" else profile.run_us + span.host
    return replace(span, host=host).terms(profile)
