"""Why a rule did not match: stable codes, their titles, and what to do."""

UNKNOWN, NO_RULE, NOT_NEAR = "FUS112", "FUS113", "FUS114"

CODES: dict[str, tuple[str, str]] = {
    "FUS101": (
        "Operator or idiom missing",
        "The rule needs an operator (or idiom) at this place in the graph and found another. The model computes "
        "something else, or writes it in a way no idiom knows yet: add an overload.",
    ),
    "FUS102": (
        "Number of inputs or outputs differs",
        "The operator is there, with more or fewer inputs or outputs than the rule's text has.",
    ),
    "FUS103": (
        "Attribute differs",
        "The operator is there, with another attribute, such as a softmax over another axis.",
    ),
    "FUS104": (
        "Constant differs",
        "The rule needs a certain number here. If the value is computed at run time or is a graph input, fold it into "
        "the model before optimizing.",
    ),
    "FUS105": (
        "Different value",
        "Two places of the rule must read the same value, and in the model they do not.",
    ),
    "FUS106": (
        "Condition does not hold",
        "A `where` condition of the rule is false for what matched.",
    ),
    "FUS107": (
        "Another function",
        "The idiom is defined by what it computes (`# match: values`), and these nodes compute something near it. "
        "Often a constant is mistyped; if the model means it so, it is another function, and left as it is.",
    ),
    "FUS108": (
        "Too many candidates",
        "One value is read so often, or the same operators follow each other so often, that the search at this place "
        "was given up. It looks at a few hundred candidates, where a match usually takes a dozen.",
    ),
    "FUS109": (
        "Sizes not known to be equal",
        "A region has one shape, and a softmax one axis; nothing in the model says that these two shapes are equal, or "
        "that they are not. "
        "Where a dynamic dimension has two names, give it one when exporting, or fix its size.",
    ),
    "FUS110": (
        "Nothing to compute",
        "The region only moves data; a kernel would gain nothing.",
    ),
    "FUS111": (
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
    "FUS115": (
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

HINTS: dict[str, str] = {
    "FUS111": "a rule that takes in the nodes on that path would not need them twice",
}
"""What to do, in a line, about those that the matcher has no more particular advice for."""
