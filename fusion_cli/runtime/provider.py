"""What this machine can run: its platform, and its GPUs, asked of the driver itself (no CUDA toolkit needed)."""

from __future__ import annotations

import ctypes
import platform
import re
import sys

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*

_SYSTEMS = {"linux": "linux", "darwin": "macos", "win32": "windows"}
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def this_platform() -> str:
    """Operating system and processor, such as "linux-x86_64" or "macos-arm64"."""
    machine = platform.machine().lower()
    machine = _MACHINES.get(machine, machine)
    if sys.platform == "darwin" and machine == "aarch64":
        machine = "arm64"  # as Apple calls it
    return f"{_SYSTEMS.get(sys.platform, sys.platform)}-{machine}"


def compute_capability(device: int = 0) -> tuple[int, int] | None:
    """(major, minor) of a CUDA device, or None without a driver or device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    handle, values = ctypes.c_int(), []
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(handle), device) != 0:
        return None
    for attribute in (_MAJOR, _MINOR):
        value = ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, handle) != 0:
            return None
        values.append(value.value)
    return values[0], values[1]


def fit(arch: str, capability: tuple[int, int]) -> int:
    """How well code for `arch` ("sm_80", "sm_90a") suits a device: 0 cannot run, more is better.

    Architecture-specific code ("a") runs on exactly that capability; other code on every later one, too, from the PTX
    that comes with it.
    """
    match = re.fullmatch(r"sm_(\d+)(\d)(a?)", arch)
    if match is None:
        return 0
    major, minor, specific = int(match[1]), int(match[2]), bool(match[3])
    if (major, minor) > capability or (specific and (major, minor) != capability):
        return 0
    return 2 * (10 * major + minor) + specific
