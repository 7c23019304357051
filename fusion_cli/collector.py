"""Memory: Python's garbage collector, made to look at a model less often, and giving back what is free.

The collector is not needed for what reference counts free, and a tenth to a fifth of the time goes into its looking in
vain.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

ALLOCATIONS = 20_000
"""New objects after which the collector runs; Python's 700 suit programs of fewer objects than a large model has."""


@contextmanager
def paused() -> Iterator[None]:
    """No collection: for work that makes many objects and no garbage that only the collector finds."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@contextmanager
def seldom() -> Iterator[None]:
    """Collect garbage after more allocations."""
    before = gc.get_threshold()
    gc.set_threshold(ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def release() -> None:
    """Give freed memory back to the system, where the C library can be told to (glibc): a parsed message is freed in
    pieces that it would keep for others of their kind."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if os.name == "posix" else None
    if trim is not None:
        trim(0)
