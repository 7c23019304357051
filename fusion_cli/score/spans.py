"""What runs in a row: how long the host takes for it and how long the device, and which of the two is the time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from fusion_cli.costs import Terms
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.devices.work import Work, launches
from fusion_cli.kernels.family import REPLAYED


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


def operator_terms(works: Sequence[Work], profile: DeviceProfile) -> Terms:
    """The time of these kernels, run by one operator of ours."""
    return operator_span(works, profile).terms(profile)


def nodes_terms(works: Sequence[Work], profile: DeviceProfile) -> Terms:
    """The time of these kernels, each as a node of its own, wherever in a model they are: a short one takes at least
    as long as its dispatch, for it cannot be told whether others keep the device busy meanwhile."""
    return sum((nodes_span([w], profile).terms(profile) for w in works), Terms())


def nodes_span(works: Sequence[Work], profile: DeviceProfile) -> Span:
    """These kernels, each as a node of its own."""
    return Span(profile.node_us * len(works), _device(works, profile))


def operator_span(works: Sequence[Work], profile: DeviceProfile) -> Span:
    """These kernels, run by one operator of ours, which lets a graph of them take no longer than a few launches."""
    count = launches(works)
    more = (min(count, REPLAYED) if profile.overlapped else count) - 1
    return Span(profile.op_us + profile.kernel_us * more, _device(works, profile))


def _device(works: Iterable[Work], profile: DeviceProfile) -> Terms:
    return sum((w.terms(profile) for w in works), Terms())
