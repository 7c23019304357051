"""Python's garbage collector, made to look at a model less often.

It is not needed for what reference counts free, and a tenth to a fifth of the time goes into its looking in vain.
"""

from __future__ import annotations

import gc
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
