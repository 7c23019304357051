"""Fit the numbers of a profile, this machine's CPU or a GPU, to what was measured, the cases held out aside.

    python -m benchmarks.cost_fit [--target cpu|sm_90a] [--models FOLDER] [--results FOLDER]

Damped least squares over the logarithms of the numbers: residuals are the logarithms of predicted over measured times,
and, counted more, of predicted over measured gains, so that what is faster is told right. A weak pull to the numbers
there are keeps those that no case tells anything of. Prints the numbers as TOML, to be put into the profile by hand.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np

from benchmarks.cost_cases import Case, Predictor
from benchmarks.cost_model import MODELS, RESULTS, cases
from fusion_cli.devices.profile import DeviceProfile
from fusion_cli.errors import FusionError
from fusion_cli.score import load_profile
from fusion_cli.targets import resolve_targets

_STEPS = 12
_PULL = 0.3
"""What a number that is off by a factor e counts, beside a time that is."""
_GAIN = 3.0
"""What a gain counts, beside a time."""
_CACHES_MB = (8, 32, 64)
"""Sizes of a CPU's cache that are tried: what fits in it is a step, of which there is no gradient."""
Numbers = Mapping[str, float]


@dataclass(frozen=True)
class Fitted:
    """What of a profile is fitted: rates by element type, numbers of its own, and what kernels have each, shares of the
    bandwidth where that is what bounds them and times to begin and to end."""

    rates: tuple[str, ...]
    scalars: tuple[str, ...]
    shares: tuple[str, ...]
    launches: tuple[str, ...]

    def numbers(self, profile: DeviceProfile) -> dict[str, float]:
        """By names as in TOML."""
        return {
            **{k: profile.tflops[k] for k in self.rates},
            **{k: getattr(profile, k) for k in self.scalars},
            **{f"share.{k}": profile.share(k) for k in self.shares},
            **{f"launch.{k}": max(profile.launch(k), 1.0) for k in self.launches},
            **{f"slowdown.{rows:g}": times for rows, times in profile.linear_slowdown},
        }

    def put(self, profile: DeviceProfile, numbers: Numbers) -> DeviceProfile:
        """The profile with these in their places."""
        return replace(
            profile,
            **{k: numbers[k] for k in self.scalars},
            tflops={**profile.tflops, **{k: numbers[k] for k in self.rates}},
            bandwidth_share={**profile.bandwidth_share, **{k: min(numbers[f"share.{k}"], 1.0) for k in self.shares}},
            launch_us={**profile.launch_us, **{k: numbers[f"launch.{k}"] for k in self.launches}},
            linear_slowdown=tuple((rows, numbers[f"slowdown.{rows:g}"]) for rows, _ in profile.linear_slowdown),
        )


OF_CPU = Fitted(
    ("float32",),
    ("bandwidth_gbs", "cache_bandwidth_gbs", "simple_gops", "special_gops", "node_us", "op_us", "kernel_us", "run_us",
     "attention_efficiency", "masked_attention_efficiency", "vendor_conv_efficiency"),
    ("LayerNormalization", "Rowwise"),
    ("default", "MatMul", "Gemm", "Linear", "Attention", "Conv", "Winograd"),
)  # fmt: skip
OF_GPU = Fitted(
    ("float16", "float32"),
    ("simple_gops", "special_gops", "node_us", "op_us", "kernel_us", "attention_efficiency",
     "masked_attention_efficiency", "vendor_attention_efficiency"),
    ("default", "MatMul", "LayerNormalization", "SkipLayerNormalization", "QuickGelu", "Softmax", "Linear",
     "DecodeAttention", "Pointwise", "Rowwise"),
    ("default", "MatMul", "LayerNormalization", "SkipLayerNormalization", "Linear", "Attention", "DecodeAttention",
     "Pointwise", "Rowwise"),
)  # fmt: skip


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


def fit(
    predictor: Predictor, found: Sequence[Case], profile: DeviceProfile, fitted: Fitted
) -> tuple[DeviceProfile, float]:
    """The profile with the numbers that suit the cases best, and half the sum of squares that is left."""
    start = fitted.numbers(profile)
    names = list(start)

    def off(x: np.ndarray) -> np.ndarray:
        changed = fitted.put(profile, {k: start[k] * math.exp(v) for k, v in zip(names, x, strict=True)})
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
    return fitted.put(profile, best), float(now @ now) / 2


@click.command(help=(__doc__ or "").split("\n\n")[0])
@click.option("--target", type=click.Choice(["cpu", "sm_90a"]), default="cpu", show_default=True)
@click.option("--models", type=click.Path(path_type=Path), default=MODELS, show_default=True)
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, show_default=True)
def main(target: str, models: Path, results: Path) -> None:
    predictor, profile = Predictor(keep=True), load_profile(resolve_targets([target])[0])
    is_cpu = profile.kind == "cpu"
    fitted = OF_CPU if is_cpu else OF_GPU
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for case in cases(results, models, Path(folder)):
            if (case.device == "cpu") is is_cpu and not case.is_held_out:
                try:
                    predictor.totals(case, profile)
                    found.append(case)
                except FusionError as problem:
                    click.echo(f"{case.name}: {problem}", err=True)
        fits = []
        for size in _CACHES_MB if is_cpu else (profile.cache_bytes / 2**20,):
            fits.append(fit(predictor, found, replace(profile, cache_bytes=size * 2.0**20), fitted))
            click.echo(f"cache of {size:g} MB: {fits[-1][1]:.3f} left", err=True)
    best = min(fits, key=lambda f: f[1])[0]
    click.echo(f"cache_mb = {best.cache_bytes / 2**20:g}")
    for name, value in fitted.numbers(best).items():
        click.echo(f"{name} = {value:.3g}")


if __name__ == "__main__":
    main()
