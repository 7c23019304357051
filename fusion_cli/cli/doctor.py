"""`fusion-cli doctor`: what this machine can build and run, and what to install for the rest."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import click

from fusion_cli import build
from fusion_cli.build.cache import entries
from fusion_cli.cli.common import debug_option, echo_json, json_option, stdout
from fusion_cli.errors import FusionError
from fusion_cli.match import load_rules
from fusion_cli.report import versions
from fusion_cli.report.lines import print_wrapped
from fusion_cli.report.readable import show_bytes
from fusion_cli.targets import CPU, CUDA, resolve_targets
from fusion_cli.version import install


@dataclass(frozen=True)
class Finding:
    """One thing looked for. `needed` things make `doctor` fail where they are missing; `advice` says how to get it."""

    name: str
    ok: bool
    found: str
    advice: str = ""
    needed: bool = False


@click.command()
@json_option
@debug_option
def doctor(as_json: bool, debug: bool) -> None:
    """Check what is installed; say what is missing and how to get it.

    The exit code is 1 if something is missing without which no model can be optimized at all.
    """
    findings = [finding for look in (_python, _packages, _compilers, _gpu, _cache, _rules) for finding in look()]
    if as_json:
        echo_json([asdict(f) for f in findings])
    else:
        width = max(len(f.name) for f in findings)
        console = stdout()
        for f in findings:
            state = "ok" if f.ok else "FAIL" if f.needed else "--"
            print_wrapped(console, f"{state:<5} {f.name:<{width}}  {f.found}", width + 8)
            if not f.ok and f.advice:
                print_wrapped(console, f"      {'':<{width}}  -> {f.advice}", width + 11)
    if any(f.needed and not f.ok for f in findings):
        click.get_current_context().exit(1)


def _python() -> Iterator[Finding]:
    version = f"{platform.python_version()} ({sys.executable}) on {platform.system()} {platform.machine()}"
    yield Finding("python", sys.version_info >= (3, 11), version, "install Python 3.11 or newer", needed=True)


def _packages() -> Iterator[Finding]:
    found = versions()
    for name in ("onnx", "onnx-ir", "onnxscript"):
        version = found.get(name)
        yield Finding(name, version is not None, version or "not installed", f"pip install {name}", needed=True)
    version = found.get("onnxruntime-gpu") or found.get("onnxruntime")
    if version is None:
        advice = f"{install('cpu')} (or [gpu]): needed to verify and to run the result"
        yield Finding("onnxruntime", False, "not installed", advice)
        return
    import onnxruntime

    providers = [p.removesuffix("ExecutionProvider") for p in onnxruntime.get_available_providers()]
    yield Finding("onnxruntime", True, f"{version}, providers: {', '.join(providers)}")


def _compilers() -> Iterator[Finding]:
    for name, targets in (("C++ compiler", [CPU]), ("nvcc", CUDA)):
        found = {t.name: compiler for t in targets if (compiler := build.find_compiler(t)) is not None}
        text = "none"
        if found:
            compiler = next(iter(found.values()))
            text = f"{compiler.version} ({compiler.path}), for {', '.join(found)}"
        yield Finding(name, len(found) == len(targets), text, build.advice(targets[-1]))
    yield Finding("target auto", True, ", ".join(t.name for t in resolve_targets(["auto"])))


def _gpu() -> Iterator[Finding]:
    advice = "kernels for sm_* targets can be built here, but not run"
    command = ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"]
    if shutil.which(command[0]) is None:
        yield Finding("GPU", False, "none (no nvidia-smi)", advice)
        return
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("GPU", False, f"nvidia-smi: {error}", advice)
        return
    lines = [line.strip() for line in run.stdout.splitlines() if line.strip()]
    ok = run.returncode == 0 and bool(lines)
    yield Finding("GPU", ok, "; ".join(lines) if ok else "none that the driver knows", advice)


def _cache() -> Iterator[Finding]:
    folder = build.default_cache_dir()
    held = entries(folder)
    yield Finding("build cache", True, f"{folder} ({len(held)} files, {show_bytes(sum(e.nbytes for e in held))})")


def _rules() -> Iterator[Finding]:
    try:
        loaded = load_rules()
    except FusionError as error:
        yield Finding("rules", False, str(error), "install fusion-cli again", needed=True)
        return
    found = f"{len(loaded.fusions)} fusions, {len(loaded.idioms)} idioms"
    ok = bool(loaded.fusions and loaded.idioms)
    yield Finding("rules", ok, found, "install fusion-cli again", needed=True)
