"""What `benchmarks.gpu_profile` found, as a Markdown page and JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.gpu_models_page import slug
from benchmarks.tally import table
from fusion_cli.structuring import structured

_NAME = 100
"""Characters of a kernel's name that are shown."""
_REASONS = 3
"""Of a kernel's warps, the foremost, that are shown."""
_MIB = 2**20
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
    path = folder / f"gpu-profile-{slug(profile.device)}.md"
    record = path.with_suffix(".json")
    earlier = json.loads(record.read_text()) if record.is_file() else []
    by_id = {(found.id, found.made): found for found in (*(structured(Profile, row) for row in earlier), profile)}
    folder.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps([asdict(found) for found in by_id.values()], indent=1) + "\n")
    path.write_text(page(list(by_id.values())))
    return path


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
        f"`{launch.name[:_NAME]}`",
        f"{launch.us:.1f}",
        *(f"{count / _MIB:.1f}" for count in (launch.read, launch.written)),
        *(f"{share:.0f}%" for share in shares),
        ", ".join(f"{reason.replace('_', ' ')} {cycles:.1f}" for reason, cycles in launch.stalls[:_REASONS]),
    ]
