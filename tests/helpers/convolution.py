"""A convolution in numpy."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def windows(x: Array, kernel: int, stride: int, pad: int, filled: float) -> Array:
    """Square windows [n, channels, rows, columns, kernel, kernel] over images [n, channels, h, w] with so many pads,
    which are `filled`."""
    padded = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=filled)
    return np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))[:, :, ::stride, ::stride]


def convolution(x: Array, w: Array, given: dict[str, object]) -> Array:
    """Images [n, channels, ...] convolved with [made, channels of a group, ...], by the attributes of a Conv node."""
    if x.ndim == 3:
        line = {k: [n for v in np.reshape(v, (-1, 1)) for n in (int(k != "pads"), int(v[0]))] for k, v in given.items()}
        line["pads"] = [0, given["pads"][0], 0, given["pads"][1]]  # type: ignore[index]
        return convolution(x[:, :, None], w[:, :, None], line)[:, :, 0]
    strides, dilations = (np.asarray(given.get(k, [1, 1])) for k in ("strides", "dilations"))
    groups = int(given.get("group", 1))  # type: ignore[call-overload]
    reach = (np.array(w.shape[2:]) - 1) * dilations + 1
    pads = np.reshape(given.get("pads", [0] * 4), (2, 2))
    if "auto_pad" in given:
        total = np.maximum((-(-np.array(x.shape[2:]) // strides) - 1) * strides + reach - x.shape[2:], 0)
        pads = np.array([total - total // 2, total // 2])
    padded = np.pad(x, [(0, 0), (0, 0), *zip(*pads, strict=True)])
    size = (np.array(padded.shape[2:]) - reach) // strides + 1
    out = np.zeros((len(x), len(w), *size))
    for i, j in np.ndindex(w.shape[2:]):
        at = [
            slice(o * d, o * d + (n - 1) * s + 1, s)
            for o, d, n, s in zip((i, j), dilations, size, strides, strict=True)
        ]
        seen = padded[:, :, at[0], at[1]].reshape(len(x), groups, -1, *size)
        part = w[:, :, i, j].reshape(groups, -1, w.shape[1])
        out += np.einsum("ngchw,goc->ngohw", seen, part).reshape(out.shape)
    return out
