"""Why a candidate that pays was not taken: stable codes, their titles, and what they mean."""

CODES: dict[str, tuple[str, str]] = {
    "FUS350": (
        "Another candidate saves more",
        "The candidate shares nodes with others, and the best total is reached "
        "without it. `--rules` limits the choice.",
    ),
    "FUS351": (
        "Two regions need each other",
        "Each region could run as one operator, but not both: each would need a "
        "result of the other first. The one that saves less was turned down.",
    ),
}

HINTS: dict[str, str] = {
    "FUS350": "--rules with this rule's name leaves the others out",
    "FUS351": "--rules without the other rule gives this one the nodes",
}
"""What to do about them, in a line."""
