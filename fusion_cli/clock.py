"""How long the stages of a run take, and who is told when one starts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import onnx_ir as ir

from fusion_cli.limits import Budget, deadline
from fusion_cli.listener import NOBODY, Listener
from fusion_cli.types import Options

_ELSEWHERE = frozenset({"build", "verify", "choose"})
"""Stages that wait for other processes, each of whose answers has the whole budget."""


class Clock:
    """Seconds spent in each stage, and who is told when one starts; gives up those that take too long."""

    def __init__(self, options: Options, listener: Listener = NOBODY) -> None:
        self.seconds: dict[str, float] = {}
        self.listener = listener
        self._options = options
        self.budget = self._allow()

    def _allow(self, nodes: int = 0, weights: int = 0) -> Budget:
        return Budget.asked(self._options.timeout, self._options.max_memory, nodes, weights)

    def scale(self, model: ir.Model) -> None:
        """Allow what is plenty for this model, where nothing was asked for."""
        weights = (v.const_value for v in model.graph.initializers.values() if v.const_value is not None)
        nbytes = sum(t.nbytes for t in weights if not t.dtype.is_string())
        self.budget = self._allow(len(list(model.graph.all_nodes())), nbytes)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Raises FusionError where the stage takes more than the budget."""
        self.listener.stage(name)
        start, before, seconds = time.perf_counter(), self.seconds.get(name, 0.0), self.budget.seconds
        late = deadline(seconds - before, f"the stage '{name}' took more than {seconds:g} s")
        try:
            with nullcontext() if name in _ELSEWHERE else late:
                yield
        finally:
            self.seconds[name] = before + time.perf_counter() - start
