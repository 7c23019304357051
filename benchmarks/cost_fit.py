"""Fit the numbers of the profile for CPUs to what was measured, the cases held out aside.

    python -m benchmarks.cost_fit [--results FOLDER]

Damped least squares over the logarithms of the numbers: residuals are the logarithms of predicted over measured times,
and, counted more, of predicted over measured gains, so that what is faster is told right. A weak pull to the numbers
there are keeps those that no case tells anything of. Prints the numbers as TOML, to be put into the profile by hand.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from benchmarks.cost_cases import Case, Predictor
from benchmarks.cost_model import RESULTS, cases
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.errors import FusionError
from fusion_cli.score import load_profile
from fusion_cli.targets import CPU

_STEPS = 12
_PULL = 0.1
"""What a number that is off by a factor e counts, beside a time that is."""
_GAIN = 3.0
"""What a gain counts, beside a time."""
_CACHES_MB = ((0, 8), (0, 32), (0, 64), (2, 32), (8, 32))
"""Sizes tried of a cache before the last one, and of that: what fits is a step, of which there is no gradient."""
SCALARS = (
    "bandwidth_gbs", "cache_bandwidth_gbs", "near_bandwidth_gbs", "simple_gops", "special_gops", "node_us", "op_us",
    "kernel_us", "run_us", "attention_efficiency", "masked_attention_efficiency", "vendor_conv_efficiency",
    "vendor_hidden_specials",
)  # fmt: skip
SHARES = ("LayerNormalization", "Rowwise")
"""Kernels of rows, whose arithmetic is not what bounds them."""
LAUNCHES = {"default": (), "MatMul": ("Gemm", "Linear"), "Attention": (), "Conv": (), "Winograd": ()}
"""Kernels that wake threads each in their own way, those that do so alike, and the rest."""
Numbers = Mapping[str, float]


def numbers_of(profile: DeviceProfile) -> dict[str, float]:
    """What is fitted, by names as in TOML."""
    return {
        "float32": profile.tflops["float32"],
        **{k: getattr(profile, k) for k in SCALARS},
        **{f"share.{k}": profile.share(k) for k in SHARES},
        **{f"launch.{k}": max(profile.launch(k), 1.0) for k in LAUNCHES},
        **{f"slowdown.{rows:g}": times for rows, times in profile.linear_slowdown},
    }


def with_numbers(profile: DeviceProfile, numbers: Numbers) -> DeviceProfile:
    """The profile with these in their places."""
    return replace(
        profile,
        **{k: numbers[k] for k in SCALARS},
        tflops={**profile.tflops, "float32": numbers["float32"]},
        bandwidth_share={**profile.bandwidth_share, **{k: numbers[f"share.{k}"] for k in SHARES}},
        launch_us={
            **profile.launch_us,
            **{each: numbers[f"launch.{k}"] for k, alike in LAUNCHES.items() for each in (k, *alike)},
        },
        linear_slowdown=tuple((rows, numbers[f"slowdown.{rows:g}"]) for rows, _ in profile.linear_slowdown),
    )


def residuals(predictor: Predictor, found: Sequence[Case], profile: DeviceProfile) -> list[float]:
    """By how much predictions with a profile are off, in natural logarithms; fused ones where the fusions are those
    that were measured."""
    off: list[float] = []
    for case in found:
        before, after, same = predictor.totals(case, profile)
        if case.measured.before is None or case.measured.after is None:
            continue
        off.append(math.log(before / case.measured.before))
        if same:
            fused = math.log(after / case.measured.after)
            off += [fused, _GAIN * (fused - off[-1])]
    return off


def fit(predictor: Predictor, found: Sequence[Case], profile: DeviceProfile) -> tuple[DeviceProfile, float]:
    """The profile with the numbers that suit the cases best, and half the sum of squares that is left."""
    start, names = numbers_of(profile), list(numbers_of(profile))

    def off(x: np.ndarray) -> np.ndarray:
        changed = with_numbers(profile, {k: start[k] * math.exp(v) for k, v in zip(names, x, strict=True)})
        return np.array([*residuals(predictor, found, changed), *(_PULL * x)])

    x, damping = np.zeros(len(names)), 1.0
    now = off(x)
    for _ in range(_STEPS):
        slope = np.stack([(off(x + step) - now) / 1e-3 for step in 1e-3 * np.eye(len(x))], axis=1)
        step = np.linalg.solve(slope.T @ slope + damping * np.eye(len(x)), -slope.T @ now)
        tried = off(x + step)
        if tried @ tried < now @ now:
            x, now, damping = x + step, tried, damping / 3
        else:
            damping *= 5
    best = {k: start[k] * math.exp(v) for k, v in zip(names, x, strict=True)}
    return with_numbers(profile, best), float(now @ now) / 2


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def main(results: Path) -> None:
    predictor, profile = Predictor(keep=True), load_profile(CPU)
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for case in cases(results, Path(folder), Path(folder)):
            if case.device == "cpu" and not case.is_held_out:
                try:
                    predictor.totals(case, profile)
                    found.append(case)
                except FusionError as problem:
                    click.echo(f"{case.name}: {problem}", err=True)
        fits = []
        for near, last in _CACHES_MB:
            rate = profile.near_bandwidth_gbs or 2 * profile.cache_bandwidth_gbs
            sized = replace(profile, cache_bytes=last * 2.0**20, near_bytes=near * 2.0**20, near_bandwidth_gbs=rate)
            fits.append(fit(predictor, found, sized))
            click.echo(f"caches of {near} and {last} MB: {fits[-1][1]:.3f} left", err=True)
    best = min(fits, key=lambda f: f[1])[0]
    click.echo(f"cache_mb = {best.cache_bytes / 2**20:g}\nnear_mb = {best.near_bytes / 2**20:g}")
    for name, value in numbers_of(best).items():
        click.echo(f"{name} = {value:.3g}")


if __name__ == "__main__":
    main()
