"""Why a target has no code for an operator: reason codes FUS5xx, their titles and help."""

from __future__ import annotations

DTYPE = "FUS501"
OPERATOR = "FUS502"
LIMIT = "FUS503"
NO_PLAN = "FUS504"
NO_TEMPLATE = "FUS505"
OUTPUT_SIZE = "FUS506"

CODES: dict[str, tuple[str, str]] = {
    DTYPE: (
        "No code for this element type",
        "The target's kernels of this kind do not compute in the element type, or in this mixture of types. Another "
        "target may; the model runs on ONNX Runtime's own kernels here.",
    ),
    OPERATOR: (
        "No code for this operator",
        "The target has no expression for an operator of the region, or for one of its attributes.",
    ),
    LIMIT: (
        "A limit of the generated kernel",
        "The region is larger than the target's kernels go: head dimension, rank, number of operands, values kept per "
        "row, or an operand that does not lie in memory as the kernel reads it.",
    ),
    NO_PLAN: (
        "Nothing to make a kernel from",
        "The operator was outlined without a plan, or the target takes no kernels.",
    ),
    NO_TEMPLATE: (
        "No template for this target",
        "The rule's `kernel:` names templates, and there is none for this target in the folder of the rule: "
        "`NAME.cc.jinja` is for the CPU, `NAME.cu.jinja` for CUDA.",
    ),
    OUTPUT_SIZE: (
        "A template cannot tell a size of its output",
        "The template uses `output_dims`, which takes every size of an output from the model or from an input's size "
        "of the same name, and one of the sizes is neither here.",
    ),
}

HINTS: dict[str, str] = {
    DTYPE: "another --target may have the kernel",
    OPERATOR: "another --target may have the kernel",
    LIMIT: "a smaller --opt-level makes smaller operators; another --target may have the kernel",
    NO_TEMPLATE: "write the template, or leave the target out",
    OUTPUT_SIZE: "name equal dimensions alike when exporting, or compute the shape in the template",
}
"""What to do about them, in a line."""
