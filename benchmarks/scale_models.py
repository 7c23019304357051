"""Models of any number of nodes: layers as exporters write them, stacked, and graphs made to be awkward.

Every kind is a layer in ONNX's textual syntax or a function of the number of nodes. Of a layer, the first input is what
the layer before it made; other inputs are weights of its own (drawn at random) or, with symbols in their shapes, inputs
of the model that all layers read. Constants between < and > are shared as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from zlib import crc32

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper, parser

WIDTH = 32
OPSET = 23

_TORCHSCRIPT = """
layer (float[B,S,32] x, float[S,8] cos, float[S,8] sin, float[S,S] mask, float[32] g1, float[32,32] wq,
       float[32,32] wk, float[32,32] wv, float[32,32] wo, float[32] g2, float[32] b2, float[32,64] wg, float[32,64] wu,
       float[64,32] wd) => (float[B,S,32] y)
<float two = {2}, float eps = {1e-5}, float root = {2.828427}, int64[1] last = {-1}, int64[1] zero = {0},
 int64[1] half = {4}, int64[1] far = {9223372036854775807}, int64 i0 = {0}, int64 i1 = {1}, int64[1] heads = {4},
 int64[1] depth = {8}, int64[1] width = {32}>
{
    p = Pow (x, two)
    m = ReduceMean (p, last)
    e = Add (m, eps)
    r = Sqrt (e)
    d = Div (x, r)
    n = Mul (d, g1)
    q0 = MatMul (n, wq)
    k0 = MatMul (n, wk)
    v0 = MatMul (n, wv)
    s0 = Shape (n)
    s1 = Gather (s0, i0)
    s2 = Shape (n)
    s3 = Gather (s2, i1)
    u1 = Unsqueeze (s1, zero)
    u3 = Unsqueeze (s3, zero)
    split = Concat <axis = 0> (u1, u3, heads, depth)
    q1 = Reshape (q0, split)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
    k1 = Reshape (k0, split)
    k = Transpose <perm = [0, 2, 1, 3]> (k1)
    v1 = Reshape (v0, split)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
    qc = Mul (q, cos)
    qa = Slice (q, zero, half, last)
    qb = Slice (q, half, far, last)
    qn = Neg (qb)
    qr = Concat <axis = -1> (qn, qa)
    qs = Mul (qr, sin)
    qe = Add (qc, qs)
    kc = Mul (k, cos)
    ka = Slice (k, zero, half, last)
    kb = Slice (k, half, far, last)
    kn = Neg (kb)
    kr = Concat <axis = -1> (kn, ka)
    ks = Mul (kr, sin)
    ke = Add (kc, ks)
    kt = Transpose <perm = [0, 1, 3, 2]> (ke)
    a0 = MatMul (qe, kt)
    a1 = Div (a0, root)
    a2 = Add (a1, mask)
    a3 = Softmax <axis = -1> (a2)
    a4 = MatMul (a3, v)
    a5 = Transpose <perm = [0, 2, 1, 3]> (a4)
    merge = Concat <axis = 0> (u1, u3, width)
    a6 = Reshape (a5, merge)
    o = MatMul (a6, wo)
    x1 = Add (x, o)
    lm = ReduceMean (x1, last)
    lc = Sub (x1, lm)
    lp = Pow (lc, two)
    lv = ReduceMean (lp, last)
    le = Add (lv, eps)
    lr = Sqrt (le)
    ld = Div (lc, lr)
    ls = Mul (ld, g2)
    l = Add (ls, b2)
    f0 = MatMul (l, wg)
    f1 = Sigmoid (f0)
    f2 = Mul (f0, f1)
    f3 = MatMul (l, wu)
    f4 = Mul (f2, f3)
    f5 = MatMul (f4, wd)
    y = Add (x1, f5)
}
"""

_DYNAMO = """
layer (float[B,S,32] x, float[S,S] mask, float[32] g1, float[32,32] wq, float[32,32] wk, float[32,32] wv,
       float[32,32] wo, float[32] bo, float[32] g2, float[32] b2, float[32,64] wu, float[64] bu, float[64,32] wd,
       float[32] bd)
=> (float[B,S,32] y)
<int64[4] split = {0, 0, 4, 8}, int64[3] merge = {0, 0, 32}, float scale = {0.5946036}>
{
    n = RMSNormalization <axis = -1, epsilon = 1e-6> (x, g1)
    q0 = MatMul (n, wq)
    k0 = MatMul (n, wk)
    v0 = MatMul (n, wv)
    q1 = Reshape (q0, split)
    q2 = Transpose <perm = [0, 2, 1, 3]> (q1)
    k1 = Reshape (k0, split)
    k2 = Transpose <perm = [0, 2, 3, 1]> (k1)
    v1 = Reshape (v0, split)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
    q = Mul (q2, scale)
    k = Mul (k2, scale)
    a0 = MatMul (q, k)
    a1 = Add (a0, mask)
    a2 = Softmax <axis = -1> (a1)
    a3 = MatMul (a2, v)
    a4 = Transpose <perm = [0, 2, 1, 3]> (a3)
    a5 = Reshape (a4, merge)
    o0 = MatMul (a5, wo)
    o = Add (o0, bo)
    x1 = Add (x, o)
    l = LayerNormalization <axis = -1, epsilon = 1e-5> (x1, g2, b2)
    h0 = MatMul (l, wu)
    h1 = Add (h0, bu)
    h2 = Gelu <approximate = "tanh"> (h1)
    h3 = MatMul (h2, wd)
    h = Add (h3, bd)
    y = Add (h, x1)
}
"""

_CONVOLUTION = """
layer (float[B,8,S,16] x, float[16,8,1,1] w1, float[16] s1, float[16] b1, float[16] m1, float[16] v1,
       float[16,1,3,3] w2, float[16] b2, float[8,16,1,1] w3, float[8] b3) => (float[B,8,S,16] y)
<float three = {3}, float zero = {0}, float six = {6}>
{
    c1 = Conv (x, w1)
    n1 = BatchNormalization (c1, s1, b1, m1, v1)
    r1 = Relu (n1)
    c2 = Conv <group = 16, pads = [1, 1, 1, 1]> (r1, w2, b2)
    a = Add (c2, three)
    p = Clip (a, zero, six)
    h = Mul (c2, p)
    r2 = Div (h, six)
    g = GlobalAveragePool (r2)
    t = Sigmoid (g)
    e = Mul (r2, t)
    c3 = Conv (e, w3, b3)
    y = Add (c3, x)
}
"""

# Everything a little wrong: softmax and means over other axes, a gate with a foreign factor, a scale that is computed.
_NEAR_MISSES = """
layer (float[B,S,32] x, float[32,32] wq, float[32,32] wk, float[32] g) => (float[B,S,32] y)
<float two = {2}, float eps = {1e-5}, float odd = {1.3}, int64[1] middle = {1}>
{
    q = MatMul (x, wq)
    k = MatMul (x, wk)
    kt = Transpose <perm = [0, 2, 1]> (k)
    a0 = MatMul (q, kt)
    a1 = Mul (a0, odd)
    a2 = Softmax <axis = 1> (a1)
    a3 = MatMul (a2, q)
    m = ReduceMean (a3, middle)
    c = Sub (a3, m)
    p = Pow (c, two)
    v = ReduceMean (p, middle)
    e = Add (v, eps)
    r = Sqrt (e)
    d = Div (c, r)
    n = Mul (d, g)
    s0 = Mul (n, odd)
    s1 = Sigmoid (s0)
    s2 = Mul (n, s1)
    e0 = Div (s2, odd)
    e1 = Erf (e0)
    e2 = Add (e1, two)
    e3 = Mul (s2, e2)
    y = Tanh (e3)
}
"""

# Every value is read twice: the number of paths doubles with each layer.
_DIAMONDS = """
layer (float[B,S,32] x) => (float[B,S,32] y) <float half = {0.5}>
{
    a = Sigmoid (x)
    b = Tanh (x)
    c = Mul (a, b)
    d = Mul (x, half)
    y = Add (c, d)
}
"""

_MOVES = """
layer (float[B,S,32] x) => (float[B,S,32] y)
<int64[1] zero = {0}, int64[1] half = {16}, int64[1] far = {9223372036854775807}, int64[1] last = {-1}>
{
    a = Slice (x, zero, half, last)
    b = Slice (x, half, far, last)
    n = Neg (b)
    y = Concat <axis = -1> (n, a)
}
"""

_CASTS = """
layer (float[B,S,32] x) => (float[B,S,32] y)
{
    a = Cast <to = 10> (x)
    y = Cast <to = 1> (a)
}
"""


def build(kind: str, nodes: int) -> onnx.ModelProto:
    """A model of that kind with `nodes` nodes or up to one layer more; the same for the same arguments."""
    made = KINDS[kind]
    graph = made(nodes) if callable(made) else stack(parser.parse_graph(made), nodes)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    model.producer_name = f"{kind}-{nodes}"
    return model


def stack(layer: onnx.GraphProto, nodes: int) -> onnx.GraphProto:
    """`layer` on top of itself until there are `nodes` nodes."""
    first, last = layer.input[0], layer.output[0]
    own = [v for v in layer.input[1:] if all(d.HasField("dim_value") for d in v.type.tensor_type.shape.dim)]
    given = [v for v in layer.input[1:] if v not in own]
    graph = onnx.GraphProto(name="stacked", input=[first, *given], initializer=layer.initializer)
    current = first.name
    shared = {t.name for t in (*graph.initializer, *given)}
    for number in range(-(-nodes // len(layer.node))):
        weights = [_draw(value, f"{value.name}.{number}") for value in own]
        graph.initializer.extend(weights)
        names = {name: name for name in shared} | {first.name: current, "": ""}
        names |= {value.name: tensor.name for value, tensor in zip(own, weights, strict=True)}
        for node in layer.node:
            names |= {name: f"{name}.{number}" for name in node.output}
            copy = graph.node.add()
            copy.CopyFrom(node)
            copy.name = f"{node.op_type}.{node.output[0]}.{number}"
            copy.input[:] = [names[name] for name in node.input]
            copy.output[:] = [names[name] for name in node.output]
        current = names[last.name]
    graph.output.append(_typed(current, last))
    return graph


def _chain(nodes: int) -> onnx.GraphProto:
    """One operator after the other."""
    return _graph(helper.make_node("Add", [f"v{i}", "step"], [f"v{i + 1}"]) for i in range(nodes))


def _constant_readers(nodes: int) -> onnx.GraphProto:
    """A chain whose every node reads one vector of constants."""
    operators = ("Mul", "Add", "Max", "Sub")
    return _graph(helper.make_node(operators[i % 4], [f"v{i}", "row"], [f"v{i + 1}"]) for i in range(nodes))


def _siblings(nodes: int) -> onnx.GraphProto:
    """Very many additions that read one value, gathered one after the other."""

    def wide() -> Iterator[NodeProto]:
        for i in range(-(-nodes // 2)):
            yield helper.make_node("Add", ["v0", f"row.{i}"], [f"s{i}"])
            yield helper.make_node("Max", [f"v{i}", f"s{i}"], [f"v{i + 1}"])

    return _graph(wide())


def _fan_out(nodes: int) -> onnx.GraphProto:
    """One value read by very many linear layers with an activation, added up one after the other."""

    def branches() -> Iterator[NodeProto]:
        for i in range(-(-nodes // 4)):
            yield helper.make_node("MatMul", ["v0", f"matrix.{i}"], [f"m{i}"])
            yield helper.make_node("Add", [f"m{i}", f"row.{i}"], [f"b{i}"])
            yield helper.make_node("Relu", [f"b{i}"], [f"r{i}"])
            yield helper.make_node("Add", [f"v{i}", f"r{i}"], [f"v{i + 1}"])

    return _graph(branches())


def _graph(nodes: Iterator[NodeProto]) -> onnx.GraphProto:
    """A graph from v0 to the last node's output, with the constants that the nodes read."""
    listed = list(nodes)
    for node in listed:
        node.name = f"{node.op_type}.{node.output[0]}"
    value = helper.make_tensor_value_info("v0", TensorProto.FLOAT, ["B", "S", WIDTH])
    result = _typed(listed[-1].output[0], value)
    shapes = {"step": (), "row": (WIDTH,), "matrix": (WIDTH, WIDTH)}
    read = dict.fromkeys(name for node in listed for name in node.input if name.split(".")[0] in shapes)
    tensors = [_draw(helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes[n.split(".")[0]])) for n in read]
    return helper.make_graph(listed, "awkward", [value], [result], tensors)


def _draw(value: onnx.ValueInfoProto, name: str = "") -> TensorProto:
    """Random numbers for a weight: matrices that keep magnitudes, vectors near one."""
    name = name or value.name
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    unit = np.random.default_rng(crc32(name.encode())).random(shape, dtype=np.float32)
    fan_in = int(np.prod(shape[1:])) if len(shape) == 4 else (shape[0] if shape else 1)
    numbers = 0.9 + 0.2 * unit if len(shape) < 2 else (unit - 0.5) * (3.4 / fan_in**0.5)
    return numpy_helper.from_array(np.asarray(numbers, np.float32), name)


def _typed(name: str, like: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    value = onnx.ValueInfoProto(name=name)
    value.type.CopyFrom(like.type)
    return value


KINDS: Mapping[str, str | Callable[[int], onnx.GraphProto]] = {
    "torchscript": _TORCHSCRIPT,
    "dynamo": _DYNAMO,
    "convolution": _CONVOLUTION,
    "near misses": _NEAR_MISSES,
    "diamonds": _DIAMONDS,
    "moves": _MOVES,
    "casts": _CASTS,
    "chain": _chain,
    "constant readers": _constant_readers,
    "siblings": _siblings,
    "fan-out": _fan_out,
}
