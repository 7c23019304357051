"""Why a rule did not match: stable codes, their titles, and what to do."""

from __future__ import annotations

MISSING = "FUS101"
ARITY = "FUS102"
ATTRIBUTE = "FUS103"
CONSTANT = "FUS104"
DIFFERENT = "FUS105"
CONDITION = "FUS106"
FUNCTION = "FUS107"
LIMIT = "FUS108"
SIZES = "FUS109"
NO_WORK = "FUS110"
NOT_CONVEX = "FUS111"
UNKNOWN = "FUS112"
NO_RULE = "FUS113"
NOT_NEAR = "FUS114"
OPSET = "FUS115"

CODES: dict[str, tuple[str, str]] = {
    MISSING: (
        "Operator or idiom missing",
        "The rule needs an operator (or idiom) at this place in the graph and found another. The model computes "
        "something else, or writes it in a way no idiom knows yet: add an overload.",
    ),
    ARITY: (
        "Number of inputs or outputs differs",
        "The operator is there, with more or fewer inputs or outputs than the rule's text has.",
    ),
    ATTRIBUTE: (
        "Attribute differs",
        "The operator is there, with another attribute, such as a softmax over another axis.",
    ),
    CONSTANT: (
        "Constant differs",
        "The rule needs a certain number here. If the value is computed at run time or is a graph input, fold it into "
        "the model before optimizing.",
    ),
    DIFFERENT: (
        "Different value",
        "Two places of the rule must read the same value, and in the model they do not.",
    ),
    CONDITION: (
        "Condition does not hold",
        "A `where` condition of the rule is false for what matched.",
    ),
    FUNCTION: (
        "Another function",
        "The idiom is defined by what it computes (`# match: values`), and these nodes compute something near it. "
        "Often a constant is mistyped; if the model means it so, it is another function, and left as it is.",
    ),
    LIMIT: (
        "Too many candidates",
        "One value is read so often, or the same operators follow each other so often, that the search at this place "
        "was given up. It looks at a few hundred candidates, where a match usually takes a dozen.",
    ),
    SIZES: (
        "Sizes not known to be equal",
        "A region has one shape, and a softmax one axis; nothing in the model says that these two shapes are equal, or "
        "that they are not. "
        "Where a dynamic dimension has two names, give it one when exporting, or fix its size.",
    ),
    NO_WORK: (
        "Nothing to compute",
        "The region only moves data; a kernel would gain nothing.",
    ),
    NOT_CONVEX: (
        "Region is not convex",
        "A value leaves the region, is used outside, and comes back: running the region as one operator would need its "
        "own result first.",
    ),
    UNKNOWN: (
        "Unknown type or rank",
        "A value at the region's edge has no inferred type or rank: shape inference does not know an operator on the "
        "way to it. ONNX Runtime's `symbolic_shape_infer` knows more of them, and writes what it finds into the model; "
        "so can whoever made the operator (`value_info`).",
    ),
    OPSET: (
        "Operator not of the model's operator sets",
        "ONNX Runtime accepts some operators in models of an older operator set than the one that brought them, such "
        "as LayerNormalization before opset 17, but not in functions, which is what fused regions become. The same "
        "holds for operators of a domain that the model does not import. Such operators are the work of an optimizer: "
        "fuse the model as it was exported, or export it with a newer opset.",
    ),
    NO_RULE: (
        "No rule for the operator",
        "No rule of the optimization level names the operator, so nothing it is part of can match.",
    ),
    NOT_NEAR: (
        "No rule came near",
        "Rules name the operator, but what surrounds this one is nothing that they describe, nor much like it. A lone "
        "elementwise operator gains nothing from a kernel of its own.",
    ),
}
