"""Times of models that are run in turn: how they compare, and how sure that is."""

from __future__ import annotations

import math
from functools import partial

import pytest

from fusion_cli.sessions.timing import Speed, Timing, interleave, pooled


def test_models_run_equally_often_and_as_long_after_their_last_run(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr("fusion_cli.sessions.timing._ONE_WAY", 3)
    timing = interleave([partial(calls.append, name) for name in "abc"], seconds=0, least=6)
    assert timing.rounds == 6
    assert "".join(calls) == "abc" + "abcabcabc" + "cbacbacba"


def test_a_model_against_itself_is_not_faster_for_what_lies_in_the_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run takes the longer the longer ago the last one was, and the first of a round the longest."""
    now, last, runs = 0.0, dict.fromkeys(range(3), 0), 0

    def work(model: int) -> None:
        nonlocal now, runs
        runs += 1
        now += 1e-4 * (1 + 0.1 * (runs - last[model]) + 0.01 * (runs % 3 == 1))
        last[model] = runs

    monkeypatch.setattr("fusion_cli.sessions.timing.time.perf_counter", lambda: now)
    timing = interleave([partial(work, model) for model in range(3)], seconds=1e9, least=1, most=96)
    for model in (0, 1, 2):
        assert timing.speed(model, against=(model + 1) % 3).ratio == pytest.approx(1.0, abs=0.01)


def test_what_slows_all_down_does_not_change_their_speeds(monkeypatch: pytest.MonkeyPatch) -> None:
    now, runs = 0.0, 0

    def work(seconds: float) -> None:
        nonlocal now, runs
        runs += 1
        now += seconds * (10 if runs % 6 < 2 else 1)  # every third round, all of it, the machine is slow

    monkeypatch.setattr("fusion_cli.sessions.timing.time.perf_counter", lambda: now)
    timing = interleave([partial(work, 0.004), partial(work, 0.002)], seconds=1e9, least=1, most=30)
    assert timing.rounds == 30
    assert timing.speed(1).ratio == pytest.approx(2.0)
    assert timing.us(1) == pytest.approx(timing.us(0) / 2)


def test_speed_says_how_many_times_as_fast() -> None:
    timing = Timing(((30.0,) * 9, (10.0,) * 9, (15.0,) * 9))
    assert timing.speed(1) == Speed(3.0, 3.0, 3.0)
    assert timing.speed(2, against=1).ratio == pytest.approx(2 / 3)
    assert str(timing.speed(1)) == "3.00x (3.00 to 3.00)"


@pytest.mark.parametrize("rounds", [6, 9, 11, 12, 30, 101, 200])
def test_the_interval_holds_the_median_19_times_of_20(rounds: int) -> None:
    """The true median is outside if fewer than k throws of a coin, of as many as there are rounds, come up heads, or
    fewer than k tails."""
    timing = Timing(((1.0,) * rounds, tuple(1 / (i + 1) for i in range(rounds))))
    speed = timing.speed(1)
    k = round(speed.low)
    assert round(speed.high) == rounds + 1 - k
    outside = 2 * sum(math.comb(rounds, i) for i in range(k)) / 2**rounds
    assert outside < 0.06
    assert rounds < 9 or outside + 2 * math.comb(rounds, k) / 2**rounds > 0.05


def test_what_noise_explains_is_neither_faster_nor_slower() -> None:
    for speed in (Speed(1.05, 0.99, 1.08), Speed(1.015, 1.01, 1.02), Speed(0.95, 0.9, 1.01), Speed(0.985, 0.98, 0.99)):
        assert not speed.is_faster
        assert not speed.is_slower
    assert not Speed(1.05, 1.01, 1.08).is_faster
    assert Speed(1.05, 1.03, 1.08).is_faster
    assert Speed(0.95, 0.9, 0.99).is_slower


def test_sittings_that_contradict_each_other_prove_nothing() -> None:
    both = pooled([Timing(((10.0,) * 20, (9.0,) * 20)), Timing(((10.0,) * 20, (11.0,) * 20))])
    assert both.rounds == 40
    assert not both.speed(1).is_faster
    assert not both.speed(1).is_slower


def test_what_one_sitting_says_and_another_does_not_is_noise() -> None:
    long, short = Timing(((10.0,) * 90, (9.0,) * 90)), Timing(((10.0,) * 10, (11.0,) * 10))
    assert long.speed(1).is_faster
    both = pooled([long, short]).speed(1)
    assert (both.ratio, both.low, both.high) == pytest.approx((10 / 9, 10 / 11, 10 / 9))
    assert not both.is_faster
    assert pooled([long, long]).speed(1).is_faster
