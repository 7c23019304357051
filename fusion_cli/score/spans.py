"""What runs in a row: how long the host takes for it and how long the device, and which of the two is the time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from fusion_cli.costs import Terms
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.devices.work import Work

_SEEN = 0.1
"""Share of the host's time that counts although a GPU is busy meanwhile."""


@dataclass(frozen=True)
class Span:
    """Microseconds of the host, and the device's by terms."""

    host: float
    device: Terms

    def __add__(self, other: Self) -> Self:
        return type(self)(self.host + other.host, self.device + other.device)

    def terms(self, profile: DeviceProfile) -> Terms:
        """The time: the longer of the two where the host runs ahead of the device, else both."""
        if not profile.overlapped:
            return self.device + Terms(dispatch=self.host)
        return self.device if self.device.total >= self.host else Terms(dispatch=self.host)


def _alone(span: Span, profile: DeviceProfile) -> Terms:
    """The time of a node wherever in a model it is: whether others keep a GPU busy while the host is at it is not
    known, so that some of what the host does then counts, and of two ways with equal kernels that with fewer nodes is
    the faster."""
    hidden = profile.overlapped and span.device.total >= span.host
    return span.terms(profile) + Terms(dispatch=_SEEN * span.host if hidden else 0.0)


def operator_terms(works: Sequence[Work], profile: DeviceProfile) -> Terms:
    """The time of these kernels, run by one operator of ours."""
    return _alone(operator_span(works, profile), profile)


def nodes_terms(works: Sequence[Work], profile: DeviceProfile) -> Terms:
    """The time of these kernels, each as a node of its own."""
    return sum((_alone(nodes_span([w], profile), profile) for w in works), Terms())


def nodes_span(works: Sequence[Work], profile: DeviceProfile) -> Span:
    """These kernels, each as a node of its own."""
    return Span(profile.node_us * len(works), _device(works, profile))


def operator_span(works: Sequence[Work], profile: DeviceProfile) -> Span:
    """These kernels, run by one operator of ours."""
    return Span(profile.op_us + profile.kernel_us * (len(works) - 1), _device(works, profile))


def _device(works: Iterable[Work], profile: DeviceProfile) -> Terms:
    return sum((w.terms(profile) for w in works), Terms())
