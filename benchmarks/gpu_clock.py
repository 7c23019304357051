"""How long a contender takes: run by run on its stream, or its kernels alone (needs torch)."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.contenders import Contender
from benchmarks.quiet_core import QuietestCore

RUNS, ON_CPU = 100, 5
ROUNDS = 20
_ROUND_MS = 10.0
"""What a contender runs for in a round, in less than the fewest or more than the most runs."""
_FEWEST, _MOST = 3, 50
WARM_SECONDS = 0.3
"""A GPU that was idle takes a while until its clocks are up."""
_FLUSHED = 256 << 20
"""Bytes that push everything else out of the cache of any GPU. They are only read: what was written would have to leave
the cache for what a kernel reads, which has to wait; in a model that reads its weights nothing is there of the kind."""
_FLUSH = "ArgMax"
"""What the kernel that does so has in its name, and no other here."""


def milliseconds(contender: Contender, *, runs: int = RUNS, warm: float = WARM_SECONDS) -> list[float]:
    """Of every run, from when the GPU is free for it until it is done: what the host takes to launch it is in it where
    the GPU waits for the host."""
    start = time.perf_counter()
    _repeat(contender, 3)
    while time.perf_counter() - start < warm:
        _repeat(contender, 3)
    with QuietestCore():
        return _samples(contender, runs)


def in_turn(contenders: Sequence[Contender], *, rounds: int = ROUNDS) -> list[list[float]]:
    """Milliseconds of the runs of each, round by round, each time in another order: a card that is at its most power
    gives more of it to who comes after one that took little."""
    alone = [statistics.median(milliseconds(c, runs=_FEWEST, warm=0.05)) for c in contenders]
    runs = [round(min(max(_ROUND_MS / ms, _FEWEST), _MOST)) for ms in alone]
    found: list[list[float]] = [[] for _ in contenders]
    order = random.Random(0)
    with QuietestCore() as core:
        for _ in range(rounds):
            for i in order.sample(range(len(contenders)), len(contenders)):
                core.look_again()
                found[i] += _samples(contenders[i], runs[i])
    return found


def _samples(contender: Contender, runs: int) -> list[float]:
    """Milliseconds of runs one after the other."""
    if contender.stream is None:
        return [1e3 * seconds(contender.call) for _ in range(min(runs, ON_CPU))]
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(runs)]
    with torch.cuda.stream(contender.stream):
        for begin, end in pairs:
            begin.record()
            contender.call()
            end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) for begin, end in pairs]


def kernel_us(contender: Contender, *, runs: int = 20, near: bool = False) -> tuple[float, float]:
    """Microseconds a run in which kernels of its are running, and how many there are; nothing that it reads is in the
    GPU's cache before, or all of it if `near`. On a CPU, of its calls."""
    _repeat(contender, 3)
    if contender.stream is None:
        return 1e6 * min(seconds(contender.call) for _ in range(ON_CPU)), 1.0
    # Rows of its own for each block: no other kernel is needed.
    flushed = torch.zeros((1 if near else _FLUSHED // 4 // 8192, 8192), dtype=torch.int32, device="cuda")
    with profile(activities=[ProfilerActivity.CUDA]) as profiled, torch.cuda.stream(contender.stream):
        for _ in range(runs):
            torch.argmax(flushed, 1)
            contender.call()
        torch.cuda.synchronize()
    us, kernels = busy_us(profiled.events())
    return us / runs, kernels / runs


def busy_us(events: Iterable[Any]) -> tuple[float, int]:
    """Microseconds in which kernels other than the flushing one run, which may begin before that one ends, and how many
    there are, of a profiler's events. Raises RuntimeError where there is none."""
    kernels = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA and not e.is_user_annotation]
    flushes = [e for e in kernels if _FLUSH in e.name]
    if len(kernels) == len(flushes):
        raise RuntimeError("the profiler saw no kernel")
    everything, flushing = ([(e.time_range.start, e.time_range.end) for e in some] for some in (kernels, flushes))
    return covered(everything) - covered(flushing), len(kernels) - len(flushes)


def covered(spans: Iterable[tuple[float, float]]) -> float:
    """How much of the line the spans cover: kernels that overlap count once."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def fresh(contender: Contender) -> Sequence[Tensor]:
    """The results of one run more, nothing of which was there before."""
    for tensor in _settled(contender):
        tensor.zero_()
    return _settled(contender)


def is_repeatable(contender: Contender) -> bool:
    """Whether two runs give the same bits."""
    first = [tensor.clone() for tensor in fresh(contender)]
    return all(torch.equal(a, b) for a, b in zip(first, fresh(contender), strict=True))


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _settled(contender: Contender) -> Sequence[Tensor]:
    """The results of one run, which waits for what other streams do with its tensors, and they for it."""
    if contender.stream is None:
        return contender.call()
    torch.cuda.synchronize()
    with torch.cuda.stream(contender.stream):
        found = contender.call()
    torch.cuda.synchronize()
    return found


def _repeat(contender: Contender, times: int) -> None:
    for _ in range(times):
        _settled(contender)
