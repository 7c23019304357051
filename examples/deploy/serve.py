"""Opens a fused model with its kernels and runs it once on zeros: python serve.py MODEL

It trusts the kernels, which come in the same image as itself. What would stop them, such as a damaged file, ends it: a
server should say so, not be slow.
"""

from __future__ import annotations

import sys
import warnings

import numpy as np

import fusion_cli

TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}

warnings.simplefilter("error")
session = fusion_cli.session(sys.argv[1], providers=["CPUExecutionProvider"], trust=True)
inputs = session.get_inputs()
feeds = {v.name: np.zeros([d if isinstance(d, int) else 1 for d in v.shape], TYPES[v.type]) for v in inputs}
for value, array in zip(session.get_outputs(), session.run(None, feeds), strict=True):
    print(value.name, array.shape)
