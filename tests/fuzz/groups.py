"""Groups of graphs at once, each in a process of its own (`together`): where one crashes, or time is over, what the
others found is kept."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from subprocess import TimeoutExpired

from fusion_cli.limits import Budget, run

CRASH = "crash"
"""The outcome of a graph that ends the process of its group."""
_Found = SimpleQueue[tuple[int, str] | None]
_PROCESS = (sys.executable, "-m", "tests.fuzz.together")
_LAST_WORDS = 500
"""Characters of what a process said before it ended, at the most."""


@dataclass(frozen=True)
class Groups:
    """How graphs are run: so many in a group, so many groups at once, until the clock (`time.monotonic`) says `end`."""

    target: str
    together: int
    jobs: int
    end: float

    def outcomes(self, seeds: Sequence[int]) -> Iterator[tuple[int, str]]:
        """Each seed with what came of it, as it comes; those that there was no time for are left out."""
        groups = [seeds[i : i + self.together] for i in range(0, len(seeds), self.together)]
        found: _Found = SimpleQueue()
        with ThreadPoolExecutor(self.jobs) as pool:
            futures = [pool.submit(self._run, group, found) for group in groups]
            for _ in groups:
                yield from iter(found.get, None)
        for future in futures:
            future.result()

    def _run(self, seeds: Sequence[int], found: _Found) -> None:
        """Put the outcomes of a group, and None after them. A seed at which the process ends is told, and those after
        it have another one."""
        left, at = list(seeds), seeds[0]

        def hear(seed: int, said: str) -> None:
            nonlocal at
            at = seed
            if said:
                left.remove(seed)
                found.put((seed, said))

        try:
            while left and (seconds := self.end - time.monotonic()) > 0:
                at, command = left[0], [*_PROCESS, self.target, *map(str, left)]
                with suppress(TimeoutExpired):
                    ended = run(command, Budget(seconds), heard=lambda line: hear(*json.loads(line)))
                    if left:
                        words = " ".join(ended.stderr[-_LAST_WORDS:].split())
                        hear(at, f"{CRASH}: its process ended with exit code {ended.returncode}: {words}")
        finally:
            found.put(None)
