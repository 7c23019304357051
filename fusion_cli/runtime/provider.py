"""What the GPUs of this machine can run, asked of the driver itself (no CUDA toolkit or framework needed)."""

from __future__ import annotations

import ctypes
import re

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


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
