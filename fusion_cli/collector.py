"""Python's garbage collector, made to look at a model less often."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

ALLOCATIONS = 20_000
"""New objects after which the collector runs; Python's 700 suit programs of fewer objects than a large model has."""


@contextmanager
def seldom() -> Iterator[None]:
    """Collect garbage after more allocations: a fifth of the time that matching takes goes into looking in vain."""
    before = gc.get_threshold()
    gc.set_threshold(ALLOCATIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
