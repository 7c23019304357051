"""What `benchmarks.gpu_profile` found, as a Markdown page and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kept_page import keep_found
from benchmarks.nsight import mib, short
from benchmarks.tally import table

_REASONS = 3
"""Of a kernel's warps, the foremost, that are shown."""
_HEAD = (
    "kernel",
    "us",
    "read, MiB",
    "written, MiB",
    "memory",
    "tensor cores",
    "issue",
    "warps",
    "cycles between instructions",
)


@dataclass(frozen=True)
class Launch:
    """A launch by itself. Shares are percent: of the memory's bandwidth, of the cycles in which a multiprocessor's
    tensor cores work or a scheduler issues an instruction, and of the warps that a multiprocessor may hold. `stalls`
    are the cycles that a warp spends for each reason between two instructions, the most first."""

    name: str
    us: float
    read: int
    written: int
    memory: float
    tensor: float
    issue: float
    warps: float
    stalls: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Profile:
    """One run of what was `made` of a model or of a kernel's case."""

    id: str
    made: str
    date: str
    device: str
    launches: tuple[Launch, ...]


def write_page(profile: Profile, folder: Path) -> Path:
    """Write `gpu-profile-DEVICE.md` and `.json` into `folder`, with the others that are there already; returns the
    path of the page."""
    return keep_found("gpu-profile", profile, ("id", "made"), folder, page)


def page(profiles: Sequence[Profile]) -> str:
    """The Markdown page: a table of launches for each."""
    parts = [
        f"# What kernels wait for on {profiles[0].device}",
        "Made by `python -m benchmarks.gpu_profile`, from Nsight Compute, which runs each kernel by itself. *memory*:"
        " of its bandwidth. *tensor cores*, *issue*: of the cycles in which a multiprocessor's tensor cores work and a"
        " scheduler issues an instruction. *warps*: of those that a multiprocessor may hold. *cycles between"
        " instructions*: what a warp spends most of them for.",
    ]
    for profile in profiles:
        parts += [f"## {profile.id}, {profile.made}, {profile.date}", table(list(_HEAD), map(_row, profile.launches))]
    return "\n\n".join(parts) + "\n"


def summary(profile: Profile) -> str:
    """A line for each launch."""
    return "\n".join(
        [f"{profile.id}, {profile.made}", *("  " + "  ".join(_row(launch)) for launch in profile.launches)]
    )


def _row(launch: Launch) -> list[str]:
    shares = (launch.memory, launch.tensor, launch.issue, launch.warps)
    return [
        f"`{short(launch.name)}`",
        f"{launch.us:.1f}",
        mib(launch.read),
        mib(launch.written),
        *(f"{share:.0f}%" for share in shares),
        ", ".join(f"{reason.replace('_', ' ')} {cycles:.1f}" for reason, cycles in launch.stalls[:_REASONS]),
    ]
