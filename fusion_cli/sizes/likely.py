"""What a model is likely run with, where it leaves sizes open: told by the names of dimensions, and by what the inputs
look like (images, tokens, sound)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Literal

import onnx_ir as ir

from fusion_cli.sizes.algebra import names_in
from fusion_cli.sizes.parsing import parse

Dims = Sequence[int | str]
"""Numbers, and names of dimensions; "" or a negative number for one without."""
Role = Literal["batch", "length", "past", "total", "channels", "height", "width", "frames", "samples"]

_BY_NAME: Mapping[str, Role] = {
    "batch": "batch",
    "past": "past",
    "cache": "past",
    "total": "total",
    "seq": "length",
    "len": "length",
    "token": "length",
    "step": "length",
    "height": "height",
    "width": "width",
    "frame": "frames",
    "sample": "samples",
}
"""Parts of a dimension's name, those that decide first."""
_SOUND = ("audio", "wave", "pcm", "signal", "speech", "input_values")
"""Parts of the names of inputs that hold sound."""
_STATES = frozenset({"h", "c", "h0", "c0", "state", "states"})
"""Names of inputs that are what a recurrent layer remembers: layers, batch, numbers of each."""
_RATES = ("sr", "sample_rate", "sampling_rate")
_CHANNELS = (1, 3, 4)
_COLOURS, _IMAGE_RANK = 3, 4
_LIKELY: Mapping[Role, tuple[int, ...]] = {
    "batch": (1, 1, 1, 1, 1),
    "length": (128, 64, 16, 512, 8),
    "past": (127, 63, 15, 511, 7),
    "channels": (3, 1, 4, 3, 3),
    "height": (224, 256, 640, 48, 32),
    "width": (224, 256, 640, 320, 320),
    "frames": (300, 100, 64, 1_000, 32),
    "samples": (16_000, 512, 8_000, 48_000, 1_024),
}
"""Sizes to try one after the other: models may have short tables of positions, or look for what is larger."""
_OTHERS: Mapping[Role, tuple[int, ...]] = {
    "batch": (2, 2, 3, 2, 2),
    "length": (37, 24, 17, 640, 11),
    "past": (21, 16, 9, 639, 10),
    "channels": (3, 1, 4, 3, 3),
    "height": (97, 96, 288, 48, 32),
    "width": (115, 128, 320, 203, 200),
    "frames": (75, 64, 128, 640, 40),
    "samples": (8_191, 8_192, 1_024, 32_000, 2_048),
}
"""The same for a second run: odd sizes before those that most models take. Dimensions of one role differ in it."""
_APART, _APARTS = 8, {"batch": 1, "channels": 0}
_LINE_HEIGHT, _LINE_WIDTH = 100, 320
"""An image of a known height below this is a line of text, and longer than it is high."""
_SCENE = 640
"""Height and width of images of which a model makes maps: what it looks for in them is smaller than they are."""
_WINDOW = 512
"""Samples at a time, where the sampling rate is an input: such models listen as it comes."""


@dataclass(frozen=True)
class OpenInput:
    """An input of a model: whether it holds floats, and its sizes, a number or an expression of names each."""

    name: str
    is_float: bool
    dims: tuple[int | str, ...]

    @classmethod
    def of(cls, name: str, dtype: ir.DataType | None, dims: Dims) -> OpenInput:
        """An input by what its model says; dimensions without a name get one."""
        is_float = dtype is not None and dtype.is_floating_point()
        return cls(name, is_float, tuple(made_up(name, axis) if d == "" else d for axis, d in enumerate(dims)))


def made_up(name: str, axis: int) -> str:
    """What a dimension of an input without a name of its own is called."""
    return f"{name}[{axis}]"


def is_rate(name: str) -> bool:
    """Whether an input of this name is a sampling rate."""
    return name.lower() in _RATES


def roles(inputs: Sequence[OpenInput]) -> dict[str, Role]:
    """What each dimension is that has a name."""
    found: dict[str, Role] = {}
    weak: dict[str, Role] = {}
    streams = any(is_rate(v.name) for v in inputs)
    for value in inputs:
        for axis, dim in enumerate(value.dims):
            for name in () if isinstance(dim, int) else names_in(parse(dim)):
                # Axis 0 of a vector says nothing.
                role: Role = (
                    "samples" if streams and _is_sound(value, axis) else _by_name(name) or _by_place(value, axis)
                )
                (weak if len(value.dims) == 1 else found).setdefault(name, role)
    return weak | found


def likely_sizes(inputs: Sequence[OpenInput], outputs: Sequence[Dims | None]) -> Iterator[dict[str, int]]:
    """Sizes of the dimensions that have a name, the likeliest first. `outputs` are the shapes of what the model gives,
    as far as it says."""
    known, streams = roles(inputs), any(is_rate(v.name) for v in inputs)
    for attempt in range(len(_LIKELY["batch"])):
        sizes = {name: _LIKELY[role][attempt] for name, role in known.items() if role != "total"}
        if attempt == 0:
            if any(map(_is_map, outputs)):
                sizes |= dict.fromkeys(_scene_sides(inputs, known), _SCENE)
            sizes |= dict.fromkeys(_line_widths(inputs, known), _LINE_WIDTH)
            sizes |= {name: _WINDOW for name, role in known.items() if role == "samples" and streams}
        if "past" in known.values():  # with what came before in a cache, one token is new
            sizes |= {name: 1 for name, role in known.items() if role == "length"}
        yield _with_totals(sizes, known)


def other_sizes(inputs: Sequence[OpenInput]) -> Iterator[dict[str, int]]:
    """Sizes for a second run: another batch, odd lengths, and no two of a kind, which tells apart what must not be
    mixed up, before those where they are alike."""
    known = roles(inputs)
    for attempt, apart in product(range(len(_OTHERS["batch"])), (_APART, 0)):
        seen: dict[Role, int] = {}
        sizes: dict[str, int] = {}
        for name, role in known.items():
            if role != "total":
                step = _APARTS.get(role, apart)
                sizes[name] = _OTHERS[role][attempt] + step * seen.setdefault(role, 0)
                seen[role] += 1
        yield _with_totals(sizes, known)


def _is_sound(value: OpenInput, axis: int) -> bool:
    return value.is_float and len(value.dims) == 2 and axis == 1


def _by_name(name: str) -> Role | None:
    return next((role for part, role in _BY_NAME.items() if part in name.lower()), None)


def _by_place(value: OpenInput, axis: int) -> Role:
    rank = len(value.dims)
    if axis == (1 if value.name.lower() in _STATES and rank == 3 else 0):
        return "batch"
    if value.is_float and rank >= 4 and _is_image(value.dims):
        channels_last = value.dims[1] not in _CHANNELS and value.dims[-1] in _CHANNELS
        from_end = rank - 1 - channels_last - axis
        return "width" if from_end == 0 else "height" if from_end == 1 else "channels" if axis == 1 else "frames"
    sounds = any(part in value.name.lower() for part in _SOUND)
    if value.is_float and axis == rank - 1 and (sounds or rank == 2 or value.dims[1] == 1):
        return "samples" if sounds or rank == 3 else "length"
    return "frames" if value.is_float and rank == 3 and axis == 2 else "length"


def _is_image(dims: Sequence[int | str]) -> bool:
    """Otherwise it may be a cache: heads, tokens, and numbers of each."""
    return dims[1] in _CHANNELS or dims[-1] in _CHANNELS or all(isinstance(d, str) for d in dims[-2:])


def _is_map(dims: Dims | None) -> bool:
    """Whether it keeps a height and a width that are open, as what detects and segments does."""
    if dims is None or len(dims) != _IMAGE_RANK:
        return False
    return any(all(not isinstance(d, int) or d < 0 for d in sides) for sides in (dims[2:], dims[1:3]))


def _scene_sides(inputs: Sequence[OpenInput], known: Mapping[str, Role]) -> list[str]:
    """Heights and widths of pictures in colour: four channels may be what another model makes smaller pictures of."""
    pictures = [v.dims for v in inputs if len(v.dims) == _IMAGE_RANK and _COLOURS in (v.dims[1], v.dims[-1])]
    return [d for dims in pictures for d in dims if isinstance(d, str) and known.get(d) in ("height", "width")]


def _line_widths(inputs: Sequence[OpenInput], known: Mapping[str, Role]) -> list[str]:
    """Widths beside a height that is known and small."""
    images = [v.dims for v in inputs if v.is_float and len(v.dims) == _IMAGE_RANK]
    widths = [(d, before) for dims in images for before, d in pairwise(dims)]
    return [
        d
        for d, before in widths
        if isinstance(d, str) and known.get(d) == "width" and isinstance(before, int) and before < _LINE_HEIGHT
    ]


def _with_totals(sizes: dict[str, int], known: Mapping[str, Role]) -> dict[str, int]:
    """A total is what is in the cache and what is new."""
    past = next((sizes[name] for name, role in known.items() if role == "past"), 0)
    new = next((sizes[name] for name, role in known.items() if role == "length"), 1)
    return sizes | {name: past + new for name, role in known.items() if role == "total"}
