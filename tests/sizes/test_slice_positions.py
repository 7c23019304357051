"""What a Slice takes, against ONNX Runtime."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnxruntime as ort

from fusion_cli.sizes.operations import slice_positions
from tests.helpers.graphs import parse

BOUNDS = (0, 1, 3, 5, 9, 2**31 - 2, 2**31 - 1, 2**63 - 1, -1, -2, -5, -9, -(2**31), -(2**63))


def test_positions_are_those_that_onnx_runtime_takes() -> None:
    model = parse("g (float[N] x, int64[1] b, int64[1] e, int64[1] z, int64[1] s) => (float[M] y) "
                  "{ y = Slice (x, b, e, z, s) }")  # fmt: skip
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for size, start, end, step in product((0, 1, 5), BOUNDS, BOUNDS, (1, 2, -1, -3)):
        x = np.arange(size, dtype=np.float32)
        feeds = {name: np.array([n]) for name, n in (("b", start), ("e", end), ("z", 0), ("s", step))}
        (taken,) = session.run(None, {"x": x, **feeds})
        assert taken.tolist() == list(slice_positions(size, start, end, step)), (size, start, end, step)
