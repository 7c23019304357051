"""Why a rule did not match: stable codes, their titles, and what to do."""

NO_RULE, NOT_NEAR = "FUS113", "FUS114"

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
    "FUS110": (
        "Nothing to compute",
        "The region only moves data; a kernel would gain nothing.",
    ),
    "FUS111": (
        "Region is not convex",
        "A value leaves the region, is used outside, and comes back: running the region as one operator would need its "
        "own result first.",
    ),
    "FUS112": (
        "Unknown type or rank",
        "A value at the region's edge has no inferred type or rank. Give the model's inputs shapes, or export it again "
        "with shape information.",
    ),
    "FUS115": (
        "Operator not of the model's operator sets",
        "ONNX Runtime accepts some operators in models of an older operator set than the one that brought them, such "
        "as LayerNormalization before opset 17, but not in functions, which is what fused regions become. Convert the "
        "model to a newer opset.",
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
    "FUS115": "convert the model to an opset that has the operator (onnx.version_converter)",
    "FUS112": "give the graph inputs' shapes with --shape, or run onnx.shape_inference on the model",
}
"""What to do, in a line, about those that the matcher has no more particular advice for."""
