"""Shape arithmetic on the host, which comes before the kernels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class ShapeOp:
    """One integer-vector operation of the shape program; its result has the index of its position.

    kind, args (shape values), ints (literal), and the meaning:
      "dims"      ints=(input slot,)         dimensions of that operator input
      "read"      ints=(input slot,)         the int64/int32 elements of that operator input (kept in host memory)
      "const"     ints                       literal vector (a scalar is a vector of one)
      "broadcast" args=(a, b, ...)           numpy broadcast of shapes
      "matmul"    args=(a, b)                shape of numpy matmul; fails where the inner dimensions differ
      "gemm"      args=(a, b) ints=(tA, tB)  shape of a 2-D product with transposes
      "permute"   args=(a,) ints=perm
      "reshape"   args=(shape, target) ints=(allowzero,)   resolves 0 and -1
      "reduce"    args=(a,) ints=(keepdims, axis, ...)
      "concat"    args=(a, b, ...)
      "slice"     args=(a,) ints=(start, end, step)        of the vector itself
      "take"      args=(a,) ints=indices                   of the vector itself
      "put"       args=(a, values) ints=indices            the vector with elements replaced
      "slice_start" args=(sizes, starts, steps)            first positions of ONNX slices along axes of these sizes
      "slice_count" args=(sizes, starts, ends, steps)      their numbers of positions
      "unsqueeze" / "squeeze"  args=(a,) ints=axes         of the shape (squeeze without axes: every 1)
      "flatten"   args=(a,) ints=(axis,)
      "conv"      args=(x, w) ints=(n, strides*n, pads*2n, dilations*n, auto_pad) with auto_pad 0 NOTSET 1 VALID
                  2 SAME_UPPER 3 SAME_LOWER
      "add" "sub" "mul" "div" "mod" "min" "max" "equal"    args=(a, b), elementwise, size-1 vectors broadcast
      "where"     args=(cond, a, b)
      "prod"      args=(a,)                                product of the elements
      "fill"      args=(count,) ints=(value,)              vector of `count` (a one-element vector) equal elements
    """

    kind: str
    args: tuple[int, ...] = ()
    ints: tuple[int, ...] = ()


def read_inputs(program: Iterable[ShapeOp]) -> set[int]:
    """The operator inputs of which a shape program reads the elements."""
    return {op.ints[0] for op in program if op.kind == "read"}
