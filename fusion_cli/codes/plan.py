"""Why a region cannot be compiled: reason codes FUS2xx, their titles and help.

The documentation is generated from this.
"""

from __future__ import annotations

from fusion_cli.codes.advice import FIX_SIZES, INFER_SHAPES

UNKNOWN_RANK = "FUS201"
OPERATOR = "FUS202"
DTYPE = "FUS203"
OPSET = "FUS204"
ATTRIBUTE = "FUS205"
REDUCED_AXES = "FUS206"
SHAPE_PROGRAM = "FUS207"
UNPROVEN_SHAPE = "FUS208"
CONSTANT = "FUS209"
UNUSED_OUTPUT = "FUS210"
DANGLING = "FUS211"
INVALID = "FUS212"
STORED_SCORES = "FUS213"

CODES: dict[str, tuple[str, str]] = {
    UNKNOWN_RANK: (
        "The rank of a tensor is unknown",
        "Kernels index tensors by axis, so the number of dimensions of every tensor of a region must be known, "
        "though the sizes need not be. Shape inference does not know an operator on the way to one; ONNX "
        "Runtime's `symbolic_shape_infer` knows more of them, and writes what it finds into the model.",
    ),
    OPERATOR: (
        "An operator has no kernel stage",
        "Regions are compiled from elementwise operators, reductions, softmax, norms, matrix products, attention, "
        "rotary embedding, convolutions, views (reshape, transpose, slice, split, expand) and joins. The region holds "
        "an operator that is none of these; the nodes around it may still be fused on their own.",
    ),
    DTYPE: (
        "An element type has no kernel",
        "Kernels compute on float32, float16, bfloat16, int32, int64 and bool. Quantized, double and string "
        "tensors stay with ONNX Runtime.",
    ),
    OPSET: (
        "The operator's version has other semantics",
        "Old operator sets define this operator differently (for instance broadcasting by attribute before opset "
        "7). Convert the model to a newer opset with onnx.version_converter.",
    ),
    ATTRIBUTE: (
        "An operator is used in a form without a kernel",
        "The operator as such is supported, but not with this attribute, this optional input or this optional output.",
    ),
    REDUCED_AXES: (
        "A reduction is not over the last axes",
        "Row kernels reduce over the last axis, or over trailing axes taken together. A reduction or norm over other "
        "axes stays with ONNX Runtime.",
    ),
    SHAPE_PROGRAM: (
        "Shape arithmetic cannot be done on the host",
        "Dimensions are computed on the host from the dimensions of the inputs and from small integer inputs. A "
        "shape or an axis of this region depends on something else.",
    ),
    UNPROVEN_SHAPE: (
        "Two sizes cannot be proven equal",
        "A kernel needs two dimensions to be equal and nothing in the model says that they are. Naming the dynamic "
        "dimensions alike when exporting, or fixing them in the file, helps.",
    ),
    CONSTANT: (
        "A constant cannot be written into the kernel",
        "Kernels take scalars (and constants whose elements are all equal) as literals; other constants must be "
        "inputs of the operator, and axes and permutations must be constant.",
    ),
    UNUSED_OUTPUT: (
        "An optional output is needed",
        "Something reads an optional output (a mask, a running statistic, a key cache) that the kernel does not "
        "compute.",
    ),
    DANGLING: (
        "A value comes from nowhere",
        "A node of the region reads a value that is neither computed in the region, nor one of its inputs or "
        "constants.",
    ),
    INVALID: (
        "The nodes do not fit together",
        "Operands have shapes or attributes that the operator does not allow, so the model would fail at run time "
        "too. Check it with onnx.checker and full shape inference.",
    ),
    STORED_SCORES: (
        "An attention without an attention kernel",
        "An attention kernel never stores the scores: it goes from a tile of queries and keys to weighted values. So "
        "nothing else may read the scores or the weights (an output of the weights, heads mixed with one another), "
        "the softmax must be over the keys, and sizes on the way must be provably those of the model's heads, queries "
        "and keys. A region that ends in such an attention is turned down; in a larger one, such as that of "
        "AttentionProjection, the scores are stored between kernels.",
    ),
}

HINTS: dict[str, str] = {
    UNKNOWN_RANK: f"`{INFER_SHAPES}` may know the shapes that are missing",
    OPERATOR: "a rule without that operator can take the nodes around it",
    DTYPE: "convert the model to float32, float16 or bfloat16",
    OPSET: "convert the model to a newer opset with onnx.version_converter",
    SHAPE_PROGRAM: FIX_SIZES,
    UNPROVEN_SHAPE: f"name equal dimensions alike when exporting, or {FIX_SIZES}",
    CONSTANT: "make the value a constant: fold it into the model, or pass --assume-constant if it is a graph input",
    INVALID: "check the model with onnx.checker.check_model(model, full_check=True)",
    STORED_SCORES: "export without outputs of the attention weights (output_attentions=False), and with sizes that "
    "are known; heads that are mixed have no such kernel",
}
"""What to do about them, in a line."""
