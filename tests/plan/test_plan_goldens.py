"""Plans of small models and of layers of the examples, as text, against those that are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.goldens import PLANS, check, check_names, write
from tests.helpers.golden_plans import GOLDENS


@pytest.mark.parametrize("name", GOLDENS)
def test_plan_is_the_golden_one(name: str) -> None:
    check(PLANS, name, GOLDENS[name]())


def test_every_golden_plan_is_made() -> None:
    check_names(PLANS, GOLDENS)


def test_a_difference_is_shown_as_a_patch(tmp_path: Path) -> None:
    folder = tmp_path / "goldens"
    write(folder, {"a.txt": lambda: "one\ntwo\n", "b.txt": lambda: ""})
    check(folder, "a.txt", "one\ntwo\n")
    with pytest.raises(AssertionError, match=r"(?s)-two\n\+three\n.*make goldens"):
        check(folder, "a.txt", "one\nthree\n")
    write(folder, {"a.txt": lambda: "one\nthree\n"})
    check(folder, "a.txt", "one\nthree\n")
    with pytest.raises(AssertionError, match="make goldens"):
        check_names(folder, {})
    check_names(folder, {"a.txt": lambda: ""})
