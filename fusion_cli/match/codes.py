"""Why a rule did not match: stable codes, their titles, and what to do."""

CODES: dict[str, tuple[str, str]] = {
    "FUS101": (
        "Operator or idiom missing",
        "The rule needs an operator (or idiom) at this place in the graph and found another. The model computes "
        "something else, or writes it in a way no idiom knows yet: add an overload.",
    ),
    "FUS102": (
        "Number of inputs differs",
        "The operator is there, with more or fewer inputs than the rule's text has.",
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
}
