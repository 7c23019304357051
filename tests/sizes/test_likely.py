"""What sizes a model is tried at that leaves them open."""

from __future__ import annotations

from typing import Any

import pytest

from fusion_cli.sizes.likely import OpenInput, likely_sizes, other_sizes, roles

TOKENS = OpenInput("input_ids", False, ("b", "s"))


def floats(name: str, *dims: int | str) -> OpenInput:
    return OpenInput(name, True, dims)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ([TOKENS, OpenInput("attention_mask", False, ("b", "s"))], {"b": 1, "s": 128}),
        ([floats("x", "n", 3, "a", "c")], {"n": 1, "a": 224, "c": 224}),
        ([floats("x", "n", "a", "c", 3)], {"n": 1, "a": 224, "c": 224}),
        ([floats("x", "p", "q", "r", "t")], {"p": 1, "q": 3, "r": 224, "t": 224}),
        ([floats("x", "n", 3, 48, "c")], {"n": 1, "c": 320}),
        ([floats("x", "n", 3, 640, "c")], {"n": 1, "c": 224}),
        ([floats("clip", "n", 3, "t", "a", "c")], {"n": 1, "t": 300, "a": 224, "c": 224}),
        ([floats("x", "n", "t", 64)], {"n": 1, "t": 128}),
        ([floats("x", "n", "t", 8, 64)], {"n": 1, "t": 128}),
        ([floats("mel", "n", 80, "t")], {"n": 1, "t": 300}),
        ([floats("audio", "n", "t")], {"n": 1, "t": 16_000}),
        ([floats("x", "n", 1, "t")], {"n": 1, "t": 16_000}),
        ([floats("audio", "n", "t"), OpenInput("sr", False, ())], {"n": 1, "t": 512}),
        ([floats("x", "n", "t")], {"n": 1, "t": 128}),
        ([floats("x", "n", "t"), OpenInput("sr", False, ()), floats("state", 2, "b", 128)], {"n": 1, "t": 512, "b": 1}),
        ([floats("t", "n"), floats("x", "n", 4)], {"n": 1}),
        ([floats("ids", "text_len", 3)], {"text_len": 128}),
    ],
)
def test_sizes_go_by_names_and_places(inputs: list[OpenInput], expected: dict[str, int]) -> None:
    assert next(likely_sizes(inputs, [])) == expected


@pytest.mark.parametrize(
    ("image", "outputs", "size"),
    [
        (floats("x", "n", 3, "h", "w"), [("n", 1, "h", "w")], 640),
        (floats("x", "n", 3, "h", "w"), [("n", 1000), (-1, 1, -1, -1)], 640),
        (floats("x", "n", "h", "w", 3), [("n", "", "", 21)], 640),
        (floats("x", "n", 3, "h", "w"), [("n", 1000), None], 224),
        (floats("x", "n", 3, "h", "w"), [("n", 16, 7, 7)], 224),
        (floats("x", "n", 3, "h", "w"), [("n", "w", 6625)], 224),
        (floats("latents", "n", 4, "h", "w"), [("n", 4, "h", "w")], 224),
    ],
)
def test_where_maps_are_made_of_pictures_these_are_large(image: OpenInput, outputs: list[Any], size: int) -> None:
    assert next(likely_sizes([image], outputs)) == {"n": 1, "h": size, "w": size}


def test_with_a_cache_one_token_is_new_and_totals_add_up() -> None:
    step = [
        OpenInput("input_ids", False, ("batch", "sequence_length")),
        OpenInput("attention_mask", False, ("batch", "total_sequence_length")),
        floats("past_key", "batch", 2, "past_sequence_length", 16),
    ]
    sizes: dict[str, Any] = {"batch": 1, "sequence_length": 1, "past_sequence_length": 127}
    assert next(likely_sizes(step, [None])) == {**sizes, "total_sequence_length": 128}
    other = next(other_sizes(step))
    assert other["total_sequence_length"] == other["past_sequence_length"] + other["sequence_length"] > 2


def test_another_run_has_another_batch_odd_lengths_and_no_two_alike() -> None:
    inputs = [TOKENS, OpenInput("decoder_ids", False, ("b", "t")), floats("pixels", "b", 3, "h", "w")]
    first, other = next(likely_sizes(inputs, [])), next(other_sizes(inputs))
    assert other["b"] == 2
    assert all(other[name] % 2 for name in "sthw")
    assert len({other[name] for name in "sthw"}) == 4
    assert all(first[name] != other[name] for name in "bsthw")


def test_a_name_says_more_than_a_place() -> None:
    known = roles([floats("x", "seq", "batch_size", 64), floats("z", "n_samples", "past + new_tokens")])
    assert known == {
        "seq": "length",
        "batch_size": "batch",
        "n_samples": "samples",
        "past": "past",
        "new_tokens": "length",
    }


def test_channels_come_first_where_both_ends_may_be() -> None:
    assert roles([floats("x", "n", 3, "a", 4), floats("z", "n", 3, "c", "d")]) == {
        "n": "batch",
        "a": "height",
        "c": "height",
        "d": "width",
    }
