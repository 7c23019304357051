"""Convolutions of 3 by 3 in float32 on CPUs by Winograd's minimal filtering (templates/cpu/winograd_conv.h): which
stages have it, and what it has to do."""

from __future__ import annotations

from math import ceil

from fusion_cli.devices.work import Work, count
from fusion_cli.kernels.family import Schedule, Sized, product_work
from fusion_cli.planir.stages import Conv, Plan, own_operands

_TAPS, _SIDE, _POINTS = 3, 4, 36
_TOGETHER, _VECTORS = 64, 32
"""Tiles whose products are made together, and those of two vectors, of which the last may be partly empty."""
_OPERATIONS = 8.0
"""An element of the input or the result, for the sums that are made of it."""
_SLOWDOWN = 1.6
"""Of its matrix products against the vendor's convolution. Measured on an AMD Zen 5, one thread, 512-bit vectors: 64 to
64 channels of 56 x 56 take 0.52 ms for 0.87, 128 to 128 of 28 x 28 0.47 for 0.84, 96 to 24 of 184 x 184 4.6 for 7.9."""
_MOST_WEIGHT_BYTES = 16e6
"""Of the sums of the weights, four times as large as these, which are read again for every block of tiles."""
SCHEDULE = Schedule(
    "winograd",
    "3 x 3 in float32 with constant weights, no strides: 36 multiplications for 16 results; ONNX Runtime's where one "
    "of them is not finite",
    (("rows", _SIDE), ("columns", _SIDE)),
)


def takes(plan: Plan, stage: Conv) -> bool:
    """Whether a convolution can run so: of images, 3 by 3, its neighbours next to each other."""
    x, w = (plan.tensors[stage.operands[i].tensor] for i in (stage.x, stage.w))
    plain = stage.group == 1 and not stage.channels_last and {*stage.strides, *stage.dilations} <= {1}
    return plain and x.dtype == "float32" and w.shape[2:] == (_TAPS, _TAPS)


def winograd_work(at: Sized) -> list[Work] | None:
    """What a convolution has to do so; None where the vendor's kernel would run."""
    stage: Conv = at.stage
    if not at.is_weight(stage.w) or not takes(at.plan, stage):
        return None
    made, channels = at.shape(stage.w)[:2]
    image, result = at.shape(stage.x), at.dims[stage.dims]
    tiles = image[0] * ceil(result[2] / _SIDE) * ceil(result[3] / _SIDE)
    sums = 4.0 * _POINTS * made * channels
    if sums > _MOST_WEIGHT_BYTES:
        return None
    flops = 2.0 * _POINTS * made * channels * ceil(tiles / _VECTORS) * _VECTORS
    product, *rest = product_work(at, own_operands(stage), flops, _SLOWDOWN)
    again = sums * ceil(tiles / _TOGETHER)
    operations = _OPERATIONS * (count(image) + at.space)
    return [Work("Winograd", product.bytes + again, flops, product.dtype, operations, slowdown=_SLOWDOWN), *rest]
