"""Why a region cannot be compiled: reason codes FUS2xx."""

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
