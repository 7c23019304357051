"""Which whole model is chosen for which times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from fusion_cli.measured import ModelName
from fusion_cli.sessions import CPU, CannotRun
from fusion_cli.sessions.timing import Speed, Timing
from fusion_cli.verify import choice
from fusion_cli.verify.choice import Setting
from fusion_cli.verify.choice import measure as real_measure
from tests.helpers.timings import ROUNDS, measured, timing
from tests.verify.test_verify_model import fused_model

AT = Setting({"x": np.ones((2, 7), np.float32)})


def chosen(monkeypatch: pytest.MonkeyPatch, *us: float, **options: Any) -> ModelName:
    monkeypatch.setattr(choice, "measure", lambda *_, **__: timing(*us))
    models: Mapping[ModelName, Any] = dict.fromkeys(("original", "simplified", "kernels")[: len(us)])  # type: ignore[arg-type]
    return choice.choose(models, [AT], **options).chosen


@pytest.mark.parametrize(
    ("us", "expected"),
    [
        ((100, 115, 104), "original"),
        ((100, 90, 95), "simplified"),
        ((100, 115, 80), "kernels"),
        ((100, 90, 80), "kernels"),
        ((100, 99, 98.5), "original"),
        ((100, 90, 89), "simplified"),
        ((100, 99, 97), "kernels"),
        ((100, 90), "simplified"),
        ((100, 100), "original"),
    ],
)
def test_the_fastest_is_chosen_and_of_equals_the_simplest(
    monkeypatch: pytest.MonkeyPatch, us: tuple[float, ...], expected: ModelName
) -> None:
    assert chosen(monkeypatch, *us) == expected


def test_the_original_may_be_out_of_the_question(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, 100, 120, least="simplified") == "simplified"
    assert chosen(monkeypatch, 100, 120, 110, least="simplified") == "kernels"


def test_force_takes_the_last_whatever_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(monkeypatch, 100, 90, 200, forced=True) == "kernels"


def test_the_record_tells_times_speeds_sizes_and_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "measure", lambda *_, **__: timing(100, 120, 80))
    found = choice.choose({"original": None, "simplified": None, "kernels": None}, [AT])  # type: ignore[dict-item]
    assert found.why == "faster than the original by more than noise"
    (at,) = found.measured
    assert [(c.model, c.us) for c in at.models] == [("original", 100), ("simplified", 120), ("kernels", 80)]
    assert at.models[2].speed == Speed(1.25, 1.25, 1.25)
    assert (at.device, at.rounds, at.sizes) == ("cpu", ROUNDS, {"x": (2, 7)})


OTHER = Setting(AT.feeds, decides=False)
GPU, GRAPH = Setting(AT.feeds, "cuda"), Setting(AT.feeds, "cuda graph")


@pytest.mark.parametrize(
    ("us", "expected"),
    [
        ({AT: (100, 80), OTHER: (100, 100)}, "simplified"),
        ({AT: (100, 80), OTHER: (100, 120)}, "original"),
        ({AT: (100, 100), OTHER: (100, 80)}, "original"),
        ({AT: (100, 80), OTHER: None}, "simplified"),
        ({GPU: (100, 100), GRAPH: (100, 80)}, "simplified"),
        ({GPU: (100, 80), GRAPH: (100, 120)}, "original"),
        ({GPU: (100, 80), GRAPH: None}, "simplified"),
    ],
)
def test_what_is_chosen_is_faster_where_it_counts_and_slower_nowhere(
    monkeypatch: pytest.MonkeyPatch, us: dict[Setting, tuple[float, float] | None], expected: ModelName
) -> None:
    def measure(_: object, setting: Setting) -> Timing:
        if (times := us[setting]) is None:
            raise CannotRun("not in this way")
        return timing(*times)

    monkeypatch.setattr(choice, "measure", measure)
    found = choice.choose({"original": None, "simplified": None}, list(us))  # type: ignore[dict-item]
    assert found.chosen == expected
    assert [m.device for m in found.measured] == [setting.device for setting, times in us.items() if times]


def test_a_model_that_does_not_run_where_it_counts_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(*_: object) -> Timing:
        raise CannotRun("at all")

    monkeypatch.setattr(choice, "measure", measure)
    with pytest.raises(CannotRun):
        choice.choose({"original": None, "simplified": None}, [AT, OTHER])  # type: ignore[dict-item]


SLOW, EQUAL, FAST = Speed(0.9, 0.88, 0.92), Speed(1.0, 0.98, 1.03), Speed(1.1, 1.08, 1.12)


@pytest.mark.parametrize(
    ("speeds", "expected"),
    [
        ({"A": FAST, "B": SLOW, "C": EQUAL}, ["B", "C"]),
        ({"A": SLOW, "B": EQUAL}, []),
        ({"A": FAST, "B": FAST}, []),
    ],
)
def test_groups_of_kernels_that_do_not_help_go(speeds: dict[str, Speed], expected: list[str]) -> None:
    assert choice.unhelpful(speeds) == expected


def test_a_group_is_tried_without_the_kernels_of_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried: list[frozenset[str]] = []

    def us(model: str, rules: frozenset[str]) -> float:
        tried.extend([rules] if model == "kernels" else [])
        return {"simplified": 90.0, "original": 100.0, "kernels": 45.0 if "Inner" in rules else 180.0}[model]

    monkeypatch.setattr(choice, "measure", measured(us))
    path = fused_model(tmp_path)
    proto = onnx.load(path)
    proto.metadata_props.add(key="fusion.version", value="0")
    onnx.save(proto, path)
    groups = {"one": ["Outer_1", "Third_3"], "other": ["Inner_2"]}
    speeds = choice.speeds_alone(path, tmp_path / "lib.so", groups, AT, lambda *_, **__: None)  # type: ignore[arg-type]
    assert {name: speed.ratio for name, speed in speeds.items()} == {"one": 0.5, "other": 2.0}
    assert tried == [{"Outer", "Third"}, {"Inner"}]


class Opened:
    """A model that is open, and says how often that happened."""

    count = 0

    def __init__(self) -> None:
        Opened.count += 1

    def time_against(self, others: Sequence[Opened], feeds: object, *, seconds: float, most: int) -> Timing:
        assert seconds <= AT.seconds
        return timing(*(10.0 for _ in (self, *others)))


def opened(*, use: str, providers: object) -> Opened:
    assert (use, providers) == ("timing", CPU)
    return Opened()


def test_models_are_opened_anew_for_each_sitting() -> None:
    Opened.count = 0
    found = real_measure([opened, opened, opened], AT)  # type: ignore[list-item]
    assert (Opened.count, found.rounds) == (9, 3 * ROUNDS)


def test_the_one_opened_first_is_another_in_each_sitting() -> None:
    class Slow:
        """A model whose session is as slow as it was opened early."""

        opened = 0

        def __init__(self, us: float) -> None:
            self.us = us + 10 * (3 - Slow.opened % 3)
            Slow.opened += 1

        def time_against(self, others: Sequence[Slow], *_: object, **__: object) -> Timing:
            return timing(self.us, *(other.us for other in others))

    models = [lambda us=us, **_: Slow(us) for us in (100.0, 200.0, 300.0)]
    found = real_measure(models, AT)  # type: ignore[arg-type]
    for us, samples in zip((100.0, 200.0, 300.0), found.samples, strict=True):
        assert sorted(set(samples)) == [us + 10, us + 20, us + 30]


def test_models_that_take_long_are_opened_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10**6, 60))
    monkeypatch.setattr("fusion_cli.verify.choice.time.monotonic", lambda: next(clock) / 10)
    monkeypatch.setattr(choice, "_PATIENCE", 10.0)
    assert real_measure([opened, opened], AT).rounds == ROUNDS  # type: ignore[list-item]
