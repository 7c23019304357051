"""Inputs for any model: sizes for its symbolic dimensions and values its operators accept."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from fusion_cli.errors import ModelError
from fusion_cli.sessions import Array, CannotRun
from fusion_cli.sizes.algebra import names_in
from fusion_cli.sizes.dims import number
from fusion_cli.sizes.likely import is_rate, likely_sizes, other_sizes
from fusion_cli.sizes.parsing import parse
from fusion_cli.types import Options
from fusion_cli.verify.signature import Input, Signature, nearest

Feeds = dict[str, Array]

_SIZES = ((2, 16), (1, 16), (2, 64), (1, 64))
"""Sizes to try if no likely ones run: of dimensions that only ever come first (batch), and of all others."""
_LARGE = ((1, 1024), (1, 8192))
"""Sizes for models with a least size; only tried where no more than `_MOST_ELEMENTS` go in, as they cost much."""
_MOST_ELEMENTS = 1 << 21
_MAX_BYTES = 1 << 28
_RATE = 16_000
"""Of sound, in samples a second; models that are told it know few."""


def load_feeds(path: Path, signature: Signature) -> Feeds:
    """The arrays of an .npz for the inputs of a model, stored under their names or under `in__NAME`.

    Raises ModelError for a file that cannot be read, a name that is no input's, a missing input, or one of another type
    or rank.
    """
    try:
        with np.load(path, allow_pickle=False) as data:
            arrays = {name.removeprefix("in__"): data[name] for name in data.files if not name.startswith("out__")}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError(f"cannot be read as .npz: {error}", where=str(path)) from error
    feeds = {}
    for name in sorted(arrays.keys() - signature.input_names):
        hint = nearest(name, signature.input_names)
        raise ModelError(f"the model has no input '{name}'", where=str(path), hint=hint)
    for value in signature.inputs:
        name = value.name
        if name not in arrays:
            hint = f"it has: {', '.join(sorted(arrays)) or 'nothing'}"
            raise ModelError(f"no array for the model's input '{name}'", where=str(path), hint=hint)
        array, dtype = arrays[name], _numpy_dtype(value)
        if value.shape is not None and array.ndim != len(value.shape):
            expected = f"shape [{', '.join(map(str, value.shape))}], found {list(array.shape)}"
            raise ModelError(f"input '{name}' must have {expected}", where=str(path))
        if array.dtype != dtype:
            raise ModelError(f"input '{name}' must be {dtype}, found {array.dtype}", where=str(path))
        feeds[name] = array
    return feeds


def make_feeds(
    signature: Signature, options: Options, runs: Callable[[Feeds], str], unlike: Feeds | None = None
) -> Feeds:
    """Random inputs (the same in every run) of the likeliest sizes with which the model runs, or of others than those
    of `unlike`.

    `runs` says what is wrong with some inputs, "" for nothing. `options.shapes` and `options.dims` are kept to; of a
    range of sizes the one in its (geometric) middle is taken. Raises CannotRun where no sizes do.
    """
    inputs = signature.inputs
    problem = ""
    seen = set() if unlike is None else {tuple(unlike[v.name].shape for v in inputs)}
    for sizes in _assignments(signature, options, other=unlike is not None):
        shapes = tuple(_concrete(v, sizes, options) for v in inputs)
        if shapes in seen:
            continue
        seen.add(shapes)
        size = sum(math.prod(s) * _numpy_dtype(v).itemsize for v, s in zip(inputs, shapes, strict=True))
        if size > _MAX_BYTES:
            problem = problem or f"inputs of {size >> 20} MiB are too large to test with"
            continue
        feeds = {v.name: _fill(v, shape, seed) for seed, (v, shape) in enumerate(zip(inputs, shapes, strict=True))}
        complaint = runs(feeds)
        if not complaint:
            return feeds
        problem = problem or complaint
    hint = "give sizes with --dim or --shape, or arrays with --inputs"
    raise CannotRun(f"no inputs were found that the model runs with: {problem} ({hint})")


def open_sizes(signature: Signature, options: Options) -> dict[str, int]:
    """The dimensions, by name, whose sizes neither the model nor the user tells, and what they are likely."""
    inputs = [v for v in signature.inputs if v.name not in options.shapes]
    likely = next(likely_sizes([v.opened for v in signature.inputs], signature.outputs))
    return {s: likely[s] for s in _symbols(inputs) if s not in options.bounds} if options.inputs is None else {}


def _assignments(signature: Signature, options: Options, *, other: bool) -> Iterator[Mapping[str, int]]:
    """Sizes by symbol: what is likely, or others than that; then equal ones; then the same with one symbol larger by
    one (a total that includes a cache's length and the new token); then the least and the largest."""
    symbols, opened = _symbols(signature.inputs), [v.opened for v in signature.inputs]
    leading = [s for s, axes in symbols.items() if axes == {0}]
    fixed = {s: bounds[0] if other else _middle(*bounds) for s, bounds in options.bounds.items()}
    for likely in other_sizes(opened) if other else likely_sizes(opened, signature.outputs):
        yield likely | fixed

    def sizes(batch: int, rest: int) -> dict[str, int]:
        return {s: batch if s in leading else rest for s in symbols} | fixed

    for batch, length in _SIZES:
        yield sizes(batch, length)
    base = sizes(2, 16)
    for longer in symbols:
        yield {**base, longer: base[longer] + 1} if longer not in options.bounds else base
    yield sizes(1, 1)
    for batch, length in _LARGE:
        assignment = sizes(batch, length)
        if sum(math.prod(_concrete(v, assignment, options)) for v in signature.inputs) <= _MOST_ELEMENTS:
            yield assignment


def _middle(low: int, high: int) -> int:
    return low if low == high else round((max(low, 1) * high) ** 0.5)


def _symbols(inputs: Sequence[Input]) -> dict[str, set[int]]:
    """The axes at which each symbol occurs (axis 0 of a vector says nothing: it counts only if nothing else does)."""
    axes: dict[str, set[int]] = {}
    for value in inputs:
        for axis, dim in enumerate(value.opened.dims):
            for name in () if isinstance(dim, int) else names_in(parse(dim)):
                axes.setdefault(name, set()).add(axis)
    return axes


def _concrete(value: Input, sizes: Mapping[str, int], options: Options) -> tuple[int, ...]:
    name = value.name
    if name in options.shapes:
        return options.shapes[name]
    if value.shape is None:
        raise CannotRun(f"input '{name}' has no shape (give one with --shape {name}=1,2,3)")
    return tuple(max(0, number(dim, sizes) or 0) for dim in value.opened.dims)


def _numpy_dtype(value: Input) -> np.dtype[np.generic]:
    if not value.is_tensor:
        raise CannotRun(f"input '{value.name}' is no tensor, and nothing else can be made up")
    if value.dtype is None:
        raise CannotRun(f"input '{value.name}' has no element type")
    return value.dtype.numpy()


def _fill(value: Input, shape: tuple[int, ...], seed: int) -> Array:
    """Values for one input: floats normal, integers by what the model uses them for, truth values as a mask."""
    dtype = _numpy_dtype(value)
    rng = np.random.default_rng(seed)
    if value.opened.is_float:
        return rng.standard_normal(shape, dtype=np.float32).astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
    if dtype.kind not in "iub":
        raise CannotRun(f"inputs of type {dtype} cannot be made up (give arrays with --inputs)")
    if is_rate(value.name):
        return np.full(shape, _RATE, dtype)
    below = None if dtype.kind == "b" else value.below
    if below is None:
        return _mask(shape).astype(dtype)
    return rng.integers(0, max(1, below), size=shape).astype(dtype)


def _mask(shape: tuple[int, ...]) -> Array:
    """Ones, then in every second row some zeros: padding on the right, so that no row is without a one."""
    mask = np.ones(shape, dtype=np.int64)
    if len(shape) >= 2 and shape[-1] >= 2:
        rows = mask.reshape(-1, shape[-1])
        rows[1::2, -(-shape[-1] * 3 // 4) :] = 0
    return mask
