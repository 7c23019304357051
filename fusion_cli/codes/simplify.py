"""Why a node of the file is not there to be fused: stable codes, their titles, and what they mean."""

FOLDED = "FUS120"
MERGED = "FUS121"
ABSORBED = "FUS122"
UNUSED = "FUS123"

CODES: dict[str, tuple[str, str]] = {
    FOLDED: (
        "Folded into a constant",
        "Everything the node reads is known when the model is built, so it was computed then. It costs nothing at run "
        "time.",
    ),
    MERGED: (
        "Merged with an equal node",
        "Another node computes the same from the same inputs, and both are computed once.",
    ),
    ABSORBED: (
        "Taken out",
        "The node changes nothing (an identity), or is part of a neighbour now (a batch norm in its convolution).",
    ),
    UNUSED: (
        "Not used",
        "No graph output depends on the node.",
    ),
}
