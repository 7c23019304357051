"""The other process of process.py: opens models and runs them, one request after the other, until its input ends."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from fusion_cli.limits import MORE_MEMORY, confine
from fusion_cli.sessions import Array, CannotRun, LocalRunner, OverBudget, onnx_runtime, open_model
from fusion_cli.sessions.timing import Timing


class Worker:
    """The models that are open, by number. Its public methods are the commands, which raise CannotRun."""

    def __init__(self) -> None:
        self._models: dict[int, LocalRunner] = {}

    def open(self, number: int, model: Path | bytes, options: Mapping[str, Any]) -> None:
        """Open a model under a number."""
        self._models[number] = open_model(model, **options)

    def run(self, number: int, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """The outputs of a model."""
        return self._model(number).run(feeds)

    def time(self, first: int, others: Sequence[int], feeds: Mapping[str, Array], seconds: float, most: int) -> Timing:
        """Models against each other."""
        return self._model(first).time_against([*map(self._model, others)], feeds, seconds=seconds, most=most)

    def available_providers(self) -> list[str]:
        """What ONNX Runtime can run on here."""
        return list(onnx_runtime().get_available_providers())

    def close(self, number: int) -> None:
        """Free a model, if it was opened."""
        self._models.pop(number, None)

    def _model(self, number: int) -> LocalRunner:
        if number not in self._models:
            raise CannotRun("the process in which the model was open has crashed")
        return self._models[number]


_NO_MEMORY = ("bad_alloc", "bad allocation", "Failed to allocate memory", "MemoryError", "Unable to allocate")
"""What errors say for want of memory."""


def serve(requests: BinaryIO, answers: BinaryIO, memory: int) -> None:
    """Answer each request by a result or an exception, with so many bytes of memory at the most."""
    worker = Worker()
    while True:
        try:
            unused, command, arguments = pickle.load(requests)
        except EOFError:
            return
        for number in unused:
            worker.close(number)
        try:
            answer = getattr(worker, command)(*arguments)
        except Exception as error:  # whoever asked is to get it
            said = f"{type(error).__name__}: {error}"
            answer = error if isinstance(error, CannotRun) else RuntimeError(said)
            if any(words in said for words in _NO_MEMORY):
                answer = OverBudget(f"it took more than {memory / 2**30:.3g} GiB of memory; {MORE_MEMORY}")
        pickle.dump(answer, answers, pickle.HIGHEST_PROTOCOL)
        answers.flush()


if __name__ == "__main__":
    parent, memory = map(int, sys.argv[1:])
    confine(parent, memory)
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)  # what libraries print must not come between the answers
        serve(sys.stdin.buffer, answers, memory)
