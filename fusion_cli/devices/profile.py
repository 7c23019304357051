"""Hardware profiles: the numbers that predictions are made with."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from fusion_cli.errors import FusionError

_MOST_PARTS = 8
"""Multiprocessors that share the sums of one tile."""


@dataclass(frozen=True)
class DeviceProfile:
    """What a device can do. Bandwidths in GB/s, sizes in bytes, times in us, matrix rates in TFLOP/s by element type,
    elementwise rates in Gop/s."""

    name: str
    kind: str
    arch: str
    description: str
    bandwidth_gbs: float
    cache_bandwidth_gbs: float
    cache_bytes: float
    near_bandwidth_gbs: float
    near_bytes: float
    """Of a cache before the last one that is faster; 0 where there is none."""
    onchip_bytes: float
    node_us: float
    shape_node_us: float
    op_us: float
    kernel_us: float
    run_us: float
    """Host time of a run besides its nodes."""
    graph_us: float
    """Host time of a run as a CUDA graph, whose nodes take none."""
    if_us: float
    """An If with the nodes of its condition."""
    overlapped: bool
    """Whether dispatch runs ahead of the device, so that the longer of the two counts."""
    tflops: dict[str, float]
    simple_gops: float
    special_gops: float
    linear_efficiency: float
    attention_efficiency: float
    masked_attention_efficiency: float
    """Where each score goes through a program that loads something (a mask, a bias)."""
    float32_attention_efficiency: float
    """In float32: on GPUs in TF32, which sessions allow unless told otherwise."""
    vendor_attention_efficiency: float
    """Of ONNX Runtime's own Attention operator in half precision without a mask; 0 where it stores the scores."""
    vendor_hidden_specials: float
    """Special operations that ONNX Runtime's softmax of a causal Attention takes for a hidden key besides: exponentials
    that underflow take Intel's processors long."""
    vendor_conv_efficiency: float
    """Of ONNX Runtime's own convolution on CPUs, over its matrix products."""
    vendor_float32_turning: float
    """Bytes that the vendor's convolution of float32 on a GPU moves for each of an image that it turns over to have its
    channels last, as tensor cores take them; 0 where it does not."""
    conv_efficiency: float
    tile_tflops: float
    """Of products of float32 by a constant factor in tiles; 0 where there are none."""
    bandwidth_share: dict[str, float]
    """Share of the bandwidth that kernels reach, by ONNX operator or by kind of generated kernel; "default" for the
    rest."""
    linear_slowdown: tuple[tuple[float, float], ...]
    """(rows of A, time of the generated operator's GEMM over that of the vendor's node), for constant weights."""
    launch_us: dict[str, float] = field(default_factory=dict)
    """What a kernel takes to begin and to end on the device, by names as in `bandwidth_share`."""
    multiprocessors: int = 0
    """Those that share the tiles of a product; 0 where arithmetic alone counts."""
    tiles: tuple[tuple[float, float, float], ...] = ()
    """(rows, columns, share of the matrix rate that it reaches) of the tiles that the vendor's products choose from."""
    measured: bool = True
    """Whether its numbers were measured, or follow from a data sheet."""
    is_default: bool = True
    """Whether targets of its architecture, and of those above it, take it unasked."""
    has_reference: bool = False
    """Whether it says what `devices calibrate` measures on its own machine."""
    error: dict[str, float] = field(default_factory=dict)
    """By how much predictions of kernels are off, relative to what is measured, by names as in `bandwidth_share`."""
    target: str = ""
    """The target that predictions are for."""
    model_weights: int = 0
    """Bytes of the constants that one run of the model touches which predictions are for."""
    advisory: bool = False
    """A device nothing is built for: its scores rank candidates and turn none down."""

    def is_cached(self, working_set: float) -> bool:
        """Whether what a kernel touches stays in the last cache."""
        return working_set <= self.cache_bytes / 2

    def bandwidth(self, working_set: float) -> float:
        """GB/s at which a kernel that touches so much moves it: what is no more than half of a cache stays there."""
        if self.near_bytes and working_set <= self.near_bytes / 2:
            return self.near_bandwidth_gbs
        return self.cache_bandwidth_gbs if self.is_cached(working_set) else self.bandwidth_gbs

    def touched(self, weights: float, others: float) -> float:
        """Bytes that are touched until a kernel's constants are again, beside what else it touches: each run of the
        model goes through all the constants there are, and leaves none in a cache if they do not fit there together."""
        return max(weights, self.model_weights) + others

    def share(self, kernel: str) -> float:
        """The share of the bandwidth that a kernel of this name reaches."""
        return self.bandwidth_share.get(kernel, self.bandwidth_share.get("default", 1.0))

    def launch(self, kernel: str) -> float:
        """What a kernel of this name takes to begin and to end."""
        return self.launch_us.get(kernel, self.launch_us.get("default", 0.0))

    def spread(self, batches: float, rows: float, columns: float) -> float:
        """How many times as long as at the full rate a product takes whose result has these sizes, with the tiles that
        suit it best: for tiles that are not full, small ones, and multiprocessors without any in the last wave. Where
        there are fewer tiles than multiprocessors, these share the sums of a tile, up to eight one."""
        result = batches * rows * columns
        if not self.tiles or not result:
            return 1.0
        found = []
        for tile_rows, tile_columns, share in self.tiles:
            tiles = batches * math.ceil(rows / tile_rows) * math.ceil(columns / tile_columns)
            parts = max(1, min(int(self.multiprocessors / tiles), _MOST_PARTS))
            waves = math.ceil(tiles * parts / self.multiprocessors)
            found.append(waves * self.multiprocessors / parts * tile_rows * tile_columns / result / share)
        return max(1.0, min(found))

    def idleness(self, blocks: float, in_rounds: bool = False) -> float:
        """How many times as long a kernel takes that has so few pieces of work: one multiprocessor each; `in_rounds`:
        the last of them, too, which may be fewer than there are multiprocessors."""
        idle = self.multiprocessors / blocks if blocks else 1.0
        rounds = math.ceil(blocks / self.multiprocessors) if in_rounds and self.multiprocessors else 1
        return max(1.0, rounds * idle)

    def uncertainty(self, kernel: str) -> float:
        """By how much the time of a kernel of this name may be off, relative to it."""
        return self.error.get(kernel, self.error.get("default", 0.0))

    def matrix_rate(self, dtype: str) -> float:
        """Floating-point operations per us of the vendor's matrix products."""
        return self.tflops.get(dtype, self.tflops["float32"]) * 1e6

    def gemm_slowdown(self, rows: float) -> float:
        """Interpolated in the logarithm of the rows; 1 where the profile has no table."""
        if not self.linear_slowdown:
            return 1.0
        known, times = zip(*self.linear_slowdown, strict=True)
        return float(np.interp(math.log(max(rows, 1.0)), np.log(known), times))


def read_profile(path: Path) -> DeviceProfile:
    """Read one profile. Raises FusionError naming what is missing or of the wrong type."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
        return _profile(data)
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise FusionError(f"cannot be read: {error}", where=str(path)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise FusionError(f"not a device profile: {error!r}", where=str(path)) from error


def _profile(data: dict[str, Any]) -> DeviceProfile:
    memory, dispatch, compute, generated = (data[k] for k in ("memory", "dispatch", "compute", "generated"))
    numbers = {
        **memory,
        **dispatch,
        **compute,
        **generated,
        "cache_bytes": memory["cache_mb"] * 2**20,
        "near_bytes": memory.get("near_mb", 0.0) * 2**20,
        "near_bandwidth_gbs": memory.get("near_bandwidth_gbs", 0.0),
        "onchip_bytes": memory["onchip_kb"] * 2**10,
        "vendor_attention_efficiency": data.get("vendor", {}).get("attention_efficiency", 0.0),
        "vendor_hidden_specials": data.get("vendor", {}).get("hidden_specials", 0.0),
        "vendor_conv_efficiency": data.get("vendor", {}).get("conv_efficiency", 1.0),
        "vendor_float32_turning": data.get("vendor", {}).get("float32_turning", 0.0),
        "tile_tflops": generated.get("tile_tflops", 0.0),
        "float32_attention_efficiency": generated.get(
            "float32_attention_efficiency", generated["attention_efficiency"]
        ),
        "run_us": dispatch.get("run_us", 0.0),
        "graph_us": dispatch.get("graph_us", 0.0),
        "if_us": dispatch.get("if_us", 0.0),
    }
    grid = data.get("grid", {})
    floats: dict[str, Any] = {f.name: float(numbers[f.name]) for f in fields(DeviceProfile) if f.type == "float"}
    return DeviceProfile(
        **floats,
        name=str(data["name"]),
        kind=str(data["kind"]),
        arch=str(data.get("arch", "")),
        description=str(data["description"]),
        overlapped=bool(dispatch["overlapped"]),
        tflops={k: float(v) for k, v in compute.items() if not k.endswith("_gops")},
        bandwidth_share={k: float(v) for k, v in data.get("bandwidth_share", {}).items()},
        measured=bool(data.get("measured", True)),
        is_default=bool(data.get("default", True)),
        has_reference="reference" in data,
        error={k: float(v) for k, v in data.get("error", {}).items()},
        linear_slowdown=tuple((float(m), float(t)) for m, t in generated["linear_slowdown"]),
        launch_us={k: float(v) for k, v in data.get("launch", {}).items()},
        multiprocessors=int(grid.get("multiprocessors", 0)),
        tiles=tuple((float(m), float(n), float(share)) for m, n, share in grid.get("tiles", ())),
    )
