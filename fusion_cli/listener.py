"""Who is told what a run does while it goes on."""

from __future__ import annotations


class Listener:
    """Takes no notice; what shows progress overrides what it shows."""

    def stage(self, name: str) -> None:
        """A stage begins."""

    def step(self, done: int, total: int, what: str) -> None:
        """So many of the stage's parts are done; the last was, or the next is, `what`."""

    def decided(self, what: str) -> None:
        """Something was decided of a candidate, or of the whole model, and why."""


NOBODY = Listener()
