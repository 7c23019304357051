"""How many threads have a row."""

from __future__ import annotations

import pytest

from fusion_cli.kernels.rowwise import Variant, few_rows, variants


@pytest.mark.parametrize(
    ("length", "many", "few"),
    [
        pytest.param(40, Variant(1, 8), None, id="a part of a warp"),
        pytest.param(256, Variant(1, 32), None, id="a vector for each thread of a warp"),
        pytest.param(264, Variant(2, 32), Variant(1, 64), id="one more"),
        pytest.param(768, Variant(3, 32), Variant(1, 96), id="three warps for one"),
        pytest.param(1024, Variant(4, 32), Variant(1, 128), id="four"),
        pytest.param(2048, Variant(4, 512), Variant(1, 256), id="as many as add up one after the other"),
        pytest.param(2056, Variant(4, 512), Variant(1, 512), id="more, of which some may be idle"),
        pytest.param(8192, Variant(4, 512), Variant(2, 512), id="two vectors for each"),
        pytest.param(16384, Variant(4, 512), None, id="as many as a thread keeps at most"),
        pytest.param(None, Variant(4, 512), Variant(1, 512), id="an open length"),
    ],
)
def test_few_rows_have_more_threads(length: int | None, many: Variant, few: Variant | None) -> None:
    kept = variants(8, length)
    assert (kept[-1], few_rows(8, length, kept)) == (many, few)
