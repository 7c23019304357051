"""The core of this machine that does most for a thread just now."""

from __future__ import annotations

import os
import time

_LOOPS, _ADDED = 5, 5000
_CLEARLY = 1.15


class QuietestCore:
    """Within it, this thread stays on one core, the quickest at a short loop: where virtual machines share a host, a
    neighbour takes nearly half of a core, and may be gone a moment later. Threads that others began stay where they
    are."""

    def __enter__(self) -> QuietestCore:
        self._allowed = os.sched_getaffinity(0)
        self._choose()
        return self

    def __exit__(self, *raised: object) -> None:
        os.sched_setaffinity(0, self._allowed)

    def look_again(self) -> None:
        """Takes another core if this one has become slower."""
        if _seconds() > _CLEARLY * self._seconds:
            self._choose()

    def _choose(self) -> None:
        self._seconds, core = min((_seconds_on(core), core) for core in self._allowed)
        os.sched_setaffinity(0, {core})


def _seconds_on(core: int) -> float:
    os.sched_setaffinity(0, {core})
    return _seconds()


def _seconds() -> float:
    """Of the fastest of some loops."""
    return min(_loop() for _ in range(_LOOPS))


def _loop() -> float:
    start = time.perf_counter()
    sum(range(_ADDED))
    return time.perf_counter() - start
