"""Sources of one operator of each kind, on each target, against those that are kept."""

from __future__ import annotations

import pytest

from tests.goldens import SOURCES, check, check_names
from tests.helpers.golden_sources import GOLDENS


@pytest.mark.parametrize("name", GOLDENS)
def test_source_is_the_golden_one(name: str) -> None:
    check(SOURCES, name, GOLDENS[name]())


def test_every_golden_source_is_made() -> None:
    check_names(SOURCES, GOLDENS)
