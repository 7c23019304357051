"""Models that algebra is tried on, and what it leaves of them."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from fusion_cli.sessions import open_model
from fusion_cli.simplify import Simplified, simplify
from tests.helpers.graphs import parse

RNG = np.random.default_rng(3)
C, H, W, OUT = 6, 7, 5, 8
IMAGE = f"float[2, {C}, {H}, {W}] x"
WEIGHTS = {
    "w": (OUT, C, 3, 3),
    "b": (OUT,),
    "wg": (OUT, C // 2, 3, 3),
    "w1": (OUT, C, 1, 1),
    "wt": (C, OUT // 2, 2, 2),
    "wk": (C, OUT),
    "wn": (OUT, C),
    "s": (OUT, 1, 1),
    "t": (1, OUT, 1, 1),
    "v": (OUT,),
    "u": (OUT,),
    "m": (1, C, 1, 1),
    "n": (C, 1, 1),
    "mc": (C,),
    "nc": (C,),
    "row": (1, OUT),
    "place": (1, OUT, 5, 1),
}
"""Constants whose last size tells an axis of OUT from one of W."""


def _constants(text: str) -> dict[str, np.ndarray]:
    found = {k: RNG.normal(size=s).astype(np.float32) for k, s in WEIGHTS.items()}
    found["var"] = RNG.uniform(0.5, 2, OUT).astype(np.float32)
    found |= {
        k: np.float32(v)
        for k, v in {"zero": 0, "half": 0.5, "three": 3, "six": 6, "sixth": 1 / 6, "minus": -1, "huge": 2**24}.items()
    }
    found["positive"] = np.ones(C, np.float32)
    found["pads"] = np.array([0, 0, 1, 2, 0, 0, 0, 1])
    found["channel_pads"] = np.array([0, 1, 1, 1, 0, 0, 1, 1])
    return {k: v for k, v in found.items() if f" {k}" in text.replace("(", " ").replace(",", " ")}


def model_of(body: str, inputs: str = IMAGE, opset: int = 17, outputs: str = "float[a, c, d, e] y") -> onnx.ModelProto:
    """A graph of this body, in which the names of WEIGHTS and some others are constants."""
    model = parse(f"g ({inputs}) => ({outputs}) {{ {body} }}", opset=opset)
    for name, array in _constants(body).items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


def same(model: onnx.ModelProto, size: int = 3) -> Simplified:
    """The simplified model, which computes what the model does, with this size where it names one."""
    found = simplify(ir.from_proto(model), partial(ir.from_proto, model))
    assert_same_results(model, found, size)
    return found


def assert_same_results(model: onnx.ModelProto, found: Simplified, size: int = 3) -> None:
    feeds = {}
    for value in ir.from_proto(model).graph.inputs:
        assert value.shape is not None
        sizes = [d if isinstance(d, int) else size for d in value.shape]
        feeds[str(value.name)] = RNG.normal(size=sizes).astype(np.float32) * 4
    protos = (model, ir.to_proto(found.model))
    results = (open_model(p.SerializeToString(), use="reference").run(feeds).values() for p in protos)
    for expected, got in zip(*results, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def operators(found: Simplified) -> str:
    return " ".join(n.op_type for n in found.model.graph)


def assert_left(body: str, outputs: str = "float[a, c, d, e] y", **shapes: tuple[int, ...]) -> None:
    """No rule changes a graph of this body, whose further constants have these shapes."""
    model = model_of(body, outputs=outputs)
    for name, shape in shapes.items():
        model.graph.initializer.append(numpy_helper.from_array(RNG.normal(size=shape).astype(np.float32), name))
    found = same(model)
    assert sorted(operators(found).split()) == sorted(n.op_type for n in model.graph.node)
    assert not found.algebra


PAD = "<pads = [1, 1, 1, 1]>"
NHWC = "<perm = [0, 2, 3, 1]>"
NCHW = "<perm = [0, 3, 1, 2]>"
GATE = "a = Add (c, three) g = Clip (a, zero, six)"
"""The gate of a HardSwish of c."""
